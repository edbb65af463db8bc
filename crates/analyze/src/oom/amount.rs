//! Sizes as error texts print them: a rounded number and a unit.

use vramwise_types::{GIB, KIB, MIB};

/// A printed size: the bytes it stands for, and how far off it may be.
///
/// Units are binary whatever their spelling: PyTorch's old `GB` and Apple's `GB` in these texts
/// mean GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Amount {
    /// Printed number times printed unit, rounded to whole bytes.
    pub bytes: u64,
    /// Half of the last printed digit; the truth lies within `bytes` ± `slop`.
    pub slop: u64,
}

/// From here on a size is no size but a counter that ran out: 2^64 bytes and its neighbours.
const IMPOSSIBLE: u128 = 1 << 63;

/// What was read at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A size and its length in the text.
    Size(Amount, usize),
    /// A number of 2^63 bytes and more: "not available" in some counter.
    Impossible(usize),
    /// The text ends inside it.
    Partial,
    /// No size here.
    No,
}

/// Units in compact lower-case text, longest first so that none hides another.
const UNITS: [(&str, u64); 15] = [
    ("bytes", 1),
    ("byte", 1),
    ("kib", KIB),
    ("mib", MIB),
    ("gib", GIB),
    ("tib", 1024 * GIB),
    ("pib", 1024 * 1024 * GIB),
    ("eib", 1024 * 1024 * 1024 * GIB),
    ("kb", KIB),
    ("mb", MIB),
    ("gb", GIB),
    ("tb", 1024 * GIB),
    ("g", GIB),
    ("m", MIB),
    ("k", KIB),
];

/// Reads a size at the beginning of compact lower-case text (no white space): `2.26gib`, `0bytes`.
///
/// The one-letter units of other programs count only where nothing that continues a word follows.
pub(super) fn read(text: &[u8]) -> Read {
    // No size is below zero: a counter went wrong, and what follows it may still be right.
    if let [b'-', rest @ ..] = text {
        return match read_plain(rest) {
            Read::Size(_, used) | Read::Impossible(used) => Read::Impossible(used + 1),
            other => other,
        };
    }
    read_plain(text)
}

fn read_plain(text: &[u8]) -> Read {
    let number = number_len(text);
    if number == 0 {
        return Read::No;
    }
    let rest = &text[number..];
    if rest.is_empty() {
        return Read::Partial;
    }
    let mut partial = false;
    for (unit, scale) in UNITS {
        let unit_bytes = unit.as_bytes();
        if rest.starts_with(unit_bytes) {
            let follows = rest.get(unit.len()).copied();
            if unit.len() == 1 && follows.is_some_and(|b| b.is_ascii_alphabetic()) {
                continue;
            }
            if unit.len() == 1 && follows.is_none() {
                partial = true;
                continue;
            }
            return sized(&text[..number], scale, number + unit.len());
        }
        partial |= unit_bytes.starts_with(rest);
    }
    if partial { Read::Partial } else { Read::No }
}

/// Length of a decimal number: digits with at most one point inside. A comma separates thousands
/// where three digits follow it, and is a decimal point otherwise, as in the languages that write
/// it so.
fn number_len(text: &[u8]) -> usize {
    let mut seen_point = false;
    let mut len = 0;
    for (i, byte) in text.iter().enumerate() {
        let next_is_digit = text.get(i + 1).is_some_and(u8::is_ascii_digit);
        match byte {
            b'0'..=b'9' => len = i + 1,
            b'.' if i > 0 && !seen_point && (next_is_digit || i + 1 == text.len()) => {
                seen_point = true;
                len = i + 1;
            }
            b',' if i > 0 && !seen_point && next_is_digit => {
                seen_point = !separates_thousands(&text[i..]);
            }
            _ => break,
        }
    }
    len
}

/// Whether exactly three digits follow the comma at the beginning.
fn separates_thousands(text: &[u8]) -> bool {
    text[1..].iter().take(4).take_while(|b| b.is_ascii_digit()).count() == 3
}

fn sized(number: &[u8], scale: u64, used: usize) -> Read {
    let mut digits: u128 = 0;
    let mut decimals: u32 = 0;
    let mut behind_point = false;
    for (i, byte) in number.iter().enumerate() {
        match byte {
            b'0'..=b'9' if digits < 1 << 90 => {
                digits = digits * 10 + u128::from(byte - b'0');
                decimals += u32::from(behind_point);
            }
            b'0'..=b'9' => return Read::Impossible(used),
            b'.' => behind_point = true,
            b',' => behind_point = !separates_thousands(&number[i..]),
            _ => {}
        }
    }
    let unit = 10_u128.saturating_pow(decimals.min(18));
    let bytes = (digits.saturating_mul(u128::from(scale)) + unit / 2) / unit;
    if bytes >= IMPOSSIBLE {
        return Read::Impossible(used);
    }
    let slop = u128::from(scale).div_ceil(2 * unit);
    let slop = if scale == 1 && decimals == 0 { 0 } else { slop };
    match (u64::try_from(bytes), u64::try_from(slop)) {
        (Ok(bytes), Ok(slop)) => Read::Size(Amount { bytes, slop }, used),
        _ => Read::Impossible(used),
    }
}

/// Reads a whole number; `None` for the value where it does not fit.
pub(super) fn integer(text: &[u8]) -> Option<(Option<u64>, usize)> {
    let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let digits = std::str::from_utf8(&text[..len]).ok()?;
    (len > 0).then(|| (digits.parse().ok(), len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        match read(text.as_bytes()) {
            Read::Size(a, _) => Some(a.bytes),
            _ => None,
        }
    }

    #[test]
    fn sizes_are_number_times_unit() {
        assert_eq!(bytes("2.26gib"), Some(2_426_656_522));
        assert_eq!(bytes("0bytesfree"), Some(0));
        assert_eq!(bytes("1024.00kibtotal"), Some(1 << 20));
        assert_eq!(bytes("768.00mb)"), Some(768 << 20));
        assert_eq!(bytes("2.00g("), Some(2 << 30));
        assert_eq!(bytes("8,589,934,592bytes"), Some(8 << 30));
        assert_eq!(bytes("1,002.00mib"), Some(1002 << 20));
        assert_eq!(bytes("8,00gib"), Some(8 << 30));
        assert_eq!(bytes("1.5tib"), Some(1536 << 30));
        assert_eq!(bytes("2.00gpus"), None);
        assert_eq!(bytes("gib"), None);
        assert_eq!(bytes(".5gib"), None);
    }

    #[test]
    fn an_amount_knows_its_rounding() {
        let Read::Size(a, used) = read(b"2.26gibfree") else { panic!() };
        assert_eq!((a.slop, used), (5_368_710, 7));
        let Read::Size(a, _) = read(b"100bytes") else { panic!() };
        assert_eq!(a.slop, 0);
    }

    #[test]
    fn all_ones_and_the_like_are_no_sizes() {
        assert_eq!(read(b"17179869184.00gib"), Read::Impossible(17));
        assert_eq!(read(b"16eib"), Read::Impossible(5));
        assert_eq!(read(b"18446744073709551615bytes"), Read::Impossible(25));
        assert!(matches!(read(&[b"9".repeat(200), b"gib".to_vec()].concat()), Read::Impossible(_)));
    }

    #[test]
    fn nothing_is_below_zero() {
        assert_eq!(read(b"-5.00mibisfree"), Read::Impossible(8));
        assert_eq!(read(b"--5mib"), Read::No);
    }

    #[test]
    fn a_cut_size_is_partial() {
        for cut in ["2", "2.", "2.2", "2.26", "2.26g", "2.26gi", "0b", "0byte".get(..4).unwrap()] {
            assert_eq!(read(cut.as_bytes()), Read::Partial, "{cut}");
        }
    }
}
