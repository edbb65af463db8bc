//! The parsers under test, each with the properties that hold for every input.

use std::fmt;
use std::str::FromStr;

use vramwise_model::settings::{self, Config};
use vramwise_model::stats::Family;
use vramwise_pickle::Limits;
use vramwise_replay::{Conditions, Recording, VerifyOptions, recorded_config, what_if};
use vramwise_trace::{DeviceTrace, ReadOptions, Snapshot, StackId};
use vramwise_types::{TorchVersion, parse_size};

/// A parser under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The pickle reader alone.
    Pickle,
    /// Snapshots: pickle, JSON, compressed or not.
    Trace,
    /// Snapshots that are read are replayed: verified, and under other conditions.
    Replay,
    /// Settings strings, sizes and versions.
    Settings,
    /// Logs with out-of-memory errors in them.
    Logs,
    /// The allocator's model: a seed of random operations, against the reference.
    Model,
}

impl Target {
    /// All targets.
    pub const ALL: [Target; 6] = [
        Target::Pickle,
        Target::Trace,
        Target::Replay,
        Target::Settings,
        Target::Logs,
        Target::Model,
    ];

    /// The target's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Target::Pickle => "pickle",
            Target::Trace => "trace",
            Target::Replay => "replay",
            Target::Settings => "settings",
            Target::Logs => "logs",
            Target::Model => "model",
        }
    }

    /// Whether one input is a whole replay or simulation, rather than microseconds of parsing.
    pub fn is_slow(self) -> bool {
        matches!(self, Target::Replay | Target::Model)
    }

    /// Feeds one input.
    ///
    /// # Panics
    /// If a property does not hold: that is the finding.
    pub fn run(self, input: &[u8]) {
        match self {
            Target::Pickle => pickle(input),
            Target::Trace => trace(input),
            Target::Replay => replay(input),
            Target::Settings => settings(input),
            Target::Logs => logs(input),
            Target::Model => model(input),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|target| target.name() == name);
        found.ok_or_else(|| format!("no target '{name}'; the targets are {}", known()))
    }
}

/// Reading from memory and from a stream agree, and an error lies inside the input.
fn pickle(input: &[u8]) {
    let limits = Limits::default();
    let whole = vramwise_pickle::read_slice(input, &limits);
    let mut sink = vramwise_pickle::NoSink;
    let streamed = vramwise_pickle::Reader::new(&limits, &mut sink).read(Trickle(input));
    match (whole, streamed) {
        (Ok(whole), Ok(streamed)) => {
            assert!(whole.bytes <= input.len() as u64, "the pickle is longer than the input");
            assert_eq!(whole.bytes, streamed.bytes);
            assert_eq!(whole.protocol, streamed.protocol);
        }
        (Err(whole), Err(streamed)) => {
            assert!(whole.offset <= input.len() as u64, "{whole} lies outside the input");
            // How much is missing of a line without end depends on how much was seen of it.
            let kind = |e: &vramwise_pickle::Error| std::mem::discriminant(&e.kind);
            assert_eq!(whole.offset, streamed.offset, "{whole} / {streamed}");
            assert_eq!(kind(&whole), kind(&streamed), "{whole} / {streamed}");
        }
        (whole, streamed) => {
            let (whole, streamed) = (whole.is_ok(), streamed.is_ok());
            panic!("read from memory: {whole}, from a stream: {streamed}");
        }
    }
}

/// A stream that gives a few bytes at a time.
struct Trickle<'a>(&'a [u8]);

impl std::io::Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let few = buffer.len().min(7);
        self.0.read(&mut buffer[..few])
    }
}

/// Whether an input is read as a snapshot.
pub fn reads(input: &[u8]) -> bool {
    vramwise_trace::read_slice(input, &ReadOptions::default()).is_ok()
}

/// A snapshot that is read is consistent, and so is what is saved of a damaged one.
fn trace(input: &[u8]) {
    for salvage in [false, true] {
        let options = ReadOptions { salvage, ..ReadOptions::default() };
        match vramwise_trace::read_slice(input, &options) {
            Ok(snapshot) => consistent(&snapshot),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn consistent(snapshot: &Snapshot) {
    let stack = |id: StackId| {
        for frame in snapshot.stacks.stack(id) {
            let frame = snapshot.stacks.frame(*frame);
            let _ = (snapshot.strings.get(frame.name), snapshot.strings.get(frame.filename));
        }
    };
    for device in &snapshot.devices {
        let events = &device.events;
        let n = events.len();
        for (column, len) in [
            ("addr", events.addr.len()),
            ("size", events.size.len()),
            ("stream", events.stream.len()),
        ] {
            assert_eq!(len, n, "column {column}");
        }
        assert!([0, n].contains(&events.time_us.len()) && [0, n].contains(&events.stack.len()));
        for i in 0..n {
            let _ = events.stream_handle(i);
            stack(events.stack_of(i));
        }
        for segment in &device.segments {
            let blocks = &device.blocks[segment.blocks.start as usize..segment.blocks.end as usize];
            stack(segment.stack);
            blocks.iter().for_each(|block| stack(block.stack));
        }
    }
}

/// Whatever a snapshot claims, its replay ends and says something.
fn replay(input: &[u8]) {
    let Ok(snapshot) = vramwise_trace::read_slice(input, &ReadOptions::default()) else { return };
    let version = snapshot.version_guess.unwrap_or_default();
    let (config, _) = recorded_config(snapshot.settings.as_ref(), version);
    let mut devices: Vec<_> =
        snapshot.devices.into_iter().filter(|d| !d.events.is_empty()).collect();
    // The same as if vramwise's allocator had made it, of which only the requests are taken.
    devices.extend(
        devices
            .clone()
            .into_iter()
            .map(|device| DeviceTrace { drop_in: !device.drop_in, ..device }),
    );
    for device in &devices {
        let recording = Recording::verify(device, &VerifyOptions::new(config.clone(), version));
        assert!(recording.agreement.allocs.exact <= recording.agreement.allocs.recorded);
        if let Some(divergence) = &recording.first_divergence {
            assert!(divergence.event < device.events.len() && !divergence.why.is_empty());
        }
        let expandable = Config { expandable_segments: true, ..Config::default() };
        let mut conditions = Conditions::new(expandable, version);
        let free = what_if(&recording.program, &recording.calls, &conditions);
        conditions.config = Config { garbage_collection_threshold: 0.5, ..Config::default() };
        conditions.limit = u64::try_from(free.stats.all(Family::ReservedBytes).peak / 2).ok();
        what_if(&recording.program, &recording.calls, &conditions);
    }
}

/// Every error that is found lies in the log and has a cause and a reason.
fn logs(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let report = vramwise_analyze::oom::explain_log(&text);
    for explanation in &report.explanations {
        assert!((0.0..=1.0).contains(&explanation.confidence), "{explanation:?}");
        assert!(!explanation.why.is_empty(), "{explanation:?}");
    }
}

/// Model and reference agree on a random program.
fn model(input: &[u8]) {
    let seed = input.iter().take(8).fold(0_u64, |sum, b| (sum << 8) | u64::from(*b));
    if let Err(failure) = vramwise_testkit::allocator::simulate::simulate(seed, 500, 25) {
        panic!("seed {seed}: {failure}");
    }
}

/// What is accepted is printed and read back the same; every refusal has a text.
fn settings(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    // Each dialect of the language, and one release more, which the input itself selects.
    for minor in [8, 11, input.iter().fold(0, |sum, b| (sum + u16::from(*b)) % 17)] {
        let version = TorchVersion::new(2, minor);
        match settings::parse(&text, version) {
            Ok(parsed) => {
                let config = parsed.config;
                if config.is_expressible(version) {
                    let printed = config.to_full_conf_string(version);
                    let again = settings::parse(&printed, version).map(|p| p.config);
                    assert_eq!(again.as_ref().ok(), Some(&config), "{printed}");
                }
                assert!(config.describe().iter().all(|line| !line.is_empty()));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        let _ = settings::lint(&text, version);
    }
    let _ = parse_size(&text);
    let _ = text.parse::<TorchVersion>();
}
