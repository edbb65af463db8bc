//! Cuts a settings string into tokens the way PyTorch does.

use super::dialect::Dialect;

/// One token with its place in the string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The characters, white space dropped.
    pub(super) text: String,
    /// Byte offset of the first character.
    pub(super) start: usize,
    /// Byte offset behind the last character.
    pub(super) end: usize,
}

/// The tokens: each of `,` `:` `[` `]` is one, and so is every run of other characters between
/// them.
///
/// White space does not end a token, it vanishes: `max split` is `maxsplit`. The checked dialect
/// drops only the space character; a tab or a line break stays and makes a key unknown.
pub(super) fn lex(text: &str, dialect: Dialect) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut run: Option<Token> = None;
    for (at, ch) in text.char_indices() {
        if is_separator(ch) {
            tokens.extend(run.take());
            tokens.push(Token { text: ch.to_string(), start: at, end: at + 1 });
        } else if !is_dropped(ch, dialect) {
            let end = at + ch.len_utf8();
            let token = run.get_or_insert_with(|| Token { text: String::new(), start: at, end });
            token.text.push(ch);
            token.end = end;
        }
    }
    tokens.extend(run);
    tokens
}

/// Whether the character is a token of its own.
pub(super) fn is_separator(ch: char) -> bool {
    matches!(ch, ',' | ':' | '[' | ']')
}

fn is_dropped(ch: char, dialect: Dialect) -> bool {
    match dialect {
        Dialect::Checked => ch == ' ',
        // C's isspace: the vertical tab is white space there.
        Dialect::Unified => matches!(ch, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, dialect: Dialect) -> Vec<String> {
        lex(text, dialect).into_iter().map(|t| t.text).collect()
    }

    #[test]
    fn separators_are_tokens_and_white_space_vanishes() {
        assert_eq!(
            texts("a : b,c:[1:2 ]", Dialect::Unified),
            ["a", ":", "b", ",", "c", ":", "[", "1", ":", "2", "]"]
        );
        assert_eq!(texts("a b:c", Dialect::Unified), ["ab", ":", "c"]);
        assert_eq!(texts("a\tb", Dialect::Unified), ["ab"]);
        assert_eq!(texts("a\tb", Dialect::Checked), ["a\tb"]);
        assert!(texts("  ", Dialect::Checked).is_empty());
    }

    #[test]
    fn offsets_point_into_the_string_as_given() {
        let tokens = lex("é : x y", Dialect::Unified);
        assert_eq!((tokens[0].start, tokens[0].end), (0, 2));
        assert_eq!((tokens[1].start, tokens[1].end), (3, 4));
        assert_eq!((tokens[2].start, tokens[2].end, tokens[2].text.as_str()), (5, 8, "xy"));
    }
}
