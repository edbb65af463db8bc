//! Byte sizes as people read and write them. Units are binary: 1 KiB = 1,024 bytes.

use std::fmt;

/// Bytes in a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;

/// Shows a number of bytes for people: two decimals and a binary unit, `1.50 GiB`.
///
/// Reports use it; JSON carries exact bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        let text = match n {
            0..KIB => format!("{n} B"),
            KIB..MIB => scaled(n, KIB, "KiB"),
            MIB..GIB => scaled(n, MIB, "MiB"),
            _ if n < 1024 * GIB => scaled(n, GIB, "GiB"),
            _ => scaled(n, 1024 * GIB, "TiB"),
        };
        f.pad(&text)
    }
}

/// `n` in `unit` with two decimals, rounded half up without floating point.
fn scaled(n: u64, unit: u64, name: &str) -> String {
    let hundredths = (u128::from(n) * 100 + u128::from(unit) / 2) / u128::from(unit);
    format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
}

/// A size that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSizeError {
    /// The text as given.
    pub text: String,
}

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.trim();
        if is_fraction(text) {
            return write!(
                f,
                "'{text}' has no unit, and there is no part of a byte; write {text}GiB or {text}MiB"
            );
        }
        write!(
            f,
            "'{}' is not a size; write a number of bytes or a unit, such as 40GiB, 512MiB or 85899345920",
            self.text
        )
    }
}

impl std::error::Error for ParseSizeError {}

/// Whether a text is a number with a fraction and nothing else.
fn is_fraction(text: &str) -> bool {
    let digits =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    text.split_once('.').is_some_and(|(whole, fraction)| digits(whole) && digits(fraction))
}

/// Reads `40GiB`, `1.5 GiB`, `512M`, `4096` into bytes.
///
/// `K`, `M`, `G`, `T` with or without `B`/`iB` are binary, as everywhere in PyTorch; case does not
/// matter. A fraction needs a unit, and is rounded down to whole bytes.
///
/// # Errors
/// [`ParseSizeError`] for anything else, including a size beyond 2^63 bytes.
pub fn parse_size(text: &str) -> Result<u64, ParseSizeError> {
    let fail = || ParseSizeError { text: text.to_owned() };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
    let (number, unit) = trimmed.split_at(split.unwrap_or(trimmed.len()));
    if is_fraction(trimmed) {
        return Err(fail());
    }
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(fail()),
    };
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() || fraction.len() > 12 || (number.contains('.') && fraction.is_empty()) {
        return Err(fail());
    }
    let whole: u128 = whole.parse().map_err(|_| fail())?;
    let mut bytes = whole.checked_mul(1 << shift).ok_or_else(fail)?;
    if !fraction.is_empty() {
        let parts: u128 = fraction.parse().map_err(|_| fail())?;
        let digits = u32::try_from(fraction.len()).map_err(|_| fail())?;
        bytes += (parts << shift) / 10u128.pow(digits);
    }
    if bytes > 1 << 63 {
        return Err(fail());
    }
    u64::try_from(bytes).map_err(|_| fail())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_with_two_decimals() {
        let shown = |n| Human(n).to_string();
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1536), "1.50 KiB");
        assert_eq!(shown(20 * MIB), "20.00 MiB");
        assert_eq!(shown(9_684_647_936), "9.02 GiB");
        assert_eq!(shown(3 << 40), "3.00 TiB");
        assert_eq!(format!("{:>10}|", Human(5)), "       5 B|");
    }

    #[test]
    fn sizes_are_read_with_binary_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("40GiB"), Ok(40 * GIB));
        assert_eq!(parse_size(" 1.5 gb "), Ok(3 * GIB / 2));
        assert_eq!(parse_size("512m"), Ok(512 * MIB));
        assert_eq!(parse_size("1_000"), Ok(1000));
        for bad in
            ["", "GiB", "12 parsecs", "-1", "1.", ".5G", "99999999999999999999G", "1e9", "9000000T"]
        {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        // Somebody who writes this means no 3 bytes.
        for fraction in ["3.5", "0.5", "20.0", " 1_0.5 "] {
            let error = parse_size(fraction).unwrap_err().to_string();
            assert!(error.contains(&format!("write {}GiB", fraction.trim())), "{error}");
        }
    }
}
