//! What can go wrong between this process and the driver.

use std::fmt;

/// A failure that says what was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No CUDA driver can be opened; the loader's words.
    NoDriver(String),
    /// The driver lacks a function: it is too old.
    Missing(&'static str),
    /// A call failed: its name and CUDA's error code.
    Call(&'static str, i32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver(words) => {
                write!(f, "no CUDA driver (libcuda.so.1) can be loaded: {words}")
            }
            Self::Missing(name) => {
                write!(
                    f,
                    "the CUDA driver has no {name}; virtual memory calls need a driver of CUDA 11.2 or later"
                )
            }
            Self::Call(name, code) => write!(f, "{name} failed with CUDA error {code}"),
        }
    }
}

impl std::error::Error for Error {}
