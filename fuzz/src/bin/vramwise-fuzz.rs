//! Feeds a bounded number of mutated inputs to every target, on stable Rust.
//!
//! The inputs run in a child with a ceiling on its memory, which notes the number of each input
//! before it runs; so a panic, an abort, a stack overflow, a hang and a flood of memory are all told
//! with the input that caused them. The input is saved, and the command that repeats it is printed.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use vramwise_fuzz::{Corpus, Target, input};

/// Address space of the child in KiB; a parser that wants more has believed a lie.
const MEMORY_KIB: u64 = 4 << 20;
/// One input takes microseconds; this is a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Feed mutated input to every parser.
#[derive(Parser)]
#[command(name = "vramwise-fuzz", bin_name = "cargo xtask fuzz")]
struct Args {
    /// Inputs per target; a tenth of it where one input is a whole replay or simulation.
    #[arg(long, default_value_t = 20_000)]
    inputs: u64,
    /// Seed of the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this target.
    #[arg(long)]
    target: Option<Target>,
    /// Number of the first input.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Feed this one file to the target instead.
    #[arg(long, requires = "target")]
    file: Option<PathBuf>,
    /// Good files to begin with.
    #[arg(long, default_value = "testdata")]
    corpus: PathBuf,
    /// Where failing inputs are saved.
    #[arg(long, default_value = "target/fuzz")]
    out: PathBuf,
    /// Run the inputs in this process, noting each in this file.
    #[arg(long, hide = true)]
    note: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn run(args: &Args) -> Result<()> {
    if let (Some(target), Some(file)) = (args.target, &args.file) {
        target.run(&fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
        say(&format!("{target}: {} passed", file.display()));
        return Ok(());
    }
    let corpus = Corpus::with_files(&args.corpus)?;
    if let (Some(target), Some(note)) = (args.target, &args.note) {
        return feed(target, &corpus, args, note);
    }
    fs::create_dir_all(&args.out).context("cannot make the directory for failing inputs")?;
    for target in Target::ALL.into_iter().filter(|t| args.target.is_none_or(|only| only == *t)) {
        supervise(target, &corpus, args)?;
    }
    Ok(())
}

/// The child: runs the inputs.
fn feed(target: Target, corpus: &Corpus, args: &Args, note: &Path) -> Result<()> {
    let note = File::create(note)?;
    for index in args.first..args.first.saturating_add(args.inputs) {
        note.write_all_at(&index.to_le_bytes(), 0)?;
        target.run(&input(target, corpus, args.seed, index));
    }
    Ok(())
}

/// The parent: watches a child that runs the inputs of one target.
fn supervise(target: Target, corpus: &Corpus, args: &Args) -> Result<()> {
    let inputs = if target.is_slow() { args.inputs.div_ceil(10) } else { args.inputs };
    let note = args.out.join(format!("{target}.current"));
    let _ = fs::remove_file(&note);
    let started = Instant::now();
    let mut child =
        limited(target, args, inputs, &note)?.spawn().context("cannot start the child")?;
    let outcome = watch(&mut child, &note)?;
    let index = current(&note);
    let _ = fs::remove_file(&note);
    let what = match outcome {
        Some(status) if status.success() => {
            let seconds = started.elapsed().as_secs_f32();
            say(&format!("fuzz {target}: {inputs} inputs passed in {seconds:.1} s"));
            return Ok(());
        }
        Some(status) => format!("failed ({status})"),
        None => format!("ran for more than {} seconds", PATIENCE.as_secs()),
    };
    let Some(index) = index else { bail!("{target}: the child {what} before its first input") };
    let saved = args.out.join(format!("{target}-{}-{index}", args.seed));
    fs::write(&saved, input(target, corpus, args.seed, index))?;
    say(&format!("fuzz {target}: input {index} of seed {} {what}", args.seed));
    say(&format!("  saved as {}", saved.display()));
    say(&format!(
        "  again: cargo xtask fuzz --target {target} --seed {} --first {index} --inputs 1",
        args.seed
    ));
    bail!("{target}: an input {what}")
}

/// This program again as the child, with a ceiling on its address space.
fn limited(target: Target, args: &Args, inputs: u64, note: &Path) -> Result<Command> {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    command.args(["-c", &script]).arg(std::env::current_exe()?);
    command.args(["--target", target.name(), "--seed", &args.seed.to_string()]);
    command.args(["--first", &args.first.to_string(), "--inputs", &inputs.to_string()]);
    command.arg("--corpus").arg(&args.corpus).arg("--note").arg(note);
    Ok(command)
}

/// Waits for the child; `None` if one input took too long.
fn watch(child: &mut Child, note: &Path) -> Result<Option<ExitStatus>> {
    let mut last = None;
    let mut since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let now = current(note);
        if now != last {
            last = now;
            since = Instant::now();
        } else if since.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The number that the child noted last.
fn current(note: &Path) -> Option<u64> {
    let bytes = fs::read(note).ok()?;
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
}
