//! What happens to the string while the library is loaded, before any option is parsed: only the
//! backend is looked for.

use super::Backend;
use super::dialect::Dialect;
use super::lexer::Token;

/// The backend in force from then on; a later parse that names another one fails.
pub(super) fn loaded_backend(text: &str, tokens: &[Token], dialect: Dialect) -> Backend {
    let name = match dialect {
        // The string is cut at white space and commas, each piece at colons: spaces around the
        // colon hide it.
        Dialect::Checked => {
            text.split(|c: char| c == ',' || c.is_ascii_whitespace()).find_map(|piece| {
                let mut parts = piece.split(':').filter(|p| !p.is_empty());
                let name = (parts.next() == Some("backend")).then(|| parts.next()).flatten();
                name.filter(|n| matches!(*n, "native" | "cudaMallocAsync"))
            })
        }
        Dialect::Unified => walk_at_load(tokens).ok().flatten(),
    };
    if name == Some("cudaMallocAsync") { Backend::CudaMallocAsync } else { Backend::Native }
}

/// It ran off the end of the tokens, which trips an assertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RanOff;

/// The walk over the tokens that the unified dialect makes: key, separator, value or list,
/// separator. Returns the value of the first `backend`.
pub(super) fn walk_at_load(tokens: &[Token]) -> Result<Option<&str>, RanOff> {
    let mut i = 0;
    while i < tokens.len() {
        let value = tokens.get(i + 2).ok_or(RanOff)?;
        if tokens[i].text == "backend" {
            return Ok(Some(&value.text));
        }
        i += 2;
        if value.text == "[" {
            i += tokens[i..].iter().position(|t| t.text == "]").ok_or(RanOff)?;
        }
        i += 2;
    }
    Ok(None)
}
