//! Options that `rehearse` and `fit` share: the machine and the process that the program should find.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use vramwise_rehearse::assume::Assume;
use vramwise_rehearse::{Rehearsal, Values};

use crate::failure::Failure;

/// The machine and the process that the program finds.
#[derive(Debug, clap::Args)]
pub(crate) struct Surroundings {
    /// Memory of the card, such as 24GiB, instead of the profile's.
    #[arg(long, value_name = "SIZE", value_parser = crate::args::card)]
    memory: Option<u64>,
    /// Number of such cards in the machine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    gpus: u32,
    /// End the program cleanly after N steps of an optimizer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// The longest that one run of the program may take, such as 90s, 10m or 1h.
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration)]
    time_limit: Option<Duration>,
    /// Be one process of N: collectives answer at once and move no data.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    world_size: Option<u32>,
    /// Which of the processes to be.
    #[arg(long, value_name = "R", default_value_t = 0, requires = "world_size")]
    rank: u32,
    /// Where values come from that the program asks the device for: a first pass (two), the same pass
    /// (one: quicker, less exact), nowhere (off: zeros), or a values.jsonl: of an earlier rehearsal, or
    /// written on a GPU by `vramwise probe --values`.
    #[arg(long, value_name = "two|one|off|FILE", default_value = "two", value_parser = values)]
    values: Values,
    /// What to take for granted where values cannot be known without a GPU: how indices are chosen
    /// (topk=uniform, balanced, skewed or worst), and as shares, or ranges such as 0.1..0.4, what of a mask is
    /// true (mask=0.5), what non-maximum suppression keeps (nms=1) and what differs from all others (unique=1);
    /// and in how many of its first steps a gradient scaler finds infinities, which it skips (infinite=0).
    #[arg(long, value_name = "NAME=VALUE", value_parser = hint, value_delimiter = ',')]
    assume: Vec<String>,
    /// A table of cuDNN's workspaces on the card, instead of the one that is installed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    workspaces: Option<PathBuf>,
    /// Place segments in another order, which belongs to N, than a driver does.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The Python that the command runs, where it does not tell.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    python: Option<PathBuf>,
    /// Hide the GPU that this machine has.
    #[arg(long)]
    emulate_anyway: bool,
}

fn values(text: &str) -> Result<Values, String> {
    Ok(match text {
        "two" => Values::TwoPasses,
        "one" => Values::OnePass,
        "off" => Values::Off,
        path if std::path::Path::new(path).is_file() => Values::File(PathBuf::from(path)),
        _ => return Err("write two, one, off, or name a file that exists".to_owned()),
    })
}

/// A hint, kept as text: several make up the assumptions.
fn hint(text: &str) -> Result<String, String> {
    Assume::default().hint(text).map(|()| text.to_owned())
}

impl Surroundings {
    /// Enters the options into a rehearsal.
    pub(crate) fn apply(&self, rehearsal: &mut Rehearsal) -> Result<(), Failure> {
        rehearsal.memory = self.memory;
        rehearsal.gpus = self.gpus;
        rehearsal.steps = self.steps;
        rehearsal.time_limit = self.time_limit;
        rehearsal.values.clone_from(&self.values);
        for hint in &self.assume {
            rehearsal.assume.hint(hint).map_err(Failure::new)?;
        }
        rehearsal.workspaces.clone_from(&self.workspaces);
        rehearsal.seed = self.seed;
        rehearsal.python.clone_from(&self.python);
        rehearsal.emulate_anyway = self.emulate_anyway;
        rehearsal.rank = self.world_size.map(|size| (size, self.rank));
        match self.world_size {
            Some(size) if self.rank >= size => Err(Failure::new(format!(
                "--rank {} is none of the {size} ranks (0 to {})",
                self.rank,
                size - 1
            ))),
            _ => Ok(()),
        }
    }
}
