//! The text forms of protocol 0, and decoding of text in general.

use std::borrow::Cow;

/// Digits of a decimal integer that are worth converting (CPython's own bound is 4,300).
pub(crate) const MAX_DIGITS: usize = 10_000;

/// UTF-8 as Python writes it: halves of surrogate pairs, which Rust text cannot hold, become U+FFFD.
pub(crate) fn utf8(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(Cow::Borrowed(text)),
        Err(_) => surrogates_replaced(bytes).map(Cow::Owned),
    }
}

fn surrogates_replaced(mut bytes: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(bytes.len());
    loop {
        match std::str::from_utf8(bytes) {
            Ok(rest) => {
                text.push_str(rest);
                return Some(text);
            }
            Err(e) => {
                let (good, bad) = bytes.split_at(e.valid_up_to());
                text.push_str(std::str::from_utf8(good).ok()?);
                match bad {
                    [0xed, 0xa0..=0xbf, 0x80..=0xbf, rest @ ..] => {
                        text.push(char::REPLACEMENT_CHARACTER);
                        bytes = rest;
                    }
                    _ => return None,
                }
            }
        }
    }
}

/// Text from code points that may be halves of a surrogate pair.
fn push_code_point(text: &mut String, code: u32) -> Option<()> {
    match code {
        0xd800..=0xdfff => text.push(char::REPLACEMENT_CHARACTER),
        _ => text.push(char::from_u32(code)?),
    }
    Some(())
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0u32, |n, d| Some((n << 4) | char::from(*d).to_digit(16)?))
}

/// `UNICODE`: Latin-1 with `\uXXXX` and `\UXXXXXXXX`.
pub(crate) fn raw_unicode(line: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((first, tail)) = rest.split_first() {
        let digits = match (first, tail.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                text.push(char::from(*first));
                rest = tail;
                continue;
            }
        };
        push_code_point(&mut text, hex(tail.get(1..=digits)?)?)?;
        rest = &tail[1 + digits..];
    }
    Some(text)
}

/// `STRING`: a quoted Python literal with backslash escapes, giving bytes.
pub(crate) fn quoted(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let (quote, line) = line.split_first()?;
    let (end, body) = line.split_last()?;
    if quote != end || !matches!(quote, b'\'' | b'"') {
        return None;
    }
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let (escape, tail) = rest.split_first()?;
        rest = tail;
        match escape {
            b'\n' => {}
            b'\\' | b'\'' | b'"' => out.push(*escape),
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'x' => {
                out.push(u8::try_from(hex(rest.get(..2)?)?).ok()?);
                rest = &rest[2..];
            }
            b'0'..=b'7' => {
                let more = rest.iter().take(2).take_while(|b| matches!(b, b'0'..=b'7')).count();
                let digits = rest[..more]
                    .iter()
                    .fold(u32::from(escape - b'0'), |n, d| (n << 3) | u32::from(d - b'0'));
                out.push((digits & 0xff) as u8);
                rest = &rest[more..];
            }
            other => out.extend([b'\\', *other]),
        }
    }
    Some(out)
}

/// A decimal integer of any length as two's complement, lowest byte first.
pub(crate) fn decimal(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let (negative, digits) = match line {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, line),
    };
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Nine digits at a time into words of 32 bits, lowest first.
    let mut words: Vec<u32> = Vec::new();
    for chunk in digits.chunks(9) {
        let value = chunk.iter().fold(0u64, |n, d| n * 10 + u64::from(d - b'0'));
        let scale = 10u64.pow(chunk.len() as u32);
        let mut carry = value;
        for word in &mut words {
            let n = u64::from(*word) * scale + carry;
            *word = n as u32;
            carry = n >> 32;
        }
        if carry > 0 {
            words.push(carry as u32);
        }
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    bytes.push(0);
    if negative {
        let mut carry = true;
        for byte in &mut bytes {
            let (n, c) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (n, c);
        }
    }
    Some(bytes)
}

/// `FLOAT`: what Python's `repr` writes.
pub(crate) fn float(line: &[u8]) -> Option<f64> {
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// A memo index in decimal; `Err` where it is negative.
pub(crate) fn index(line: &[u8]) -> Option<Result<u64, ()>> {
    let text = std::str::from_utf8(line).ok()?.trim();
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|b| b.is_ascii_digit()) => Some(Err(())),
        _ => text.parse().ok().map(Ok),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_integers_of_any_length_are_read() {
        let as_int = |text: &str| {
            let bytes = decimal(text.as_bytes()).unwrap();
            let fill = if bytes.last().unwrap() & 0x80 != 0 { 0xff } else { 0 };
            let mut all = [fill; 16];
            let n = bytes.len().min(16);
            all[..n].copy_from_slice(&bytes[..n]);
            i128::from_le_bytes(all)
        };
        for i in [
            0,
            1,
            -1,
            255,
            256,
            -256,
            1 << 40,
            i128::from(u64::MAX),
            -(1i128 << 64),
            10i128.pow(30),
        ] {
            assert_eq!(as_int(&i.to_string()), i, "{i}");
        }
        assert_eq!(decimal(b"12a"), None);
        assert_eq!(decimal(b""), None);
        assert_eq!(decimal(b"-"), None);
        assert_eq!(decimal(&[b'9'; MAX_DIGITS + 1]), None);
        assert!(decimal(&[b'9'; MAX_DIGITS]).unwrap().len() > 4000);
    }

    #[test]
    fn escapes_of_protocol_0_are_understood() {
        assert_eq!(quoted(br#"'a\x41\n\'\101\q'"#).unwrap(), b"aA\n'A\\q");
        assert_eq!(quoted(b"'a\""), None);
        assert_eq!(quoted(b"'"), None);
        assert_eq!(quoted(br"'\x4'"), None);
        assert_eq!(raw_unicode(br"a\u00e9\U0001f600").unwrap(), "aé😀");
        assert_eq!(raw_unicode(b"\xe9\\").unwrap(), "é\\");
        assert_eq!(raw_unicode(br"\u12"), None);
        assert_eq!(raw_unicode(br"\U00110000"), None);
    }

    #[test]
    fn lone_surrogates_are_replaced_and_other_bad_text_is_not() {
        assert_eq!(utf8(b"a\xed\xb2\x80b").unwrap(), "a\u{fffd}b");
        assert!(utf8(b"a\xff").is_none());
        assert_eq!(raw_unicode(br"\ud800").unwrap(), "\u{fffd}");
    }
}
