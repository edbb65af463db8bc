//! What the machine must be like.

use std::path::{Path, PathBuf};

use vramwise_types::Human;

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

/// What keeps device memory from holding values: the system refuses address space of this size, so that addresses are
/// all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strict {
    /// The kernel refuses address space that it could not back with memory.
    Overcommit,
    /// Processes may have this much address space, bytes.
    Limit(u64),
}

/// Address space that the emulated device takes: 2 TiB for each of 16 cards, and reservations beside them.
const ADDRESS_SPACE: u64 = 34 << 40;

/// Whether the system is strict about address space.
pub(crate) fn strict() -> Option<Strict> {
    let mode = std::fs::read_to_string(OVERCOMMIT).unwrap_or_default();
    judge(&mode, limit())
}

/// By what the kernel says of its mode, and the limit of address space where there is one.
fn judge(mode: &str, limit: Option<u64>) -> Option<Strict> {
    if mode.trim() == "2" {
        return Some(Strict::Overcommit);
    }
    limit.filter(|limit| *limit < ADDRESS_SPACE).map(Strict::Limit)
}

#[cfg(unix)]
fn limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

#[cfg(not(unix))]
fn limit() -> Option<u64> {
    None
}

impl Strict {
    /// What it is and what to do about it.
    pub(crate) fn advice(self) -> String {
        match self {
            Self::Overcommit => "the kernel refuses address space that memory does not back \
                (vm.overcommit_memory = 2): `sysctl vm.overcommit_memory=0` lets values be computed"
                .to_owned(),
            Self::Limit(bytes) => format!(
                "address space is limited to {} (ulimit -v), and an emulated GPU takes {} of it, none of which \
                 is memory: `ulimit -v unlimited` lets values be computed",
                Human(bytes),
                Human(ADDRESS_SPACE)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_overcommit_and_limits_are_told_with_what_to_do() {
        for mode in ["0\n", "1\n", ""] {
            assert_eq!(judge(mode, None), None, "{mode:?}");
            assert_eq!(judge(mode, Some(ADDRESS_SPACE)), None, "{mode:?}");
        }
        let strict = judge("2\n", Some(8 << 30)).expect("no such address space");
        assert_eq!(strict, Strict::Overcommit);
        assert!(strict.advice().contains("sysctl vm.overcommit_memory=0"));
        let limited = judge("0\n", Some(8 << 30)).expect("too little address space");
        assert_eq!(limited, Strict::Limit(8 << 30));
        let said = limited.advice();
        assert!(said.contains("8.00 GiB") && said.contains("ulimit -v unlimited"), "{said}");
    }
}
