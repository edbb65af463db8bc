//! Where the instructions of a pickle begin, so that mutations can cut between them.
//!
//! Independent of the reader that is tested: a table of argument shapes, nothing more.

/// How many bytes follow an opcode.
enum Argument {
    Fixed(usize),
    /// A length of so many bytes, then that many bytes.
    Counted(usize),
    /// Up to so many newlines.
    Lines(usize),
}

fn argument(opcode: u8) -> Argument {
    use Argument::{Counted, Fixed, Lines};
    match opcode {
        b'K' | b'h' | b'q' | 0x80 | 0x82 => Fixed(1),
        b'M' | 0x83 => Fixed(2),
        b'J' | b'j' | b'r' | 0x84 => Fixed(4),
        b'G' | 0x95 => Fixed(8),
        b'U' | b'C' | 0x8a | 0x8c => Counted(1),
        b'T' | b'X' | b'B' | 0x8b => Counted(4),
        0x8d | 0x8e | 0x96 => Counted(8),
        b'I' | b'L' | b'F' | b'S' | b'V' | b'P' | b'g' | b'p' => Lines(1),
        b'c' | b'i' => Lines(2),
        _ => Fixed(0),
    }
}

/// The offset of every instruction, as far as they can be told apart.
pub(crate) fn offsets(pickle: &[u8]) -> Vec<usize> {
    let mut offsets = Vec::new();
    let mut at = 0;
    while let Some(&opcode) = pickle.get(at) {
        offsets.push(at);
        let rest = &pickle[at + 1..];
        let length = match argument(opcode) {
            Argument::Fixed(n) => n,
            Argument::Counted(n) => {
                let Some(count) = rest.get(..n) else { break };
                let count = count.iter().rev().fold(0_u64, |sum, b| (sum << 8) | u64::from(*b));
                n.saturating_add(usize::try_from(count).unwrap_or(usize::MAX))
            }
            Argument::Lines(n) => {
                let newlines = rest.iter().enumerate().filter(|(_, b)| **b == b'\n');
                newlines.map(|(i, _)| i + 1).nth(n - 1).unwrap_or(rest.len())
            }
        };
        if length > rest.len() {
            break;
        }
        at += 1 + length;
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_apart() {
        let pickle = b"\x80\x04\x95\x0e\0\0\0\0\0\0\0]\x94(\x8c\x03abcI12\ne.";
        assert_eq!(offsets(pickle), [0, 2, 11, 12, 13, 14, 19, 23, 24]);
    }

    #[test]
    fn a_length_that_lies_ends_the_list() {
        assert_eq!(offsets(b"K\x01X\xff\xff\xff\xff"), [0, 2]);
        assert_eq!(offsets(b""), [0; 0]);
    }
}
