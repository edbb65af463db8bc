//! Every text that is known, one family a file.

pub(super) mod caching;
mod families;
pub(super) mod host;
pub(super) mod mps;
pub(super) mod neighbours;
pub(super) mod other;
pub(super) mod phrases;
pub(super) mod stream_ordered;

use super::event::Numbers;
use super::joiner::Reading;
use super::pattern::{Outcome, Value, match_at};

/// One piece of a text: how it looks, and where its values go.
pub(super) struct Piece {
    pub(super) pattern: &'static str,
    pub(super) apply: fn(&mut Numbers, &[Value]),
}

/// Characters that may stand between two pieces.
fn is_filler(byte: u8) -> bool {
    matches!(byte, b'.' | b',' | b';' | b'(' | b')' | b'"' | b'\'' | b'#' | b'>' | b'\\' | b'!')
}

/// Which pieces of a message were read: each stands in it once, the list of processes excepted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen(u64);

impl Seen {
    /// Notes a piece by its index; false if it was there before.
    fn first(&mut self, index: usize) -> bool {
        let bit = 1_u64 << index.min(63);
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }
}

/// Reads pieces in any order, as long as one matches that was not read before; the text behind them
/// is not looked at.
pub(super) fn read_pieces(
    text: &[u8],
    pieces: &[Piece],
    seen: &mut Seen,
    mut numbers: Numbers,
    from: usize,
) -> (Numbers, Reading<()>) {
    let mut at = from;
    loop {
        let start = at + text[at..].iter().take_while(|b| is_filler(**b)).count();
        let mut partial = false;
        let mut full = None;
        for (index, piece) in pieces.iter().enumerate() {
            match match_at(piece.pattern, &text[start..]) {
                Outcome::Full(values, used) => {
                    if piece.pattern.starts_with("process") || seen.first(index) {
                        full = Some((piece, values, used));
                    }
                    partial = false;
                    break;
                }
                Outcome::Partial => partial = true,
                Outcome::No => {}
            }
        }
        match full {
            Some((piece, values, used)) => {
                (piece.apply)(&mut numbers, &values);
                at = start + used;
            }
            None => {
                let reach = if partial || start == text.len() { text.len() } else { at };
                let open = partial || start == text.len();
                return (numbers, Reading { value: (), reach, open });
            }
        }
    }
}

/// Stores a size; an impossible one is noted under its label instead.
pub(super) fn store(
    slot: &mut Option<super::Amount>,
    impossible: &mut Vec<&'static str>,
    label: &'static str,
    value: Option<&Value>,
) {
    match value {
        Some(Value::Size(amount)) => *slot = Some(*amount),
        Some(_) => impossible.push(label),
        None => {}
    }
}

/// The number of a device, if it is a sensible one.
pub(super) fn device(value: Option<&Value>) -> Option<u32> {
    match value {
        Some(Value::Int(n)) => u32::try_from(*n).ok().filter(|n| *n < 4096),
        _ => None,
    }
}
