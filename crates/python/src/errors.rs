//! Failures as exceptions of `vramwise.errors`, which is where they are defined and documented.

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use vramwise_cli::embed::{Failure, Kind};

use crate::settings::characters;

/// The exception for a failure.
pub(crate) fn exception(py: Python<'_>, failure: &Failure) -> PyErr {
    build(py, failure).unwrap_or_else(|error| error)
}

fn build(py: Python<'_>, failure: &Failure) -> PyResult<PyErr> {
    let facts = PyDict::new(py);
    let class = match failure.what_kind() {
        Kind::Io { path, number } => {
            // Python chooses FileNotFoundError and its like by the number.
            let strerror = number.map(|number| {
                let text = std::io::Error::from_raw_os_error(number).to_string();
                text.split(" (os error").next().unwrap_or(&text).to_owned()
            });
            return Ok(match number {
                Some(number) => {
                    PyOSError::new_err((*number, strerror, path.clone().into_os_string()))
                }
                None => PyOSError::new_err(failure.sentence().to_owned()),
            });
        }
        Kind::Unreadable { path, offset } => {
            facts.set_item("path", path.display().to_string())?;
            facts.set_item("offset", offset)?;
            "UnreadableFileError"
        }
        Kind::NoHistory { path } => {
            facts.set_item("path", path.display().to_string())?;
            "NoHistoryError"
        }
        Kind::Settings { text, offset } => {
            facts.set_item("settings", text)?;
            facts.set_item("position", characters(text, *offset))?;
            "SettingsError"
        }
        Kind::Stopped => return Ok(PyRuntimeError::new_err("stopped")),
        _ => "ArgumentError",
    };
    let class = py.import("vramwise.errors")?.getattr(class)?;
    let exception = class.call((message(failure),), Some(&facts))?;
    Ok(PyErr::from_value(exception))
}

/// What, where, what to do.
fn message(failure: &Failure) -> String {
    let mut text = failure.sentence().to_owned();
    if let Some(place) = failure.place() {
        text.push_str(&format!(" ({place})"));
    }
    if let Some(hint) = failure.advice() {
        text.push_str(&format!("\nhint: {hint}"));
    }
    text
}
