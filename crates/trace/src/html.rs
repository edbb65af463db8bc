//! Snapshots inside HTML pages: PyTorch's `_memory_viz.py` embeds the pickle as base64 text.

/// Shorter runs of letters and digits are other text.
const SHORTEST: usize = 64;

/// The bytes that are embedded in a page, if any are.
pub(crate) fn embedded(page: &[u8]) -> Option<Vec<u8>> {
    let mark = b"base64";
    let mut rest = page;
    while let Some(at) = rest.windows(mark.len()).position(|w| w == mark) {
        rest = &rest[at + mark.len()..];
        let skip = rest.iter().take(16).position(|b| digit(*b).is_some())?;
        let run = &rest[skip..];
        let length = run.iter().take_while(|b| digit(**b).is_some()).count();
        if length >= SHORTEST {
            return Some(decode(&run[..length]));
        }
    }
    None
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    for group in text.chunks(4) {
        let bits = group.iter().fold(0u32, |n, b| (n << 6) | u32::from(digit(*b).unwrap_or(0)));
        let bits = bits << (6 * (4 - group.len()));
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len().max(1)]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_bytes_are_found_and_decoded() {
        let text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw";
        let page = format!("<p>base64 x</p>[{{\"name\": \"a\", \"base64\": \"{text}==\"}}]");
        assert_eq!(embedded(page.as_bytes()), Some((0..64).collect()));
        assert_eq!(embedded(b"<html>no base64 here</html>"), None);
        assert_eq!(embedded(b"base64"), None);
    }
}
