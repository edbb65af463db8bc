//! Settings strings and sizes.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use vramwise_model::settings::{self, Code};
use vramwise_types::TorchVersion;

/// Something that is to be said about a settings string.
#[pyclass(frozen, get_all, module = "vramwise._native")]
pub(crate) struct Problem {
    /// Stable name of the kind, such as `"gc-with-expandable"`; `"refused"`: PyTorch would not take the string.
    code: &'static str,
    /// The option that it concerns.
    option: Option<String>,
    /// Index of the first character at fault.
    position: usize,
    /// A sentence.
    message: String,
    /// The whole string corrected, where that can be told.
    suggestion: Option<String>,
}

#[pymethods]
impl Problem {
    fn __repr__(&self) -> String {
        format!("<Problem {} at {}: {}>", self.code, self.position, self.message)
    }

    fn __str__(&self) -> &str {
        &self.message
    }
}

/// Everything that speaks against a string of allocator settings under a PyTorch release; an empty list if
/// nothing does. Without a release: under the one that is modelled best, and what older ones would say.
#[pyfunction]
#[pyo3(signature = (text, torch_version=None))]
pub(crate) fn check_settings(text: &str, torch_version: Option<&str>) -> PyResult<Vec<Problem>> {
    let release = torch_version.map(version).transpose()?.unwrap_or_default();
    let suggestion =
        settings::parse(text, release).err().and_then(|refusal| refusal.suggestion.clone());
    let problem = |lint: settings::Lint| Problem {
        code: lint.code.name(),
        option: lint.option,
        position: characters(text, lint.offset),
        message: lint.message,
        suggestion: suggestion.clone().filter(|_| lint.code == Code::Refused),
    };
    // What older releases say does not matter to one that is named.
    let matters =
        |lint: &settings::Lint| torch_version.is_none() || lint.code != Code::NeedsVersion;
    Ok(settings::lint(text, release).into_iter().filter(matters).map(problem).collect())
}

/// Bytes of a size such as `"2GiB"`.
#[pyfunction]
pub(crate) fn parse_size(text: &str) -> PyResult<u64> {
    vramwise_types::parse_size(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Python counts characters where Rust counts bytes.
pub(crate) fn characters(text: &str, offset: usize) -> usize {
    text.char_indices().take_while(|(at, _)| *at < offset).count()
}

/// Reads a version as `torch.__version__` has it.
pub(crate) fn version(text: &str) -> PyResult<TorchVersion> {
    text.parse().map_err(|error: vramwise_types::ParseVersionError| {
        PyValueError::new_err(error.to_string())
    })
}
