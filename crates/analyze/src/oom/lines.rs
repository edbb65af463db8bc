//! A log as lines, and each line as compact text: no white space, no colours, lower case.
//!
//! Terminals wrap messages in the middle of words, loggers put prefixes in front of every line, and
//! several processes write into one file. In compact text a wrapped message is the plain
//! concatenation of its lines, so all matching is done there.

/// One line of the log, where `\r` ends a line too (progress bars).
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// Number of the line, counted from 1 by `\n` alone, as editors do.
    pub(super) number: usize,
    pub(super) text: &'a str,
}

/// Cuts the text into lines; empty ones are dropped.
pub(super) fn lines(text: &str) -> Vec<Line<'_>> {
    let mut out = Vec::new();
    for (i, physical) in text.split('\n').enumerate() {
        for part in physical.split('\r').filter(|p| !p.trim().is_empty()) {
            out.push(Line { number: i + 1, text: part });
        }
    }
    out
}

/// Appends the compact form of `text`, which is UTF-8 as `text` is.
fn compact_into(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let byte = bytes[i];
        if byte.is_ascii_alphanumeric() {
            out.push(byte.to_ascii_lowercase());
            i += 1;
            continue;
        }
        let skipped = decoration_len(&bytes[i..]);
        if skipped > 0 {
            i += skipped;
            continue;
        }
        if byte < 0x80 {
            out.push(byte);
            i += 1;
            continue;
        }
        let ch = text[i..].chars().next().unwrap_or('\u{fffd}');
        if !is_invisible(ch) {
            out.extend_from_slice(&bytes[i..i + ch.len_utf8()]);
        }
        i += ch.len_utf8();
    }
}

/// The compact form of `text`.
pub(super) fn compact(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    compact_into(text, &mut out);
    out
}

/// Length of what is dropped at the beginning: white space, control characters, colour sequences
/// (real ones and written-out ones), line breaks written as `\n`, emphasis marks and table bars.
fn decoration_len(bytes: &[u8]) -> usize {
    match bytes[0] {
        0x1b => escape_len(bytes),
        b' ' | b'`' | b'*' | b'|' | 0x7f => 1,
        0..0x20 => 1,
        b'[' => colour_len(bytes),
        b'\\' => match bytes.get(1..) {
            Some([b'n' | b't' | b'r', ..]) => 2,
            Some([b'x', b'1', b'b', ..]) => 4 + colour_len(&bytes[4..]),
            Some([b'0', b'3', b'3', ..]) => 4 + colour_len(&bytes[4..]),
            Some([b'u', b'0', b'0', b'1', b'b', ..]) => 6 + colour_len(&bytes[6..]),
            _ => 0,
        },
        b'<' => markup_len(bytes),
        b'&' => ["&nbsp;", "&gt;", "&lt;", "&amp;", "&quot;", "&#39;", "&#x27;"]
            .iter()
            .find(|e| bytes.starts_with(e.as_bytes()))
            .map_or(0, |e| e.len()),
        _ => 0,
    }
}

/// Length of `<br/>`, `</span>` and the like, or 0.
fn markup_len(bytes: &[u8]) -> usize {
    let named = bytes.get(1).is_some_and(|b| b.is_ascii_alphabetic() || *b == b'/');
    let end = bytes.iter().take(80).skip(1).position(|b| matches!(b, b'>' | b'<'));
    match end {
        Some(n) if named && bytes[n + 1] == b'>' => n + 2,
        _ => 0,
    }
}

/// Length of an escape sequence: CSI, OSC, or two bytes.
fn escape_len(bytes: &[u8]) -> usize {
    match bytes.get(1) {
        Some(b'[') => {
            let end = bytes[2..].iter().position(|b| (0x40..=0x7e).contains(b));
            end.map_or(bytes.len(), |n| n + 3)
        }
        Some(b']') => {
            // Ended by BEL, or by another escape sequence, which is then dropped by itself.
            let end = bytes[2..].iter().position(|b| matches!(b, 0x07 | 0x1b));
            end.map_or(bytes.len(), |n| if bytes[n + 2] == 0x07 { n + 3 } else { n + 2 })
        }
        Some(b) if *b < 0x80 => 2,
        _ => 1,
    }
}

/// Length of `[31m`, `[0;1m`, or 0.
fn colour_len(bytes: &[u8]) -> usize {
    if bytes.first() != Some(&b'[') {
        return 0;
    }
    let digits =
        bytes[1..].iter().take(12).take_while(|b| b.is_ascii_digit() || **b == b';').count();
    let ends = matches!(bytes.get(digits + 1), Some(b'm' | b'K'));
    // "[m" resets; a bracket with nothing in it but a letter is too common elsewhere to be dropped.
    if ends && digits > 0 { digits + 2 } else { 0 }
}

fn is_invisible(ch: char) -> bool {
    ch.is_whitespace()
        || matches!(ch, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
        // Box drawing of traceback printers.
        || matches!(ch, '\u{2500}'..='\u{257f}')
}

/// The tag at the beginning of a line that names the process which wrote it, and the text behind
/// it.
///
/// `[rank3]: …`, `[default3]:[rank3]: …`, `[1,3]<stderr>:…`, `(Worker pid=12, ip=…) …`,
/// `trainer-1 | …`.
pub(super) fn tag(text: &str) -> (Option<&str>, &str) {
    let mut rest = undecorated(text);
    let mut end_of_tag = None;
    let start = text.len() - rest.len();
    for _ in 0..3 {
        let Some(len) = tag_len(rest) else { break };
        end_of_tag = Some(text.len() - rest.len() + len);
        rest = rest[len..].trim_start();
    }
    match end_of_tag {
        Some(end) => (Some(text[start..end].trim_end()), rest),
        None => (None, text.trim_start()),
    }
}

fn tag_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    match bytes.first()? {
        b'[' => {
            let close = text.find(']').filter(|c| *c <= 24)?;
            let inner = &text[1..close];
            let behind = &text[close + 1..];
            let named = ["rank", "default", "r", "gpu", "node"].iter().any(|w| {
                inner
                    .strip_prefix(w)
                    .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            });
            if let Some(stream) =
                ["<stderr>:", "<stdout>:"].iter().find(|s| behind.starts_with(**s))
            {
                return Some(close + 1 + stream.len());
            }
            (named && behind.starts_with(':')).then_some(close + 2)
        }
        b'(' => {
            let close = text.find(')').filter(|c| *c <= 120)?;
            text[1..close].contains("pid=").then_some(close + 1)
        }
        _ => {
            let bar = text.find('|').filter(|b| *b <= 40 && *b > 0)?;
            let name = text[..bar].trim_end();
            let word = !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
                && name.bytes().any(|b| b.is_ascii_alphabetic())
                && name.bytes().last().is_some_and(|b| b.is_ascii_digit());
            (word && text[bar + 1..].starts_with(' ')).then_some(bar + 1)
        }
    }
}

/// The rank that a tag names, if it names one.
pub(super) fn rank_of(tag: &str) -> Option<u32> {
    let after = |word: &str| {
        let at = tag.rfind(word)? + word.len();
        let behind = tag[at..].trim_start_matches(['=', '_', '-']);
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    after("rank").or_else(|| after("default")).or_else(|| {
        let inner = tag.strip_prefix('[')?.split_once("]<")?.0;
        inner.rsplit(',').next()?.parse().ok()
    })
}

/// Whether the line is a progress bar: it may stand between the lines of a message and belongs to
/// none.
pub(super) fn is_progress(text: &str) -> bool {
    if !text.contains(['%', '/']) {
        return false;
    }
    let rate = text.contains("it/s") || text.contains("s/it") || text.contains("?it/s");
    let percent = text.find('%').is_some_and(|p| {
        text[..p].bytes().last().is_some_and(|b| b.is_ascii_digit())
            && text[p + 1..].trim_start().starts_with(['|', '━', '█', ' '])
    });
    rate || (percent && text.contains(['|', '━', '█']))
}

/// Whether a line begins with a time.
pub(super) fn has_clock(text: &str) -> bool {
    clock_len(text.trim_start()) > 0
}

/// Length of a time with its date at the beginning, and of the word behind it that a log driver or a logger
/// puts there: `2026-03-01T12:34:56.789Z stderr F `, `2026-03-01 12:34:56,789 ERROR `. 0 without one.
fn clock_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let shape = b"dddd-dd-dd?dd:dd:dd";
    let fits = |(b, s): (&u8, &u8)| match s {
        b'd' => b.is_ascii_digit(),
        b'?' => matches!(b, b' ' | b'T'),
        _ => b == s,
    };
    if bytes.len() < shape.len() || !bytes.iter().zip(shape).all(fits) {
        return 0;
    }
    let rest = &bytes[shape.len()..];
    let more =
        rest.iter().take_while(|b| matches!(b, b'0'..=b'9' | b'.' | b',' | b':' | b'+' | b'Z'));
    let mut end = shape.len() + more.count();
    for word in [
        "stderr F", "stdout F", "stderr P", "stdout P", "ERROR", "WARNING", "INFO", "DEBUG",
        "CRITICAL",
    ] {
        let behind = text[end..].trim_start();
        if behind.strip_prefix(word).is_some_and(|b| b.starts_with(' ')) {
            end = text.len() - behind.len() + word.len();
        }
    }
    end
}

/// The line without the marks that quote or number it (`# `, `> `, `4924:`, `│ `), and without its time.
pub(super) fn undecorated(text: &str) -> &str {
    let mut rest = text;
    loop {
        let before = rest;
        rest = rest.trim_start_matches(|c: char| {
            c.is_whitespace() || matches!(c, '#' | '>' | '|' | '│' | '┃' | '║' | '"' | '\'' | '*')
        });
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if (1..=7).contains(&digits) && rest[digits..].starts_with(": ") {
            rest = &rest[digits + 1..];
        }
        rest = &rest[clock_len(rest)..];
        if rest == before {
            return rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compacted(text: &str) -> String {
        String::from_utf8(compact(text)).unwrap()
    }

    #[test]
    fn compact_text_has_no_white_space_colours_or_case() {
        assert_eq!(compacted("CUDA out of\tmemory. "), "cudaoutofmemory.");
        assert_eq!(compacted("\u{1b}[1;31mError\u{1b}[0m: x"), "error:x");
        assert_eq!(compacted("\\u001b[31mError\\x1b[0m\\nnext"), "errornext");
        assert_eq!(compacted("[31mred[0m [rank0]"), "red[rank0]");
        assert_eq!(compacted("│ a │ **b** `c`"), "abc");
        assert_eq!(compacted("\u{1b}]0;title\u{7}x"), "x");
        assert_eq!(compacted("\u{1b}["), "");
        assert_eq!(compacted("显存 不足"), "显存不足");
        assert_eq!(compacted("a<br/>b<br>c<b"), "abc<b");
        assert_eq!(compacted("<p class=x>a</p>&nbsp;b a < b > c"), "aba<b>c");
    }

    #[test]
    fn tags_name_the_writer() {
        assert_eq!(tag("[rank3]: boom"), (Some("[rank3]:"), "boom"));
        assert_eq!(tag("[default1]:[rank5]: boom").0, Some("[default1]:[rank5]:"));
        assert_eq!(
            tag("(Worker pid=12, ip=1.2.3.4) boom"),
            (Some("(Worker pid=12, ip=1.2.3.4)"), "boom")
        );
        assert_eq!(tag("trainer-1  | boom"), (Some("trainer-1  |"), "boom"));
        assert_eq!(tag("[1,7]<stderr>:boom"), (Some("[1,7]<stderr>:"), "boom"));
        assert_eq!(tag("# [rank1]: boom"), (Some("[rank1]:"), "boom"));
        assert_eq!(tag("# plain"), (None, "# plain"));
        assert_eq!(tag("plain"), (None, "plain"));
        assert_eq!(tag("  0%|   | 0/80"), (None, "0%|   | 0/80"));
        for (text, rank) in [
            ("[rank3]:", Some(3)),
            ("[default1]:[rank5]:", Some(5)),
            ("[1,7]<stderr>:", Some(7)),
            ("(VllmWorker rank=1 pid=3)", Some(1)),
            ("(a pid=3)", None),
        ] {
            assert_eq!(rank_of(text), rank, "{text}");
        }
    }

    #[test]
    fn lines_are_numbered_like_in_an_editor() {
        let found: Vec<_> = lines("a\n\nb\rc\r\nd").iter().map(|l| (l.number, l.text)).collect();
        assert_eq!(found, [(1, "a"), (3, "b"), (3, "c"), (4, "d")]);
    }

    #[test]
    fn progress_bars_are_known() {
        assert!(is_progress("  0%|          | 0/801 [00:08<?, ?it/s]"));
        assert!(is_progress("Epoch 1:  42%|████      | 5/12 [00:04<02:52,  4.93s/it]"));
        assert!(!is_progress("GPU 0 has 50% of"));
        assert_eq!(undecorated("# > 4924: torch"), "torch");
    }
}
