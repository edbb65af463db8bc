//! What `vramwise rehearse` wrote for us: `emulator.json` in the folder that `VRAMWISE_REHEARSAL` names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The file's contents.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    pub(crate) profile: Profile,
    #[serde(default = "one")]
    pub(crate) devices: usize,
    /// Total memory of each device in bytes, instead of the profile's.
    pub(crate) memory_bytes: Option<u64>,
    /// Bytes of the context at most, instead of the profile's steps.
    pub(crate) context_bytes: Option<u64>,
    pub(crate) workspaces: Option<PathBuf>,
    #[serde(default)]
    pub(crate) values: Values,
    /// Version of the CUDA runtime that the program was built for, as "13.0".
    #[serde(default)]
    pub(crate) cuda: Option<String>,
}

/// A device profile, as far as the emulator needs it.
#[derive(Debug, Deserialize)]
pub(crate) struct Profile {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) total_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) compute_capability: Option<(i32, i32)>,
    /// (step, device bytes in use, bytes reserved by PyTorch): see `machine::context`.
    #[serde(default)]
    pub(crate) context_steps: Vec<(String, u64, u64)>,
    /// `cudaDeviceAttr` number → value.
    #[serde(default)]
    pub(crate) attributes: BTreeMap<String, i32>,
    /// The raw `cudaDeviceProp`: as text (CUDA 13's), or by CUDA major version.
    #[serde(default)]
    pub(crate) device_prop_hex: Option<PropHex>,
    /// cuDNN's own description of the device.
    #[serde(default)]
    pub(crate) cudnn_json: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum PropHex {
    Current(String),
    ByMajor(BTreeMap<String, Option<String>>),
}

impl PropHex {
    pub(crate) fn of_major(&self, major: u32) -> Option<&str> {
        match self {
            Self::Current(hex) => (major == 13).then_some(hex),
            Self::ByMajor(map) => map.get(&major.to_string())?.as_deref(),
        }
    }
}

/// What happens to values that the program reads back.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Values {
    #[serde(default)]
    pub(crate) mode: Mode,
    pub(crate) file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Copies give what memory holds.
    #[default]
    Off,
    /// Small copies to the host are logged.
    Learn,
    /// Small copies to the host are answered from the log.
    Answer,
}

fn one() -> usize {
    1
}

/// The rehearsal's folder.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os("VRAMWISE_REHEARSAL").map(PathBuf::from)
}

impl Config {
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join("emulator.json");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// What stands in where no rehearsal told anything: a small card that exists only by name.
    pub(crate) fn fallback() -> Self {
        Self {
            profile: Profile {
                name: "vramwise emulated device".to_owned(),
                total_bytes: None,
                compute_capability: None,
                context_steps: Vec::new(),
                attributes: BTreeMap::new(),
                device_prop_hex: None,
                cudnn_json: None,
            },
            devices: 1,
            memory_bytes: None,
            context_bytes: None,
            workspaces: None,
            values: Values::default(),
            cuda: None,
        }
    }
}
