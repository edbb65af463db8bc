//! The file format of a profile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a profile file says. Everything after `l2_bytes` may be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Version of the format: 1.
    pub schema: u32,
    /// Short name, as in `--gpu`.
    pub id: String,
    /// Other names for it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The name that the driver gives.
    pub name: String,
    /// Whether the figures were read from a real card.
    #[serde(default)]
    pub measured: bool,
    /// Where the figures come from, in words.
    #[serde(default)]
    pub source: String,
    /// Bytes of memory, as the driver reports them.
    pub total_bytes: u64,
    /// Compute capability: major, minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Boost clock in kHz.
    pub clock_khz: u32,
    /// Memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// Whether memory has error correction switched on.
    #[serde(default)]
    pub ecc: bool,
    /// Bytes that the device has in use after the context was made; estimated where it is left out.
    #[serde(default)]
    pub context_bytes: Option<u64>,
    /// (what was done, bytes in use on the device, bytes reserved by PyTorch), in order.
    #[serde(default)]
    pub context_steps: Vec<(String, u64, u64)>,
    /// Values of `cudaDeviceAttr` by number; they win over those of the table.
    #[serde(default)]
    pub attributes: BTreeMap<u32, i64>,
    /// The bytes of `cudaDeviceProp`, where they are known.
    #[serde(default)]
    pub device_prop_hex: DevicePropHex,
    /// The JSON by which cuDNN describes the device.
    #[serde(default)]
    pub cudnn_json: Option<String>,
    /// What calls of the driver cost: (function, MiB, microseconds), medians. Nothing is computed from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub call_costs_us: Vec<(String, u64, f64)>,
}

/// `cudaDeviceProp` in hexadecimal, by CUDA's major version; `None` = to be built from the attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePropHex {
    /// As CUDA 13 lays it out.
    #[serde(rename = "13", default)]
    pub cuda13: Option<String>,
    /// As CUDA 12 lays it out.
    #[serde(rename = "12", default)]
    pub cuda12: Option<String>,
}
