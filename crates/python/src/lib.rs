//! `vramwise._native`: what the Python package calls.
//!
//! Conversions only: decisions and reports are those of the crates below, so that Python and the command line
//! cannot differ. `python/vramwise` is the face that users see; nothing here is meant to be called by them.

mod arrow;
mod errors;
mod recording;
mod settings;
mod work;

/// The native part of vramwise.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::arrow::Table;
    #[pymodule_export]
    use crate::recording::{Recording, report};
    #[pymodule_export]
    use crate::settings::{Problem, check_settings, parse_size};
}
