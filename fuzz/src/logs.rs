//! Mutations of logs: lines of errors between each other, cut, wrapped and coloured.

use vramwise_testkit::Rng;

/// Pieces that stand between and inside the lines of real logs, and some that do not.
const PIECES: &[&str] = &[
    "\n",
    "\r",
    "\r\n",
    " ",
    "\u{1b}[31m",
    "\u{1b}[0m",
    "\t",
    "[rank3]: ",
    "99999999999999999999",
    "0.00",
    " GiB",
    " MiB",
    " bytes",
    "1e308",
    "-1",
    "NaN",
    "(GPU 0; ",
    "GPU 99 has a total capacity of ",
    "CUDA out of memory. ",
    "HIP out of memory. ",
    "Tried to allocate ",
    "Process 1 has 0 bytes memory in use. ",
    "PYTORCH_CUDA_ALLOC_CONF=",
    "expandable_segments:True",
    "Traceback (most recent call last):\n",
    "\u{feff}",
    " 45%|████▌     | 450/1000 [00:10<00:12]",
    "|",
    "│",
    "\"",
    "\\n",
    "漢字",
    ".",
    ";",
    ",",
    ")",
];

/// A few lines of the corpus with a few mutations.
pub(crate) fn mutate(rng: &mut Rng, corpus: &[String]) -> Vec<u8> {
    let mut log: Vec<char> = Vec::new();
    for _ in 0..rng.range(1..4) {
        log.extend(rng.pick(corpus).chars());
        log.push('\n');
    }
    for _ in 0..rng.range(0..6) {
        let at = rng.index(log.len() + 1);
        let end = (at + rng.octaves(1, 64) as usize).min(log.len());
        match rng.below(5) {
            0 => drop(log.drain(at..end)),
            1 => drop(log.splice(at..at, log[at..end].to_vec())),
            2 => log.truncate(at.max(1)),
            3 => wrap(rng, &mut log),
            _ => drop(log.splice(at..at, rng.pick(PIECES).chars())),
        }
    }
    log.into_iter().collect::<String>().into_bytes()
}

/// Breaks every line at some width, as a terminal or a paste does.
fn wrap(rng: &mut Rng, log: &mut Vec<char>) {
    let width = rng.range(8..120) as usize;
    let wrapped = log.chunks(width).flat_map(|line| line.iter().copied().chain(['\n'])).collect();
    *log = wrapped;
}
