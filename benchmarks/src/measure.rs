//! Running things in processes of their own, so that time and peak memory are theirs alone.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// What one run took.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Cost {
    /// Wall clock, measured around the work inside the process.
    pub(crate) seconds: f64,
    /// The process's highest resident memory in bytes.
    pub(crate) peak_bytes: u64,
}

/// Runs a command that prints one JSON object.
pub(crate) fn child<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot run a child")?;
    if !output.status.success() {
        bail!("a child failed ({})", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).with_context(|| format!("a child printed {text:?}"))
}

/// This program again, to measure one thing.
pub(crate) fn ourselves(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").args(args);
    Ok(command)
}

/// The highest resident memory of this process so far, in bytes.
///
/// `VmHWM` counts from the start of this program; `getrusage` would include what the parent had
/// before it became this one.
pub(crate) fn own_peak_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")
        .context("peak memory is read from /proc, which only Linux has")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")).map(str::trim);
    let kib: u64 = kib.and_then(|kib| kib.parse().ok()).context("no VmHWM in /proc/self/status")?;
    Ok(kib * 1024)
}

/// Seconds that this thread has run on a core so far.
///
/// On a machine that does other things meanwhile the wall clock would measure those too.
pub(crate) fn cpu_seconds() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .context("time on the core is read from /proc, which only Linux has")?;
    let nanoseconds: u64 = text
        .split_whitespace()
        .next()
        .and_then(|first| first.parse().ok())
        .context("no number in /proc/thread-self/schedstat")?;
    Ok(nanoseconds as f64 / 1e9)
}

/// Seconds that all threads of this process have run so far, in hundredths.
pub(crate) fn process_cpu_seconds() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")
        .context("time on the core is read from /proc, which only Linux has")?;
    // The name in parentheses may contain anything; `utime` and `stime` are the 12th and 13th
    // fields behind it, in the ticks of 1/100 s that Linux shows to programs.
    let behind = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<u64> =
        behind.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    anyhow::ensure!(ticks.len() == 2, "no times in /proc/self/stat");
    Ok((ticks[0] + ticks[1]) as f64 / 100.0)
}

/// The middle of an odd number of values, or the mean of the two middle ones.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn time_on_the_core_passes_with_work() {
        let before = cpu_seconds().unwrap();
        let sum = (0..20_000_000_u64).fold(0, |sum: u64, i| std::hint::black_box(sum ^ i));
        assert!(cpu_seconds().unwrap() > before, "{sum}");
    }

    #[test]
    fn peak_memory_grows_with_what_is_touched() {
        let before = own_peak_bytes().unwrap();
        let block = vec![1u8; 64 << 20];
        assert!(block.iter().map(|b| u64::from(*b)).sum::<u64>() > 0);
        assert!(own_peak_bytes().unwrap() >= before + (32 << 20));
    }
}
