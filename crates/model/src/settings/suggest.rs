//! What was probably meant by a string that is refused.

use vramwise_types::TorchVersion;

use super::parse::Fault;

/// Hints in words and, where possible, the corrected string.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Advice {
    pub(super) hints: Vec<String>,
    pub(super) suggestion: Option<String>,
}

/// Advice for a refused string.
pub(super) fn advise(_text: &str, _version: TorchVersion, _fault: &Fault) -> Advice {
    Advice::default()
}
