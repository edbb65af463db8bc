//! What the name of a snapshot or a log says: the rank, the step, and whether memory had run out.
//!
//! Every training framework names its files in a way of its own: `rank3_memory_snapshot.pickle` in
//! `iteration_20/`, `snapshot_3.pickle`, `snapshot_oom_rank-3.pickle`, `rank3.20.memory_snapshot`,
//! `oom_rank3.pickle`, `memory_snapshot_rank_3_step20.pkl`, `memory_snapshot_rank3_t1718000000.pickle`.
//! Launchers put each rank's log into a folder that is called by its number alone: `attempt_0/3/stderr.log`.

use std::path::Path;

/// What a file's name says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankName {
    /// The rank.
    pub rank: Option<u32>,
    /// Step, iteration, batch or time of the snapshot: what tells one rank's files apart.
    pub step: Option<u64>,
    /// Whether it was written because memory had run out.
    pub out_of_memory: bool,
}

impl RankName {
    /// Reads the name of a file and of the folder that it lies in.
    pub fn of(path: &Path) -> Self {
        let text = |name: Option<&std::ffi::OsStr>| {
            name.map_or(String::new(), |name| name.to_string_lossy().to_ascii_lowercase())
        };
        let name = text(path.file_name());
        let folder = text(path.parent().and_then(Path::file_name));
        let rank = number_behind(&name, "rank").or_else(|| bare_rank(&name));
        let own_log = ["stderr", "stdout"].iter().any(|stream| name.starts_with(stream));
        let folder_rank =
            || number_behind(&folder, "rank").or_else(|| folder.parse().ok().filter(|_| own_log));
        let step = ["step", "iteration", "iter", "batch"]
            .iter()
            .find_map(|word| number_behind(&name, word).or_else(|| number_behind(&folder, word)))
            .or_else(|| time_behind(&name))
            .or_else(|| composer_batch(&name));
        let oom = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|w| w == "oom");
        Self {
            rank: rank.or_else(folder_rank).and_then(|rank| u32::try_from(rank).ok()),
            step,
            out_of_memory: oom(&name) || oom(&folder) || folder.ends_with("_exit"),
        }
    }
}

/// The number behind a word, with at most one of `-_.=` between; the word begins the text or follows
/// something that is no letter.
fn number_behind(text: &str, word: &str) -> Option<u64> {
    text.match_indices(word).find_map(|(at, _)| {
        let begins = !text[..at].ends_with(|c: char| c.is_ascii_alphabetic());
        let rest = &text[at + word.len()..];
        let rest = rest.strip_prefix(['-', '_', '.', '=']).unwrap_or(rest);
        digits(rest).filter(|_| begins)
    })
}

fn digits(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// `snapshot_3.pickle`.
fn bare_rank(name: &str) -> Option<u64> {
    let stem = name.split('.').next().unwrap_or(name);
    let (before, number) = stem.rsplit_once('_')?;
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    (plain && before.ends_with("snapshot")).then(|| number.parse().ok()).flatten()
}

/// `…_t1718000000.pickle`.
fn time_behind(name: &str) -> Option<u64> {
    let stem = name.split('.').next().unwrap_or(name);
    let time = stem.rsplit_once("_t")?.1;
    time.bytes().all(|b| b.is_ascii_digit()).then(|| time.parse().ok()).flatten()
}

/// `rank3.20.memory_snapshot`, where 20 may also be `ep1-ba20`.
fn composer_batch(name: &str) -> Option<u64> {
    let batch = name.split_once(".memory_snapshot")?.0.rsplit('.').next()?;
    batch.rsplit("ba").next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_every_framework_are_understood() {
        for (path, rank, step, out_of_memory) in [
            ("memory_snapshot/iteration_20/rank3_memory_snapshot.pickle", Some(3), Some(20), false),
            ("iteration_7_exit/rank0_memory_snapshot.pickle", Some(0), Some(7), true),
            ("snapshot_12.pickle", Some(12), None, false),
            ("snapshot_oom_rank-5.pickle", Some(5), None, true),
            ("rank3.20.memory_snapshot", Some(3), Some(20), false),
            ("rank3.ep1-ba20.memory_snapshot.gz", Some(3), Some(20), false),
            ("oom_rank11.pickle", Some(11), None, true),
            ("snapshot_stop_step_rank2.pickle", Some(2), None, false),
            ("oom_1718000000/rank_1.pickle", Some(1), None, true),
            ("memory_snapshot_rank4_t1718000000.pickle", Some(4), Some(1_718_000_000), false),
            ("memory_snapshot_rank_6.pickle", Some(6), None, false),
            ("oom_memory_snapshot_rank0_step90.pkl", Some(0), Some(90), true),
            ("rank_3/step_5.pickle", Some(3), Some(5), false),
            ("logs/rank3.log", Some(3), None, false),
            ("node0_local_rank-7.err.gz", Some(7), None, false),
            ("attempt_0/3/stderr.log", Some(3), None, false),
            ("3/train.log", None, None, false),
            ("frank.log", None, None, false),
            ("oom_rank-0_2026.txt", Some(0), None, true),
            ("profile.pkl", None, None, false),
            ("my_snapshot.pickle", None, None, false),
            ("crank9_room.pickle", None, None, false),
            ("rank99999999999999999999.pickle", None, None, false),
        ] {
            let expected = RankName { rank, step, out_of_memory };
            assert_eq!(RankName::of(Path::new(path)), expected, "{path}");
        }
    }
}
