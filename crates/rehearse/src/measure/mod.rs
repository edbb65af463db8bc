//! Measuring a real card: its profile, and a table of the workspaces that cuDNN asks for on it.
//!
//! Programs of Python do it on the PyTorch that is installed (`crates/probe/python`); here they are started, watched, and
//! what they wrote becomes the files that a rehearsal reads. On an emulated device the same happens, and the profile
//! that comes out is the one that went in: it is called what it is.

mod programs;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use vramwise_profile::{Card, DevicePropHex};
use vramwise_workspaces::records::Records;
use vramwise_workspaces::{Facts, Table, shipped};

use self::programs::{Room, last_line};
use crate::error::RehearsalError;
use crate::python::{self, Torch};
use crate::{libraries, session};

pub use self::values::{ReadValues, Watched, watch};

/// Memory that one of the measuring processes may take, GiB.
const GIB_EACH: u32 = 7;
/// Beyond its own limit, the program that measures sizes has this long to end.
const SLACK: Duration = Duration::from_secs(120);

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// The Python that has PyTorch.
    pub python: PathBuf,
    /// Short name of the card; made of its own name where there is none.
    pub id: Option<String>,
    /// Few sizes and few layers.
    pub quick: bool,
    /// Seconds that may be spent on workspaces.
    pub seconds: u64,
    /// Processes that measure workspaces at a time.
    pub workers: u32,
    /// Layers to measure, as `layers.py` lists them, instead of its own list.
    pub jobs: Option<PathBuf>,
}

/// How far a measurement is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub doing: String,
    /// Jobs that are done, where they are counted.
    pub done: u64,
    /// All jobs; 0 where they are not counted.
    pub all: u64,
}

/// A card that was measured.
#[derive(Clone, Debug)]
pub struct MeasuredCard {
    /// The profile.
    pub card: Card,
    /// The PyTorch that measured.
    pub torch: Torch,
    /// cuDNN's version as a number, such as 91900.
    pub cudnn: Option<u32>,
    /// Whether the device was an emulated one.
    pub emulated: bool,
    /// What makes figures doubtful.
    pub warnings: Vec<String>,
}

/// A table of workspaces.
#[derive(Clone, Debug)]
pub struct MeasuredTable {
    /// The file's content.
    pub bytes: Vec<u8>,
    /// What it has.
    pub entries: usize,
    /// Entries that the table which comes with vramwise has, too, and those of them that are the same there; `None` where
    /// there is no such table for this card and cuDNN.
    pub shipped: Option<(usize, usize)>,
    /// Graphs of which nothing can be said.
    pub unclear: u64,
    /// Jobs that were listed, and those that were begun.
    pub jobs: (u64, u64),
    /// Jobs that failed, and the first reason.
    pub failed: (u64, Option<String>),
}

/// What `device.py` writes where it fails.
#[derive(Deserialize)]
struct Failed {
    error: String,
    text: String,
}

/// What it writes else.
#[derive(Deserialize)]
struct Found {
    name: String,
    total_bytes: u64,
    compute_capability: (u32, u32),
    multiprocessors: u32,
    l2_bytes: u64,
    attributes: BTreeMap<u32, i64>,
    device_prop_hex: BTreeMap<String, Option<String>>,
    others: Option<u64>,
    emulated: bool,
    driver: Option<u32>,
    cudnn: Option<u32>,
    cudnn_json: Option<String>,
    call_costs_us: Vec<(String, u64, f64)>,
    context_steps: Vec<(String, u64, u64)>,
}

impl Measuring {
    /// Asks the device for its profile.
    ///
    /// # Errors
    /// [`RehearsalError`] where there is no PyTorch or no device, or the measurement failed.
    pub fn card(&self, told: &mut dyn FnMut(&Progress)) -> Result<MeasuredCard, RehearsalError> {
        let torch = python::torch(&[self.python.display().to_string()], Some(&self.python))?;
        let room = Room::new()?;
        let out = room.path("device.json");
        let mut arguments = vec![out.display().to_string()];
        arguments.extend(self.quick.then(|| "--quick".to_owned()));
        let log = room.run(&self.python, "device.py", &arguments, None, &mut |line| {
            told(&Progress { doing: line.to_owned(), done: 0, all: 0 });
        })?;
        let text = fs::read(&out).map_err(|_| RehearsalError::Measurement(last_line(&log)))?;
        if let Ok(Failed { error, text }) = serde_json::from_slice(&text) {
            return Err(match error.as_str() {
                "gpu" => RehearsalError::NoGpu(text),
                _ => RehearsalError::Measurement(text),
            });
        }
        let found: Found = serde_json::from_slice(&text)
            .map_err(|error| RehearsalError::Measurement(error.to_string()))?;
        let warnings = doubts(&found);
        let (cudnn, emulated) = (found.cudnn, found.emulated);
        Ok(MeasuredCard { card: self.profile(found, &torch), torch, cudnn, emulated, warnings })
    }

    fn profile(&self, found: Found, torch: &Torch) -> Card {
        let attribute = |number: u32| found.attributes.get(&number).copied().unwrap_or(0);
        let figure = |number: u32| u32::try_from(attribute(number)).unwrap_or(0);
        let how = if found.emulated { "written from an emulated" } else { "measured on an" };
        let version = |number: u32| format!("{}.{}", number / 1000, number % 1000 / 10);
        let mut prop = found.device_prop_hex;
        Card {
            schema: 1,
            id: self.id.clone().unwrap_or_else(|| id_of(&found.name)),
            aliases: Vec::new(),
            measured: !found.emulated,
            source: format!(
                "{how} {}: driver for CUDA {}, PyTorch {}, CUDA {}, cuDNN {}; attributes, cudaDeviceProp, \
                 cuDNN's description, and the device's used bytes step by step",
                found.name,
                found.driver.map_or("(unknown)".to_owned(), version),
                torch.version,
                torch.cuda,
                found.cudnn.map_or("(none)".to_owned(), |n| n.to_string()),
            ),
            total_bytes: found.total_bytes,
            compute_capability: found.compute_capability,
            multiprocessors: found.multiprocessors,
            clock_khz: figure(13),
            memory_clock_khz: figure(36),
            memory_bus_bits: figure(37),
            l2_bytes: found.l2_bytes,
            ecc: attribute(32) != 0,
            context_bytes: found.context_steps.first().map(|(_, used, _)| *used),
            context_steps: found.context_steps,
            attributes: found.attributes,
            device_prop_hex: DevicePropHex {
                cuda13: prop.remove("13").flatten(),
                cuda12: prop.remove("12").flatten(),
            },
            cudnn_json: found.cudnn_json,
            call_costs_us: found.call_costs_us,
            name: found.name,
        }
    }

    /// Has cuDNN asked for its workspaces on the device.
    ///
    /// # Errors
    /// As [`Measuring::card`].
    pub fn table(
        &self,
        card: &MeasuredCard,
        told: &mut dyn FnMut(&Progress),
    ) -> Result<MeasuredTable, RehearsalError> {
        let probe = libraries::probe()?;
        let room = Room::new()?;
        let jobs = self.jobs(&room, told)?;
        let all = self.count(&room, &jobs)?;
        let parts = room.path("parts");
        let arguments = [
            "run".to_owned(),
            jobs.display().to_string(),
            "--out".to_owned(),
            parts.display().to_string(),
            "--interposer".to_owned(),
            probe.display().to_string(),
            "--workers".to_owned(),
            self.workers.to_string(),
            "--seconds".to_owned(),
            self.seconds.to_string(),
            "--gib".to_owned(),
            self.room_each(card).to_string(),
            "--every".to_owned(),
            "1".to_owned(),
        ];
        let limit = Duration::from_secs(self.seconds) + SLACK;
        let mut begun = 0;
        let log = room.run(&self.python, "sizes.py", &arguments, Some(limit), &mut |line| {
            begun = begun_of(line).map_or(begun, |n| n.min(all));
            told(&Progress { doing: "workspaces of layers".to_owned(), done: begun, all });
        })?;
        let mut records = Records::default();
        let mut failed = (0, None);
        for (name, path) in session::entries(&parts) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            if name.starts_with("part-") {
                for (number, line) in whole_lines(&text).enumerate() {
                    records.add(line).map_err(|error| {
                        RehearsalError::Measurement(format!("{name}, line {}: {error}", number + 1))
                    })?;
                }
            } else if name.starts_with("log-") {
                for line in text.lines() {
                    if let Some(why) = reason(line) {
                        failed.0 += 1;
                        failed.1.get_or_insert_with(|| why.to_owned());
                    }
                }
            }
        }
        let unclear = records.unclear();
        let facts = Facts {
            gpu: card.card.name.clone(),
            cudnn: card.cudnn.unwrap_or(0),
            torch: card.torch.version.clone(),
        };
        let wrong = |error: &dyn std::fmt::Display| RehearsalError::Measurement(error.to_string());
        let built_in = shipped::for_card(&facts.gpu, facts.cudnn)
            .filter(|shipped| shipped.cudnn == facts.cudnn)
            .and_then(|shipped| Table::from_bytes(shipped.bytes).ok());
        let shipped = built_in.map(|built_in| records.compared_with(&built_in));
        let bytes = records.into_table().to_bytes(&facts).map_err(|error| wrong(&error))?;
        let entries = Table::from_bytes(&bytes).map_err(|error| wrong(&error))?.len();
        if entries == 0 {
            let why = failed.1.unwrap_or_else(|| self.complaint(&parts, &log));
            return Err(RehearsalError::Measurement(format!("no layer ran: {why}")));
        }
        Ok(MeasuredTable { bytes, entries, shipped, unclear, jobs: (all, begun), failed })
    }

    /// The list of layers: the caller's, or that of well-known models.
    fn jobs(
        &self,
        room: &Room,
        told: &mut dyn FnMut(&Progress),
    ) -> Result<PathBuf, RehearsalError> {
        if let Some(given) = &self.jobs {
            let found = fs::canonicalize(given);
            return found.map_err(|error| RehearsalError::io("read", given, error));
        }
        let path = room.path("jobs.jsonl.gz");
        let mut arguments = vec![path.display().to_string()];
        arguments.extend(self.quick.then(|| "--quick".to_owned()));
        let log = room.run(&self.python, "layers.py", &arguments, None, &mut |_| {
            told(&Progress { doing: "listing layers of models".to_owned(), done: 0, all: 0 });
        })?;
        if path.is_file() { Ok(path) } else { Err(RehearsalError::Measurement(last_line(&log))) }
    }

    /// The number of jobs in a list.
    fn count(&self, room: &Room, jobs: &Path) -> Result<u64, RehearsalError> {
        let question = "import gzip, sys; print(sum(1 for _ in gzip.open(sys.argv[1], 'rt')))";
        let output = Command::new(&self.python)
            .args(["-c", question])
            .arg(jobs)
            .current_dir(room.directory())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| RehearsalError::io("run", &self.python, error))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let number = said.trim().lines().last().and_then(|line| line.parse().ok());
        number.filter(|n| *n > 0).ok_or_else(|| {
            RehearsalError::Measurement(format!("{} lists no layers", jobs.display()))
        })
    }

    /// GiB that each of the processes may take, so that all of them fit.
    fn room_each(&self, card: &MeasuredCard) -> u32 {
        let gib = u32::try_from(card.card.total_bytes >> 30).unwrap_or(u32::MAX);
        // A context takes up to one GiB besides.
        (gib / self.workers.max(1)).saturating_sub(1).clamp(1, GIB_EACH)
    }

    /// What the processes that measured sizes said before they ended.
    fn complaint(&self, parts: &Path, log: &str) -> String {
        let errors =
            session::entries(parts).into_iter().filter(|(name, _)| name.starts_with("err-"));
        let said = errors.map(|(_, path)| fs::read_to_string(path).unwrap_or_default());
        said.map(|text| last_line(&text))
            .find(|line| !line.is_empty())
            .unwrap_or_else(|| last_line(log))
    }
}

/// What makes the figures of a card doubtful.
fn doubts(found: &Found) -> Vec<String> {
    let mut doubts = Vec::new();
    match found.others {
        Some(0) => {}
        Some(others) => doubts.push(format!(
            "{others} other processes use this GPU: their memory is counted in that of the context; measure \
             again when it is idle"
        )),
        None => doubts.push(
            "whether other processes use this GPU is not known: their memory would be counted in that of the \
             context"
                .to_owned(),
        ),
    }
    if found.cudnn_json.is_none() {
        doubts.push(
            "cuDNN does not describe the device (9.8 and later do): without a table, convolutions are not \
             exact"
                .to_owned(),
        );
    }
    doubts
}

/// A short name: `NVIDIA GeForce RTX 4090` is `rtx4090`.
fn id_of(name: &str) -> String {
    let words: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .filter(|word| !word.is_empty() && word != "nvidia" && word != "geforce" && word != "tesla")
        .collect();
    let mut id = String::new();
    for word in words {
        // A number belongs to the letters before it.
        let joined = id.ends_with(|c: char| c.is_ascii_alphabetic())
            && word.starts_with(|c: char| c.is_ascii_digit())
            || id.is_empty();
        if !joined {
            id.push('-');
        }
        id.push_str(&word);
    }
    if id.is_empty() { "card".to_owned() } else { id }
}

/// How far a line of progress such as `12 s: at 340, 0 restarts` is.
fn begun_of(line: &str) -> Option<u64> {
    line.split_once(" s: at ")?.1.split(',').next()?.trim().parse().ok()
}

/// Why a job failed, from its line in a log: its number, its seconds, what was wrong. Layers too large for the card's
/// memory were not tried.
fn reason(line: &str) -> Option<&str> {
    let why = line.splitn(3, ' ').nth(2)?.trim();
    (!why.is_empty() && why != "large" && why != "memory").then_some(why)
}

/// The lines of a file that may have been cut short.
fn whole_lines(text: &str) -> impl Iterator<Item = &str> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_called_by_what_is_peculiar_to_its_name() {
        for (name, id) in [
            ("NVIDIA H200", "h200"),
            ("NVIDIA GeForce RTX 4090", "rtx4090"),
            ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
            ("Tesla T4", "t4"),
            ("NVIDIA GeForce RTX 4060 Ti", "rtx4060-ti"),
            ("???", "card"),
        ] {
            assert_eq!(id_of(name), id, "{name}");
        }
    }

    #[test]
    fn progress_and_failures_are_read_from_what_the_programs_print() {
        assert_eq!(begun_of("12 s: at 340, 0 restarts"), Some(340));
        assert_eq!(begun_of("Traceback (most recent call last):"), None);
        assert_eq!(reason("17 0.031 "), None);
        assert_eq!(reason("17 0.031 large"), None);
        assert_eq!(reason("17 0.031 RuntimeError('no')"), Some("RuntimeError('no')"));
        let lines: Vec<&str> = whole_lines("{}\n{}\n{\"key\"").collect();
        assert_eq!(lines, ["{}", "{}"]);
    }
}
