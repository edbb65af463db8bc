//! What the machine must be like.

use std::path::{Path, PathBuf};

use crate::error::RehearsalError;

/// Where the driver of a real GPU shows itself: a card, or WSL's paravirtualised one.
const REAL_GPUS: [&str; 2] = ["/dev/nvidia0", "/dev/dxg"];
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

/// Refuses machines on which a rehearsal would fail, or hide a real GPU without being asked to.
pub(crate) fn check(emulate_anyway: bool) -> Result<(), RehearsalError> {
    if !cfg!(target_os = "linux") {
        return Err(RehearsalError::System(std::env::consts::OS));
    }
    let real = REAL_GPUS.iter().map(Path::new).find(|device| device.exists());
    match real {
        Some(device) if !emulate_anyway => Err(RehearsalError::RealGpu(PathBuf::from(device))),
        _ => Ok(()),
    }
}

/// Whether the kernel refuses address space that it could not back with memory: then device memory
/// cannot hold values, and addresses are all there is.
pub(crate) fn overcommit_is_strict() -> bool {
    std::fs::read_to_string(OVERCOMMIT).is_ok_and(|text| text.trim() == "2")
}
