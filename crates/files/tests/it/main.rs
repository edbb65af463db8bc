//! Redacting, slicing and converting recordings of real programs, and made-up ones.

#![allow(clippy::unwrap_used)] // what cannot go on has failed

mod convert;
mod redact;
mod slice;

use std::path::{Path, PathBuf};

use vramwise_replay::{VerifyOptions, recorded_config};
use vramwise_trace::{ReadOptions, Snapshot, read_path, read_slice};

/// A recording of `testdata/snapshots`.
fn recording(name: &str) -> Snapshot {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/snapshots");
    let path: PathBuf = folder.join(format!("{name}.snapshot.pickle.gz"));
    read_path(&path, &ReadOptions::default()).unwrap()
}

/// The recorded settings.
fn options(snapshot: &Snapshot) -> VerifyOptions {
    let version = snapshot.version_guess.unwrap_or_default();
    let (config, _) = recorded_config(snapshot.settings.as_ref(), version);
    VerifyOptions::new(config, version)
}

fn pickled(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    vramwise_trace::write_pickle(snapshot, &mut bytes).unwrap();
    bytes
}

/// Written and read again.
fn through_a_file(snapshot: &Snapshot) -> Snapshot {
    read_slice(&pickled(snapshot), &ReadOptions::default()).unwrap()
}
