//! Recordings and what the allocator counted in them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use serde_json::Value;
use vramwise_replay::{Recording, VerifyOptions, recorded_config};
use vramwise_trace::{DeviceTrace, ReadOptions, Snapshot};
use vramwise_types::TorchVersion;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/snapshots").join(name)
}

/// A recording of the repository.
pub(crate) struct Recorded {
    pub(crate) snapshot: Snapshot,
    stats: Value,
}

impl Recorded {
    pub(crate) fn named(name: &str) -> Self {
        let file = path(&format!("{name}.snapshot.pickle.gz"));
        let snapshot = vramwise_trace::read_path(&file, &ReadOptions::default()).unwrap();
        let file = std::fs::File::open(path(&format!("{name}.stats.json.gz"))).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        Self { snapshot, stats: serde_json::from_str(&text).unwrap() }
    }

    pub(crate) fn device(&self) -> &DeviceTrace {
        self.snapshot.devices.iter().find(|d| !d.events.is_empty()).unwrap()
    }

    /// The recorded settings and limit.
    pub(crate) fn options(&self) -> VerifyOptions {
        let version = TorchVersion::default();
        let (config, _) = recorded_config(self.snapshot.settings.as_ref(), version);
        let mut options = VerifyOptions::new(config, version);
        options.limit = self.stats["limit_bytes"].as_u64();
        options
    }

    pub(crate) fn verify(&self) -> Recording {
        Recording::verify(self.device(), &self.options())
    }

    /// What PyTorch counted, without the counters that a history cannot show (calls of `empty_cache`
    /// that returned nothing).
    pub(crate) fn counters(&self) -> BTreeMap<String, i64> {
        let all = self.stats["final"].as_object().unwrap();
        let known = |key: &str| key != "num_sync_all_streams" && key != "num_alloc_retries";
        all.iter()
            .filter(|(key, _)| known(key))
            .map(|(key, value)| (key.clone(), value.as_i64().unwrap()))
            .collect()
    }
}

/// Counters of the model, those of `like` only.
pub(crate) fn counters_like(
    stats: &vramwise_model::stats::Stats,
    like: &BTreeMap<String, i64>,
) -> BTreeMap<String, i64> {
    let all = stats.to_pairs(TorchVersion::default());
    all.into_iter().filter(|(key, _)| like.contains_key(key)).collect()
}

/// A snapshot from entries (action, address, size) on the default stream, without segments.
pub(crate) fn made(entries: &[(&str, u64, u64)]) -> Snapshot {
    let entries: Vec<String> = entries
        .iter()
        .map(|(action, addr, size)| {
            format!(r#"{{"action":"{action}","addr":{addr},"size":{size},"stream":0}}"#)
        })
        .collect();
    let text = format!(r#"{{"segments":[],"device_traces":[[{}]]}}"#, entries.join(","));
    vramwise_trace::read_slice(text.as_bytes(), &ReadOptions::default()).unwrap()
}

/// Verifies a made snapshot under PyTorch's defaults.
pub(crate) fn verify(snapshot: &Snapshot, limit: Option<u64>) -> Recording {
    let mut options = VerifyOptions::new(Default::default(), TorchVersion::default());
    options.limit = limit;
    Recording::verify(&snapshot.devices[0], &options)
}
