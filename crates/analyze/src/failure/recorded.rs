//! What the recording itself says of a moment, and whether further replays come to the same.
//!
//! A replay under other conditions begins with an empty cache and without a limit that nobody gave. Of a
//! recording that began in mid-run, or that a limit made collect garbage, it can come to other figures
//! although the verification reproduced every entry.

use vramwise_model::settings::Config;
use vramwise_model::stats::Family;
use vramwise_replay::{Conditions, Recording, what_if};
use vramwise_trace::DeviceTrace;
use vramwise_types::Human;

use super::moment::Moment;
use crate::peak::alone::Alone;
use crate::peak::state::State;

/// A history with its figures.
pub(super) struct Recorded<'a> {
    pub(super) device: &'a DeviceTrace,
    config: &'a Config,
    all: Alone<'a>,
}

impl<'a> Recorded<'a> {
    pub(super) fn new(device: &'a DeviceTrace, config: &'a Config) -> Self {
        Self { device, config, all: Alone::new(device, config, None, 0) }
    }

    /// The blocks and the bytes held before an event.
    pub(super) fn before(&self, event: usize) -> State {
        self.all.state_after(event)
    }

    /// Most bytes ever held.
    pub(super) fn peak(&self) -> u64 {
        self.all.peak_reserved()
    }

    /// How a replay's failure differs from the recorded one; `None` where it is the same.
    pub(super) fn unlike(&self, moment: &Moment, event: usize) -> Option<String> {
        let until = Alone::new(self.device, self.config, Some(0..event + 1), 0).peak_reserved();
        let held = self.before(event).reserved;
        if moment.failed.reserved != held {
            return Some(says(&format!("at event {event}"), moment.failed.reserved, held));
        }
        (moment.peak != until)
            .then(|| says(&format!("at most until event {event}"), moment.peak, until))
    }

    /// How replays under the recorded conditions differ from the recording; `None` where one is like it.
    pub(super) fn unlike_replays(
        &self,
        recording: &Recording,
        conditions: &Conditions,
    ) -> Option<String> {
        let strictest = (!recording.ooms.is_empty()).then(|| self.peak());
        let mut first = None;
        for limit in [recording.limit, strictest] {
            let conditions = Conditions { limit, ..conditions.clone() };
            let outcome = what_if(&recording.program, &recording.calls, &conditions);
            let peak = outcome.stats.all(Family::ReservedBytes).peak;
            let peak = u64::try_from(peak).unwrap_or(0);
            if peak == self.peak() {
                return None;
            }
            first.get_or_insert(peak);
        }
        first.map(|peak| says("at most", peak, self.peak()))
    }
}

fn says(when: &str, replayed: u64, held: u64) -> String {
    format!(
        "told from the history alone, since replays, which start from an empty cache and with a limit \
         that is given or inferred, come to {} reserved {when} where the recording has {}",
        Human(replayed),
        Human(held)
    )
}
