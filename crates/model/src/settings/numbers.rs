//! Numbers as the C++ standard library reads them: from the front of a token, the rest unread.

/// Why a token is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberFault {
    /// It does not begin like a number.
    NotANumber,
    /// It is a number that the type cannot hold.
    OutOfRange,
}

/// A number and how many bytes of the token it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Read<T> {
    pub(super) value: T,
    pub(super) used: usize,
    /// A minus sign wrapped around to the top of the range.
    pub(super) wrapped: bool,
}

/// `std::stoull` (and `std::stoul` where `long` has 64 bits): a minus sign wraps.
pub(super) fn stoull(token: &str) -> Result<Read<u64>, NumberFault> {
    let (negative, magnitude, used) = integer(token)?;
    let value = u64::try_from(magnitude).map_err(|_| NumberFault::OutOfRange)?;
    let wrapped = negative && value != 0;
    Ok(Read { value: if negative { value.wrapping_neg() } else { value }, used, wrapped })
}

/// `std::stoi`, then stored in a `size_t`: 32 bits are read, a negative one wraps to 64.
pub(super) fn stoi(token: &str) -> Result<Read<u64>, NumberFault> {
    let (negative, magnitude, used) = integer(token)?;
    let magnitude = i64::try_from(magnitude).map_err(|_| NumberFault::OutOfRange)?;
    let signed = if negative { -magnitude } else { magnitude };
    let signed = i32::try_from(signed).map_err(|_| NumberFault::OutOfRange)?;
    Ok(Read { value: i64::from(signed) as u64, used, wrapped: signed < 0 })
}

/// Sign, magnitude and length of the decimal integer at the front; the magnitude saturates.
fn integer(token: &str) -> Result<(bool, u128, usize), NumberFault> {
    let (sign, digits) = split_sign(token);
    let mut magnitude: u128 = 0;
    let mut count = 0;
    for digit in digits.bytes().take_while(u8::is_ascii_digit) {
        magnitude = magnitude.saturating_mul(10).saturating_add(u128::from(digit - b'0'));
        count += 1;
    }
    if count == 0 {
        return Err(NumberFault::NotANumber);
    }
    Ok((sign == Some('-'), magnitude, token.len() - digits.len() + count))
}

fn split_sign(token: &str) -> (Option<char>, &str) {
    match token.as_bytes().first() {
        Some(b'-') => (Some('-'), &token[1..]),
        Some(b'+') => (Some('+'), &token[1..]),
        _ => (None, token),
    }
}

/// `std::stod`: decimal, hexadecimal, `inf` and `nan`; a result that under- or overflows is an
/// error.
pub(super) fn stod(token: &str) -> Result<Read<f64>, NumberFault> {
    let (sign, body) = split_sign(token);
    let signed = |value: f64| if sign == Some('-') { -value } else { value };
    let sign_len = token.len() - body.len();
    let lower = body.to_ascii_lowercase();
    for (word, value) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if lower.starts_with(word) {
            return Ok(Read { value: signed(value), used: sign_len + word.len(), wrapped: false });
        }
    }
    let (value, used, mantissa_is_zero) = match lower.strip_prefix("0x") {
        Some(hex) if hex_mantissa_len(hex) > 0 => hexadecimal(hex),
        _ => decimal(&lower)?,
    };
    if value.is_infinite() || (!mantissa_is_zero && value.abs() < f64::MIN_POSITIVE) {
        return Err(NumberFault::OutOfRange);
    }
    Ok(Read { value: signed(value), used: sign_len + used, wrapped: false })
}

fn decimal(body: &str) -> Result<(f64, usize, bool), NumberFault> {
    let bytes = body.as_bytes();
    let whole = digits_at(bytes, 0, u8::is_ascii_digit);
    let mut end = whole;
    if bytes.get(end) == Some(&b'.') {
        end = digits_at(bytes, end + 1, u8::is_ascii_digit);
    }
    if !bytes[..end].iter().any(u8::is_ascii_digit) {
        return Err(NumberFault::NotANumber);
    }
    let zero = bytes[..end].iter().all(|b| matches!(b, b'0' | b'.'));
    end = exponent_end(bytes, end, b'e');
    let value = body[..end].parse().map_err(|_| NumberFault::NotANumber)?;
    Ok((value, end, zero))
}

/// Length of the mantissa of a hexadecimal number behind `0x`, 0 if it has no digit.
fn hex_mantissa_len(hex: &str) -> usize {
    let bytes = hex.as_bytes();
    let mut end = digits_at(bytes, 0, u8::is_ascii_hexdigit);
    if bytes.get(end) == Some(&b'.') {
        end = digits_at(bytes, end + 1, u8::is_ascii_hexdigit);
    }
    if bytes[..end].iter().any(u8::is_ascii_hexdigit) { end } else { 0 }
}

fn hexadecimal(hex: &str) -> (f64, usize, bool) {
    let mantissa_end = hex_mantissa_len(hex);
    let mut value = 0.0_f64;
    let mut scale = 0_i32;
    let mut behind_point = false;
    for ch in hex[..mantissa_end].chars() {
        match ch.to_digit(16) {
            Some(digit) => {
                value = value * 16.0 + f64::from(digit);
                scale -= if behind_point { 4 } else { 0 };
            }
            None => behind_point = true,
        }
    }
    let zero = value == 0.0;
    let end = exponent_end(hex.as_bytes(), mantissa_end, b'p');
    let exponent = hex.get(mantissa_end + 1..end).and_then(|e| e.parse::<i32>().ok()).unwrap_or(0);
    (value * 2.0_f64.powi(scale.saturating_add(exponent)), "0x".len() + end, zero)
}

/// End of an exponent that begins at `at`, or `at` if there is none.
fn exponent_end(bytes: &[u8], at: usize, mark: u8) -> usize {
    if bytes.get(at) != Some(&mark) {
        return at;
    }
    let digits = at + 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
    let end = digits_at(bytes, digits, u8::is_ascii_digit);
    if end > digits { end } else { at }
}

/// Index behind the run of digits that begins at `from`.
fn digits_at(bytes: &[u8], from: usize, is_digit: impl Fn(&u8) -> bool) -> usize {
    let run = bytes.get(from..).unwrap_or_default().iter().take_while(|b| is_digit(b)).count();
    from + run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_from_the_front_and_wrap() {
        assert_eq!(stoull("512MB").map(|r| (r.value, r.used)), Ok((512, 3)));
        assert_eq!(stoull("+7").map(|r| r.value), Ok(7));
        assert_eq!(stoull("-1").map(|r| (r.value, r.wrapped)), Ok((u64::MAX, true)));
        assert_eq!(stoull("18446744073709551616"), Err(NumberFault::OutOfRange));
        assert_eq!(stoull("0x10").map(|r| (r.value, r.used)), Ok((0, 1)));
        for bad in ["", "-", "MB", "--1", "one"] {
            assert_eq!(stoull(bad), Err(NumberFault::NotANumber), "{bad}");
        }
    }

    #[test]
    fn the_old_parser_reads_32_bits() {
        assert_eq!(stoi("-1").map(|r| r.value), Ok(u64::MAX));
        assert_eq!(stoi("2147483647").map(|r| r.value), Ok(2_147_483_647));
        assert_eq!(stoi("2147483648"), Err(NumberFault::OutOfRange));
        assert_eq!(
            stoi("99999999999999999999999999999999999999999999"),
            Err(NumberFault::OutOfRange)
        );
    }

    #[test]
    fn fractions_are_read_like_c() {
        let read = |t| stod(t).map(|r| (r.value, r.used));
        assert_eq!(read("0.8"), Ok((0.8, 3)));
        assert_eq!(read(".5x"), Ok((0.5, 2)));
        assert_eq!(read("5."), Ok((5.0, 2)));
        assert_eq!(read("1e-1"), Ok((0.1, 4)));
        assert_eq!(read("1e"), Ok((1.0, 1)));
        assert_eq!(read("0x1p-1"), Ok((0.5, 6)));
        assert_eq!(read("0x.8"), Ok((0.5, 4)));
        assert_eq!(read("0xg"), Ok((0.0, 1)));
        assert_eq!(read("-inf"), Ok((f64::NEG_INFINITY, 4)));
        assert!(stod("nan").is_ok_and(|r| r.value.is_nan()));
        assert_eq!(read("1e999"), Err(NumberFault::OutOfRange));
        assert_eq!(read("1e-999"), Err(NumberFault::OutOfRange));
        assert_eq!(read("0e-999"), Ok((0.0, 6)));
        for bad in ["", ".", "-", "e5", "half"] {
            assert_eq!(read(bad), Err(NumberFault::NotANumber), "{bad}");
        }
    }
}
