//! What the emulated device and the bootstrap write: the files of a session, read tolerantly.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::session::entries;

/// `device.<pid>.json`: the device's own view of one process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceReport {
    /// The process.
    pub pid: u32,
    /// Memory of each device.
    pub devices: Vec<DeviceMemory>,
    /// Calls by kind.
    pub calls: BTreeMap<String, u64>,
    /// Entry points without meaning that were called.
    pub unknown_calls: Vec<String>,
    /// Convolutions by whether their workspace was measured.
    pub convolutions: Convolutions,
    /// Communicators of NCCL's that were made, or would be on a GPU.
    pub communicators: u64,
    /// Whether device memory holds values; absent where the device was never used.
    pub backed: Option<bool>,
    /// Copies to the host.
    pub values: AnsweredValues,
    /// Shared objects of the process that are neither the system's nor PyTorch's.
    pub objects: Vec<PathBuf>,
    /// Other things to know.
    pub notes: Vec<String>,
}

/// Memory of one device.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceMemory {
    /// Bytes of the card.
    pub total_bytes: u64,
    /// Bytes of the context at the end.
    pub context_bytes: u64,
    /// Bytes in use at the end.
    pub used_bytes: u64,
    /// The most bytes in use.
    pub peak_bytes: u64,
}

/// Convolution plans.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Convolutions {
    /// Whose workspace is in the table.
    pub measured: u64,
    /// Whose workspace is what cuDNN says without a device.
    pub unmeasured: u64,
    /// Some of the latter.
    pub unmeasured_signatures: Vec<String>,
}

/// Copies to the host in the second pass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AnsweredValues {
    /// Answered from the log.
    pub answered: u64,
    /// Of these, the ones whose answers a real card gave.
    pub measured: u64,
    /// Beyond the log's end.
    pub unknown: u64,
    /// Too large to be carried: they gave zeros.
    pub large: u64,
    /// Of another size than the log has.
    pub mismatches: u64,
    /// Places in the log where numbers of lines do not follow one another.
    pub breaks: u64,
    /// Answers of the log that nothing asked for.
    pub unread: u64,
    /// The first of these, in words.
    pub details: Vec<String>,
}

/// `torch.<pid>.json`: PyTorch's own counters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TorchReport {
    /// The process.
    pub pid: u32,
    /// PyTorch's version.
    pub torch: String,
    /// CUDA's version.
    pub cuda: Option<String>,
    /// cuDNN's version.
    pub cudnn: Option<u64>,
    /// `memory_stats()` of each device.
    pub devices: Vec<BTreeMap<String, serde_json::Value>>,
    /// The first request that found no memory.
    pub oom: Option<OutOfMemory>,
    /// Optimizer steps, where they were counted.
    pub steps: Option<u64>,
    /// Other things to know.
    pub notes: Vec<String>,
    /// The snapshot of this process.
    #[serde(skip)]
    pub snapshot: Option<PathBuf>,
}

impl TorchReport {
    /// A counter of a device; 0 where it is missing.
    pub fn counter(&self, device: usize, name: &str) -> u64 {
        let value = self.devices.get(device).and_then(|stats| stats.get(name));
        value.and_then(serde_json::Value::as_u64).unwrap_or(0)
    }
}

/// A request that found no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OutOfMemory {
    /// The device.
    pub device: u32,
    /// Bytes asked of the device.
    pub tried_bytes: u64,
    /// Bytes of the card.
    pub total_bytes: u64,
    /// Bytes that were free on it.
    pub free_bytes: u64,
    /// Bytes that PyTorch's blocks held.
    pub allocated_bytes: u64,
    /// Bytes that PyTorch held.
    pub reserved_bytes: u64,
    /// How many such requests there were.
    pub count: u64,
}

/// `values.<pid>.json`: what the program read from the device in the first pass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ValuesReport {
    /// Numbers by how sure they are.
    pub reads: Vec<Read>,
    /// Where those were read that are not sure.
    pub places: Vec<Place>,
}

/// A number of reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Read {
    /// `known`, `assumed` or `unknown`.
    pub how: String,
    /// `integer` or `float`.
    pub kind: String,
    /// How many.
    pub count: u64,
}

/// A line that reads what is not sure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Place {
    /// `assumed` or `unknown`.
    pub how: String,
    /// `integer` or `float`.
    pub kind: String,
    /// PyTorch's operation.
    pub operation: String,
    /// File and line of the program.
    pub place: String,
}

/// All reports `PREFIX.<pid>.json` in a directory, by file name.
pub(crate) fn read_all<T: DeserializeOwned>(directory: &Path, prefix: &str) -> Vec<(PathBuf, T)> {
    let named = |name: &str| {
        let pid = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(".json"));
        pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
    };
    entries(directory)
        .into_iter()
        .filter(|(name, _)| named(name))
        .filter_map(|(_, path)| {
            let text = fs::read(&path).ok()?;
            Some((path, serde_json::from_slice(&text).ok()?))
        })
        .collect()
}

/// PyTorch's counters of every process, each with its snapshot.
pub(crate) fn torch_reports(directory: &Path) -> Vec<TorchReport> {
    read_all::<TorchReport>(directory, "torch.")
        .into_iter()
        .map(|(_, report)| {
            let path = directory.join(format!("snapshot.{}.pickle", report.pid));
            TorchReport { snapshot: Some(path).filter(|path| path.is_file()), ..report }
        })
        .collect()
}
