//! Apple's Metal back end.

use super::store;
use crate::oom::event::Numbers;
use crate::oom::joiner::Reading;
use crate::oom::pattern::{Outcome, match_at};

/// The beginning of the error.
pub(in crate::oom) const ANCHOR: &str = "mpsbackendoutofmemory";
/// A single buffer beyond what Metal allows.
pub(in crate::oom) const BUFFER_ANCHOR: &str = "invalidbuffersize:";

/// Reads the error with its bracket and its request.
pub(in crate::oom) fn read(text: &[u8]) -> Reading<Numbers> {
    let mut n = Numbers::default();
    let bracket = "mpsbackendoutofmemory(mpsallocated:{s},otherallocations:{s},maxallowed:{s}).";
    let at = match match_at(bracket, text) {
        Outcome::Full(v, used) => {
            store(&mut n.allocated, &mut n.impossible, "allocated", v.first());
            store(&mut n.other, &mut n.impossible, "other", v.get(1));
            store(&mut n.allowed, &mut n.impossible, "allowed", v.get(2));
            used
        }
        Outcome::Partial => return Reading { value: n, reach: text.len(), open: true },
        Outcome::No => return Reading { value: n, reach: 0, open: false },
    };
    match match_at("triedtoallocate{s}", &text[at..]) {
        Outcome::Full(v, used) => {
            store(&mut n.tried, &mut n.impossible, "tried", v.first());
            Reading { value: n, reach: at + used, open: false }
        }
        Outcome::Partial => Reading { value: n, reach: text.len(), open: true },
        Outcome::No => Reading { value: n, reach: at, open: false },
    }
}

/// Reads the size of a refused buffer.
pub(in crate::oom) fn read_buffer(text: &[u8]) -> Reading<Numbers> {
    let mut n = Numbers::default();
    match match_at("invalidbuffersize:{s}", text) {
        Outcome::Full(v, used) => {
            store(&mut n.tried, &mut n.impossible, "tried", v.first());
            Reading { value: n, reach: used, open: false }
        }
        Outcome::Partial => Reading { value: n, reach: text.len(), open: true },
        Outcome::No => Reading { value: n, reach: 0, open: false },
    }
}
