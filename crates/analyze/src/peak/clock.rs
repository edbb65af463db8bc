//! Which moment an event is.

use vramwise_trace::{DeviceTrace, Snapshot};

use super::phase::Phases;
use super::{Phase, When};

/// Tells the time and phase of events.
pub(super) struct Clock<'a> {
    device: &'a DeviceTrace,
    phases: Phases<'a>,
    start: Option<u64>,
}

impl<'a> Clock<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, number: u32, device: &'a DeviceTrace) -> Self {
        let start = device.events.time_us.iter().copied().find(|t| *t > 0);
        Self { device, phases: Phases::new(snapshot, number), start }
    }

    pub(super) fn when(&self, event: Option<usize>) -> When {
        let times = &self.device.events.time_us;
        let time = match event {
            Some(event) => times.get(event),
            None => times.last(),
        };
        let time = time.copied().filter(|t| *t > 0);
        When {
            event,
            since_start_us: time.zip(self.start).map(|(now, start)| now.saturating_sub(start)),
            phase: time.map_or_else(Phase::default, |t| self.phases.at(t)),
        }
    }
}
