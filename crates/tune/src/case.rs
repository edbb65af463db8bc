//! The programs that settings are tried on.

use std::sync::Arc;

use vramwise_model::device::DeviceCall;
use vramwise_replay::{Program, Recording};

/// One program: a rank, a run, or a variation of one.
#[derive(Clone, Debug)]
pub struct Case {
    /// What people call it: the file's name.
    pub name: String,
    /// The operations.
    pub program: Program,
    /// The device calls of the recording, for the addresses of new segments.
    pub calls: Arc<[DeviceCall]>,
    /// Bytes that this program may hold, where no capacity is given for all.
    pub capacity: Option<u64>,
}

impl Case {
    /// The program of a verified recording.
    pub fn new(name: impl Into<String>, recording: &Recording) -> Self {
        Self {
            name: name.into(),
            program: recording.program.clone(),
            calls: Arc::clone(&recording.calls),
            capacity: None,
        }
    }
}
