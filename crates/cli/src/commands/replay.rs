//! `vramwise replay FILE`.

mod drop_in;
mod json;
mod request;
mod text;

use std::path::PathBuf;

use clap::ValueHint;
use vramwise_types::TorchVersion;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;

const EXAMPLES: &str = "\
Examples:
  vramwise replay snapshot.pickle
      Verify: replay under the recorded settings and compare every address, device call and byte.
  vramwise replay snapshot.pickle --conf expandable_segments:True
      What if: the same program under other settings.
  vramwise replay snapshot.pickle --capacity 24GiB
      What if: the same program with less memory.
  vramwise replay snapshot.pickle --allocator vramwise
      What if: the same program with vramwise's own allocator instead of PyTorch's.
  vramwise replay snapshot.pickle --conf-at 5000=max_split_size_mb:128 --emit after.pickle

Exit status: 0 exact (or a what-if without OOM), 1 a divergence or an OOM, 2 unreadable input.";

/// Replay a recorded history: verify the model, or ask what would have been.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The snapshot, with its history; - for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Settings to replay under, as in PYTORCH_CUDA_ALLOC_CONF; without it, the recorded ones.
    #[arg(long, value_name = "SETTINGS")]
    pub(crate) conf: Option<String>,
    /// Change the settings before this event of the history; may be given several times.
    #[arg(long, value_name = "EVENT=SETTINGS", value_parser = conf_at)]
    pub(crate) conf_at: Vec<ConfAt>,
    /// Bytes that the process may hold, such as 40GiB.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = crate::args::size)]
    pub(crate) capacity: Option<u64>,
    /// Take the driver's addresses from this recording instead of a model of the driver.
    #[arg(long, value_name = "SNAPSHOT", value_hint = ValueHint::FilePath)]
    pub(crate) addresses: Option<PathBuf>,
    /// Write the state at the end as a snapshot that PyTorch's own viewer opens.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) emit: Option<PathBuf>,
    /// Whose allocator to replay the program under; vramwise's is the one that `vramwise run` installs.
    #[arg(long, value_enum, value_name = "NAME", default_value_t, conflicts_with_all = ["conf", "conf_at", "addresses", "emit"])]
    pub(crate) allocator: Allocator,
    /// PyTorch version whose allocator is meant, such as 2.8; without it, what the file looks like.
    #[arg(long, value_name = "VERSION", value_parser = crate::args::torch)]
    pub(crate) torch: Option<TorchVersion>,
    /// Memory of the card, such as 80GiB, which decides how expandable segments are reserved.
    #[arg(long, value_name = "SIZE", value_parser = crate::args::card)]
    pub(crate) total: Option<u64>,
}

/// An allocator that a program can be replayed under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Allocator {
    /// PyTorch's caching allocator.
    #[default]
    Pytorch,
    /// The drop-in allocator of this program.
    Vramwise,
}

/// A change of settings in mid-run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfAt {
    /// Index of the first event of the history that the new settings hold for.
    pub(crate) event: u64,
    /// The settings string.
    pub(crate) conf: String,
}

fn conf_at(text: &str) -> Result<ConfAt, String> {
    let parsed = text
        .split_once('=')
        .and_then(|(event, conf)| Some((event.trim().replace(['_', ','], "").parse().ok()?, conf)));
    match parsed {
        Some((event, conf)) => Ok(ConfAt { event, conf: conf.to_owned() }),
        None => Err("write the number of an event, = and settings, such as \
                     5000=max_split_size_mb:128"
            .to_owned()),
    }
}

/// Replays and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect([&args.file])?;
    let inputs = [Some(&args.file), args.addresses.as_ref()];
    let emit = args.emit.as_ref().map(|path| context.destination(path)).transpose()?;
    if let Some(destination) = &emit {
        destination.distinct_from(inputs.into_iter().flatten().map(PathBuf::as_path))?;
    }
    let snapshot = input::read(&args.file, context)?;
    let (number, device) = input::device(&snapshot, &args.file, context)?;
    let request = request::Request::new(args, &snapshot, device, context)?;
    let answer = request::answer(&request, device);
    if let Some(destination) = emit {
        let (emitted, _) = request.emit(&snapshot, number, &answer);
        let mut bytes = Vec::new();
        vramwise_trace::write_pickle(&emitted, &mut bytes)
            .map_err(|error| Failure::from_error(&error))?;
        destination.write(&bytes)?;
        context.wrote(destination.path());
    }
    let report = json::Report::new(args, number, &snapshot, &request, &answer);
    context.answer(&report, || text::render(&report, &answer, context))?;
    Ok(if answer.is_fine() { Status::Fine } else { Status::Finding })
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_settings_names_its_event() {
        let conf = "max_split_size_mb:128".to_owned();
        assert_eq!(conf_at("5_000=max_split_size_mb:128"), Ok(ConfAt { event: 5000, conf }));
        assert_eq!(conf_at("0="), Ok(ConfAt { event: 0, conf: String::new() }));
        assert!(conf_at("max_split_size_mb:128").is_err());
        assert!(conf_at("-1=x").is_err());
    }
}
