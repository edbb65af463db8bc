//! Reads inside an operation of PyTorch's.
//!
//! Many operations count on the device and read the count themselves. Where the value layer cannot say it, memory holds
//! what another block left there: no answer, since a program that takes it for a size asks for gigabytes.

use std::cell::RefCell;

/// What the calling thread runs, as the value layer says.
struct Operation {
    /// Inputs whose contents are known, as (start, bytes).
    known: Vec<(u64, u64)>,
    /// Reads of anything else.
    unknown: u64,
}

thread_local! {
    static RUNNING: RefCell<Option<Operation>> = const { RefCell::new(None) };
}

/// An operation begins, of whose inputs these are known.
pub(crate) fn begin(known: Vec<(u64, u64)>) {
    RUNNING.set(Some(Operation { known, unknown: 0 }));
}

/// It has run: how often it read something that is not known.
pub(crate) fn end() -> u64 {
    RUNNING.take().map_or(0, |operation| operation.unknown)
}

/// What a read at this address gives, of what was found there.
pub(super) fn readable(from: u64, found: Vec<u8>, certain: bool) -> Vec<u8> {
    RUNNING.with_borrow_mut(|running| {
        let Some(operation) = running else { return found };
        let end = from.saturating_add(found.len() as u64);
        let inside =
            |&(start, bytes): &(u64, u64)| from >= start && end <= start.saturating_add(bytes);
        if certain || operation.known.iter().any(inside) {
            return found;
        }
        operation.unknown += 1;
        vec![0; found.len()]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_reads_what_is_known_and_zeros_else() {
        assert_eq!(readable(4096, vec![9; 8], false), [9; 8], "no operation runs");
        begin(vec![(4096, 16)]);
        assert_eq!(readable(4104, vec![9; 8], false), [9; 8]);
        assert_eq!(readable(4108, vec![9; 8], false), [0; 8]);
        assert_eq!(readable(0, vec![9; 4], true), [9; 4], "the program had just put it there");
        assert_eq!(readable(0, vec![9; 4], false), [0; 4]);
        assert_eq!((end(), end()), (2, 0));
        assert_eq!(readable(0, vec![9; 4], false), [9; 4]);
    }
}
