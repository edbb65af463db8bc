//! What stops a rehearsal before the program runs: what, and what to do.

use std::io;
use std::path::PathBuf;

/// A rehearsal that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// Not Linux on x86-64 or aarch64.
    #[error("a rehearsal needs PyTorch's CUDA build, which there is for Linux only; this is {0}")]
    System(&'static str),
    /// A real GPU is there.
    #[error("this machine has a GPU of its own ({0}), and an emulated one would take its place")]
    RealGpu(PathBuf),
    /// The first word of the command is no program.
    #[error("there is no program '{0}'")]
    NoProgram(String),
    /// No Python was found in the command.
    #[error("no Python interpreter was found in the command '{0}'")]
    NoPython(String),
    /// The interpreter did not answer.
    #[error("{}: the interpreter does not work: {reason}", path.display())]
    BrokenPython {
        /// The interpreter.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// The interpreter has no PyTorch.
    #[error("{}: this Python has no PyTorch", .0.display())]
    NoTorch(PathBuf),
    /// PyTorch without CUDA.
    #[error("PyTorch {version} in {} is a build without CUDA", path.display())]
    CpuTorch {
        /// Where it lies.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// CUDA older or newer than what is emulated.
    #[error("PyTorch {version} was built for CUDA {cuda}; CUDA 12 and 13 are emulated")]
    OtherCuda {
        /// PyTorch's version.
        version: String,
        /// CUDA's version.
        cuda: String,
    },
    /// The emulated device's files are missing.
    #[error("the emulated device ({name}) was not found; looked in {}", list(places))]
    NoEmulator {
        /// The file.
        name: &'static str,
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// The library that watches cuDNN is missing.
    #[error("the library that watches cuDNN ({name}) was not found; looked in {}", list(places))]
    NoProbe {
        /// The file.
        name: &'static str,
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// PyTorch finds no GPU to measure.
    #[error("PyTorch finds no GPU: {0}")]
    NoGpu(String),
    /// A part of a measurement failed.
    #[error("the measurement failed: {0}")]
    Measurement(String),
    /// It was asked to stop.
    #[error("the measurement was interrupted; nothing was written")]
    Interrupted,
    /// The directory for the session holds something else.
    #[error("{} is not empty", .0.display())]
    Occupied(PathBuf),
    /// A log of values has no line that can be understood; what is wrong with the first.
    #[error("{} is no log of values: {complaint}", path.display())]
    NoValues {
        /// The file.
        path: PathBuf,
        /// What is wrong with its first line.
        complaint: String,
    },
    /// A file could not be written or read.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl RehearsalError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>, error: io::Error) -> Self {
        Self::Io { doing, path: path.into(), error }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::System(_) => "run it in a Linux container or virtual machine",
            Self::RealGpu(_) => {
                "run the program on it and record a snapshot; with --emulate-anyway the program sees \
                 only the emulated one"
            }
            Self::NoProgram(_) => "write the command as you would in a shell, after --",
            Self::NoPython(_) => "name the interpreter with --python",
            Self::BrokenPython { .. } => "does the command itself work?",
            Self::NoTorch(_) => {
                "activate the environment that the program runs in, or name its interpreter, in the \
                 command or with --python"
            }
            Self::CpuTorch { .. } => {
                "install PyTorch's CUDA build (the default of `pip install torch` on Linux); it needs \
                 no GPU to be installed"
            }
            Self::OtherCuda { .. } => "install a PyTorch that was built for CUDA 12 or 13",
            Self::NoEmulator { .. } => {
                "build it with `cargo build --release -p vramwise-emulator -p vramwise-nvrtc`, or set \
                 VRAMWISE_LIB_DIR to the directory that has it"
            }
            Self::NoProbe { .. } => {
                "build it with `cargo build --release -p vramwise-probe`, or set VRAMWISE_LIB_DIR to the \
                 directory that has it; --no-workspaces measures the rest without it"
            }
            Self::NoGpu(_) => {
                "run it on the machine that has the card; does `nvidia-smi` list it, and CUDA_VISIBLE_DEVICES \
                 allow it?"
            }
            Self::Measurement(_) => "does a small PyTorch program run on this card?",
            Self::Occupied(_) => {
                "choose an empty directory, or -f to replace an older rehearsal in it"
            }
            Self::NoValues { .. } => {
                "--values takes a values.jsonl of an earlier rehearsal (-o), or of `vramwise probe --values` on a GPU"
            }
            Self::Io { .. } | Self::Interrupted => return None,
        })
    }
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}
