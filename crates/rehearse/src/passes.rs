//! A rehearsal: the command run once to learn values and once to measure.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use vramwise_profile::Profile;

use crate::assume::Assume;
use crate::child::{self, Ended, Streams};
use crate::error::RehearsalError;
use crate::libraries::Libraries;
use crate::outcome::Outcome;
use crate::python::{self, Torch};
use crate::session::{CONFIG, Session, VARIABLE, WORKSPACES};
use crate::{machine, outcome};

/// Where the answers to questions about values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// From nowhere: zeros, but for what the program itself has just put there. One pass.
    Off,
    /// From a first pass, which computes small tensors truly.
    TwoPasses,
    /// From a first pass that is all there is: quicker, but what it computes disturbs the figures.
    OnePass,
    /// From a log that an earlier rehearsal wrote, perhaps edited, or one that was written on a real card.
    File(PathBuf),
}

/// A command and the surroundings that it should find.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// The command: a program and its arguments.
    pub command: Vec<String>,
    /// The interpreter, where the command does not tell.
    pub python: Option<PathBuf>,
    /// The card.
    pub profile: Profile,
    /// How many of them.
    pub gpus: u32,
    /// Memory of each, instead of the profile's.
    pub memory: Option<u64>,
    /// Allocator settings, instead of those in the environment.
    pub conf: Option<String>,
    /// End after so many optimizer steps.
    pub steps: Option<u64>,
    /// The longest that a pass may take.
    pub time_limit: Option<Duration>,
    /// Be rank `.1` of `.0` processes.
    pub rank: Option<(u32, u32)>,
    /// A table of cuDNN's workspaces on this card, instead of the one that is installed.
    pub workspaces: Option<PathBuf>,
    /// Where segments are placed: 0 = as a driver does, else an order that belongs to the number.
    pub seed: u64,
    /// What to do about values.
    pub values: Values,
    /// What is taken for granted where values are not known.
    pub assume: Assume,
    /// Which draw of what that leaves open this is, and of how many.
    pub draw: (u32, u32),
    /// Ways of saving memory to switch on.
    pub strategies: Vec<String>,
    /// Where to keep the session.
    pub directory: Option<PathBuf>,
    /// Whether an older session in it may be replaced.
    pub replace: bool,
    /// Hide a real GPU.
    pub emulate_anyway: bool,
    /// Where the program's output goes in the pass that counts.
    pub streams: Streams,
}

/// The cuDNN whose table is wanted where a card has several: today's.
const CUDNN: u32 = 91_900;

impl Rehearsal {
    /// One of these cards, two passes, nothing else.
    pub fn new(command: Vec<String>, profile: Profile) -> Self {
        Self {
            command,
            python: None,
            profile,
            gpus: 1,
            memory: None,
            conf: None,
            steps: None,
            time_limit: None,
            rank: None,
            workspaces: None,
            seed: 0,
            values: Values::TwoPasses,
            assume: Assume::default(),
            draw: (0, 1),
            strategies: Vec::new(),
            directory: None,
            replace: false,
            emulate_anyway: false,
            streams: Streams::Through,
        }
    }

    /// Bytes of memory of each card.
    pub fn total_bytes(&self) -> u64 {
        self.memory.unwrap_or(self.profile.card.total_bytes)
    }

    /// The table of cuDNN's workspaces on this card that comes with vramwise, written into the session.
    fn shipped_workspaces(&self, session: &Session) -> Result<Option<PathBuf>, RehearsalError> {
        let card = &self.profile.card.name;
        let Some(table) = vramwise_workspaces::shipped::for_card(card, CUDNN) else {
            return Ok(None);
        };
        let path = session.path(WORKSPACES);
        fs::write(&path, table.bytes).map_err(|error| RehearsalError::io("write", &path, error))?;
        Ok(Some(path))
    }

    /// Checks the machine, finds Python and PyTorch, and runs the program.
    ///
    /// # Errors
    /// [`RehearsalError`] where the program could not be started as asked. A program that fails is an
    /// [`Outcome`].
    pub fn run(&self) -> Result<Outcome, RehearsalError> {
        machine::check(self.emulate_anyway)?;
        let torch = python::torch(&self.command, self.python.as_deref())?;
        let libraries = Libraries::find()?;
        let directory = self.directory.as_deref();
        let mut session = Session::new(directory, self.replace, &libraries, torch.cuda_major())?;
        session.workspaces = match &self.workspaces {
            Some(table) => Some(
                fs::canonicalize(table)
                    .map_err(|error| RehearsalError::io("read", table, error))?,
            ),
            None => match libraries.workspaces(&self.profile.card.id) {
                Some(table) => Some(table),
                None => self.shipped_workspaces(&session)?,
            },
        };
        let mut values = self.values.clone();
        let strict = machine::strict();
        if strict.is_some() && values != Values::Off {
            values = Values::Off;
        }
        let log = session.path("values.jsonl");
        let learned = match &values {
            Values::TwoPasses => Some(self.pass(&session, &torch, "learn", Some(&log))?),
            Values::File(file) => {
                session.bring_values(file, &log)?;
                None
            }
            Values::Off | Values::OnePass => None,
        };
        let stopped = learned.filter(Ended::interrupted);
        let ended = match (stopped, &values) {
            (Some(ended), _) => ended,
            (None, Values::Off) => self.pass(&session, &torch, "off", None)?,
            (None, Values::OnePass) => self.pass(&session, &torch, "one", Some(&log))?,
            (None, Values::TwoPasses | Values::File(_)) => {
                session.set_aside()?;
                self.pass(&session, &torch, "answer", Some(&log))?
            }
        };
        let outcome = outcome::read(self, &session, torch, learned, ended, strict);
        session.tidy();
        Ok(outcome)
    }

    /// Runs the command once. `mode` is the value layer's: `learn` is the first pass, `one` learns and
    /// measures at once.
    fn pass(
        &self,
        session: &Session,
        torch: &Torch,
        mode: &str,
        log: Option<&Path>,
    ) -> Result<Ended, RehearsalError> {
        let learns = mode == "learn";
        let number = if learns { "1" } else { "2" };
        let (world_size, rank) = self.rank.unwrap_or((1, 0));
        let device_mode = if mode == "one" { "learn" } else { mode };
        let config = json!({
            "schema": 1,
            "profile": self.profile,
            "devices": self.gpus,
            "memory_bytes": self.total_bytes(),
            "context_bytes": null,
            "seed": self.seed,
            "workspaces": session.workspaces,
            "values": {"mode": device_mode, "file": log},
            "cuda": torch.cuda,
            "world_size": world_size,
            "rank": rank,
            "steps": self.steps,
            "assume": self.assume.draw(self.draw.0, self.draw.1),
            "strategies": self.strategies,
            "pass": number,
            "measures": !learns,
        });
        let text = serde_json::to_vec_pretty(&config)
            .map_err(|error| RehearsalError::io("write", session.path(CONFIG), error.into()))?;
        session.write(CONFIG, &text)?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        self.surround(&mut command, session, number);
        let hidden = learns.then(|| session.path("pass1.log"));
        if learns {
            command.stdin(first_input());
        }
        let (streams, file) = match hidden {
            Some(path) => {
                let file = File::create(&path)
                    .map_err(|error| RehearsalError::io("write", path, error))?;
                (Streams::Hidden, Some(file))
            }
            None if self.streams == Streams::Hidden => {
                let path = session.path("pass2.log");
                let file = File::create(&path)
                    .map_err(|error| RehearsalError::io("write", path, error))?;
                (Streams::Hidden, Some(file))
            }
            None => (self.streams, None),
        };
        child::run(command, streams, file, self.time_limit)
            .map_err(|error| RehearsalError::io("run", &self.command[0], error))
    }

    /// Sets the variables by which the program meets the emulated device.
    fn surround(&self, command: &mut Command, session: &Session, pass: &str) {
        let before = |name: &str, first: OsString| match std::env::var_os(name) {
            Some(rest) if !rest.is_empty() => [first, rest].join(&OsString::from(":")),
            _ => first,
        };
        let preload: Vec<OsString> =
            session.preload.iter().map(|path| path.clone().into_os_string()).collect();
        let preload = preload.join(&OsString::from(":"));
        let library = session.path("lib").into_os_string();
        command
            .env(VARIABLE, &session.directory)
            .env("LD_PRELOAD", before("LD_PRELOAD", preload))
            .env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", library.clone()))
            .env("TRITON_LIBCUDA_PATH", library)
            .env("PYTHONPATH", before("PYTHONPATH", session.path("python").into_os_string()))
            // Which real cards are visible says nothing about the emulated ones.
            .env_remove("CUDA_VISIBLE_DEVICES");
        // Both passes are to walk through sets in the same order.
        if std::env::var_os("PYTHONHASHSEED").is_none() {
            command.env("PYTHONHASHSEED", "0");
        }
        // A pass must not find the other one's compiled kernels: what is measured while compiling
        // takes memory too.
        // Stacks show where compiled code lies by the name that torch.compile gives such directories.
        let compiled = format!("torchinductor_{pass}");
        let caches =
            [("TORCHINDUCTOR_CACHE_DIR", compiled.as_str()), ("TRITON_CACHE_DIR", "triton")];
        for (name, place) in caches {
            if std::env::var_os(name).is_none() {
                command.env(name, session.path("cache").join(place));
            }
        }
        if let Some(conf) = &self.conf {
            for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
                command.env(name, conf);
            }
        }
        if let Some((world_size, rank)) = self.rank {
            let local = rank % self.gpus;
            let variables = [
                ("WORLD_SIZE", world_size.to_string()),
                ("RANK", rank.to_string()),
                ("LOCAL_RANK", local.to_string()),
                ("LOCAL_WORLD_SIZE", self.gpus.min(world_size).to_string()),
                ("MASTER_ADDR", "127.0.0.1".to_owned()),
                ("MASTER_PORT", "29500".to_owned()),
            ];
            command.envs(variables);
        }
    }
}

/// What the first pass reads: a file from its beginning, nothing else, since what it took from a pipe or a
/// terminal would be lost to the second.
fn first_input() -> Stdio {
    let path = Path::new("/proc/self/fd/0");
    let regular = fs::metadata(path).is_ok_and(|found| found.is_file());
    match regular.then(|| File::open(path)) {
        Some(Ok(file)) => Stdio::from(file),
        _ => Stdio::null(),
    }
}
