//! Streams and events: handles, priorities, virtual time, and which capture they take part in.

use rustc_hash::FxHashMap;

use super::capture::CaptureId;

/// A stream. The default streams (null, legacy, per thread) exist without being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) device: usize,
    pub(crate) priority: i32,
    pub(crate) flags: u32,
    pub(crate) capture: Option<CaptureId>,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) device: usize,
    pub(crate) timed: bool,
    /// Virtual time of its record, nanoseconds.
    pub(crate) recorded: Option<u64>,
    pub(crate) capture: Option<CaptureId>,
}

/// All of them. Streams by handle, default streams by handle and device.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    made: FxHashMap<usize, Stream>,
    default: FxHashMap<(usize, usize), Stream>,
    events: FxHashMap<usize, Event>,
}

/// Handles up to this are default streams (`cudaStreamLegacy` = 1, `cudaStreamPerThread` = 2).
const LAST_DEFAULT: usize = 2;

impl Streams {
    pub(crate) fn create(&mut self, stream: Stream) -> usize {
        let handle = crate::stub::new_handle();
        self.made.insert(handle, stream);
        handle
    }

    pub(crate) fn destroy(&mut self, handle: usize) -> bool {
        self.made.remove(&handle).is_some()
    }

    /// The stream of a handle, `device` being the calling thread's.
    pub(crate) fn get(&mut self, handle: usize, device: usize) -> Option<&mut Stream> {
        if handle <= LAST_DEFAULT {
            let new = Stream { device, priority: 0, flags: 0, capture: None };
            return Some(self.default.entry((handle, device)).or_insert(new));
        }
        self.made.get_mut(&handle)
    }

    pub(crate) fn create_event(&mut self, device: usize, timed: bool) -> usize {
        let handle = crate::stub::new_handle();
        self.events.insert(handle, Event { device, timed, recorded: None, capture: None });
        handle
    }

    pub(crate) fn destroy_event(&mut self, handle: usize) -> bool {
        self.events.remove(&handle).is_some()
    }

    pub(crate) fn event(&mut self, handle: usize) -> Option<&mut Event> {
        self.events.get_mut(&handle)
    }

    /// Whoever took part in a capture does so no longer.
    pub(crate) fn end_capture(&mut self, id: CaptureId) {
        // Order does not matter: each is changed by itself.
        for stream in self.made.values_mut().chain(self.default.values_mut()) {
            stream.capture = stream.capture.filter(|c| *c != id);
        }
        #[expect(clippy::iter_over_hash_type, reason = "each value is changed by itself")]
        for event in self.events.values_mut() {
            event.capture = event.capture.filter(|c| *c != id);
        }
    }
}
