//! What mutations begin with: small good files, and the attack files of the tests.

use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::LONGEST;

/// Good and bad files to begin with.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// Pickles.
    pub pickles: Vec<Vec<u8>>,
    /// JSON snapshots.
    pub jsons: Vec<Vec<u8>>,
    /// Compressed files of either kind.
    pub compressed: Vec<Vec<u8>>,
    /// Lines of logs.
    pub logs: Vec<String>,
}

/// A snapshot in JSON with something of everything.
const JSON: &str = r#"{"segments": [{"device": 0, "address": 140000000000000, "total_size": 2097152,
"allocated_size": 512, "active_size": 512, "requested_size": 10, "stream": 0, "segment_type": "small",
"segment_pool_id": [0, 0], "is_expandable": false, "frames": [], "blocks": [
{"address": 140000000000000, "size": 512, "requested_size": 10, "state": "active_allocated",
"frames": [{"name": "f", "filename": "a.py", "line": 3}]},
{"address": 140000000000512, "size": 2096640, "requested_size": 0, "state": "inactive", "frames": []}]}],
"device_traces": [[
{"action": "segment_alloc", "addr": 140000000000000, "size": 2097152, "stream": 0, "time_us": 1},
{"action": "alloc", "addr": 140000000000000, "size": 10, "stream": 0, "time_us": 2,
"frames": [{"name": "f", "filename": "a.py", "line": 3}]},
{"action": "oom", "device_free": 5, "size": 20971520, "stream": 0, "time_us": 3}], []],
"allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "max_split_size": 67108864,
"garbage_collection_threshold": 0.5, "expandable_segments": false,
"roundup_power2_divisions": {"1": 0, "2": 4}},
"external_annotations": [{"name": "step", "stage": "START", "device": 0, "time_us": 1}]}"#;

/// Out-of-memory errors of two ages, and what stands around them.
const LOG: &str = "\
RuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 600.00 MiB. GPU 1 has a total capacity of 79.11 GiB of which 122.00 MiB is free. Process 77 has 9.00 GiB memory in use. Including non-PyTorch memory, this process has 69.00 GiB memory in use. 70.00 GiB allowed; Of the allocated memory 60.00 GiB is allocated by PyTorch, with 1.00 GiB allocated in private pools (e.g., CUDA Graphs), and 7.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.
  File \"train.py\", line 12, in step
epoch 3: 45%|####      | 450/1000 [00:10<00:12, 41.00it/s, loss=0.3]
";

impl Corpus {
    /// Only what is made on the spot.
    pub fn generated() -> Self {
        let pickles: Vec<Vec<u8>> = [(1, 8), (2, 200)].into_iter().map(snapshot).collect();
        let jsons = vec![JSON.as_bytes().to_vec(), b"[]".to_vec(), b"{}".to_vec()];
        let compressed = pickles.iter().chain(&jsons[..1]).map(|file| gzip(file)).collect();
        let logs = LOG.lines().map(str::to_owned).collect();
        Self { pickles, jsons, compressed, logs }
    }

    /// The generated files and every small one under a directory.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub fn with_files(directory: &Path) -> Result<Self> {
        let mut corpus = Self::generated();
        let mut paths = Vec::new();
        list(directory, &mut paths)?;
        paths.sort();
        for path in paths {
            let file =
                std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if path.extension().is_some_and(|e| e == "jsonl" || e == "log") {
                corpus.enter_lines(&file);
            } else {
                corpus.enter(file);
            }
        }
        Ok(corpus)
    }

    /// Enters a file where it belongs, by its first bytes.
    fn enter(&mut self, file: Vec<u8>) {
        if file.starts_with(&[0x1f, 0x8b]) {
            let mut content = Vec::new();
            // A damaged file still gives what comes before the damage.
            let _ = MultiGzDecoder::new(&*file).take(LONGEST as u64 + 1).read_to_end(&mut content);
            if content.len() <= LONGEST && !content.starts_with(&[0x1f, 0x8b]) {
                self.enter(content);
            }
            if file.len() <= LONGEST {
                self.compressed.push(file);
            }
        } else if file.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            if file.len() <= LONGEST {
                self.compressed.push(file);
            }
        } else if file.len() <= LONGEST {
            let is_text = file.trim_ascii_start().first().is_some_and(|b| matches!(b, b'{' | b'['));
            // `[` does not occur as a pickle's first byte, `{` neither.
            if is_text { self.jsons.push(file) } else { self.pickles.push(file) }
        }
    }

    /// Enters every line of a text.
    fn enter_lines(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        self.logs.extend(text.lines().filter(|line| line.len() <= LONGEST).map(str::to_owned));
    }
}

/// The snapshot of a short training run: (seed, entries).
fn snapshot((seed, events): (u64, usize)) -> Vec<u8> {
    let run = vramwise_testkit::training::run(seed, events);
    let mut pickle = Vec::new();
    vramwise_testkit::snapshot::write(&run, &mut pickle).expect("memory takes every write");
    pickle
}

fn gzip(file: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(file).expect("memory takes every write");
    encoder.finish().expect("memory takes every write")
}

/// Every file under a directory, if it exists.
fn list(directory: &Path, paths: &mut Vec<std::path::PathBuf>) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { list(&path, paths)? } else { paths.push(path) }
    }
    Ok(())
}
