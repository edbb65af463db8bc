//! The error of the `cudaMallocAsync` back end: a heading and labelled lines.

use super::{Piece, Seen, device, read_pieces, store};
use crate::oom::event::Numbers;
use crate::oom::joiner::Reading;
use crate::oom::pattern::{Outcome, match_at};

/// The beginning of the heading.
pub(in crate::oom) const ANCHOR: &str = "allocationondevice";

/// Reads the heading and the lines; without the heading's end it is something else.
pub(in crate::oom) fn read(text: &[u8]) -> Reading<Option<Numbers>> {
    match match_at("allocationondevice{i}wouldexceedallowedmemory", text) {
        Outcome::Full(values, used) => {
            let numbers = Numbers { gpu: device(values.first()), ..Numbers::default() };
            let (numbers, reading) = read_pieces(text, PIECES, &mut Seen::default(), numbers, used);
            Reading { value: Some(numbers), reach: reading.reach, open: reading.open }
        }
        Outcome::Partial => Reading { value: None, reach: text.len(), open: true },
        Outcome::No => Reading { value: None, reach: 0, open: false },
    }
}

macro_rules! put {
    ($field:ident) => {
        |n, v| store(&mut n.$field, &mut n.impossible, stringify!($field), v.first())
    };
}

const PIECES: &[Piece] = &[
    Piece { pattern: "outofmemory", apply: |_, _| {} },
    Piece { pattern: "currentlyallocated:{s}", apply: put!(allocated) },
    Piece { pattern: "requested:{s}", apply: put!(tried) },
    Piece { pattern: "devicelimit:{s}", apply: put!(total) },
    Piece { pattern: "free(accordingtocuda):{s}", apply: put!(free) },
    Piece { pattern: "pytorchlimit(setbyuser-suppliedmemoryfraction):{s}", apply: put!(allowed) },
];
