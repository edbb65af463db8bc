//! What each option does to this program, alone.

use vramwise_types::Human;

use crate::candidate::Candidate;
use crate::search::TuneOptions;

/// The effect of one option by itself, over the values tried.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionEffect {
    /// The option's name.
    pub option: &'static str,
    /// Values tried.
    pub tried: usize,
    /// The setting with the lowest peak of reserved memory.
    pub best: Option<String>,
    /// Its peak minus that of PyTorch's default, bytes; negative is less.
    pub best_change: i64,
    /// The highest peak minus that of PyTorch's default, bytes.
    pub worst_change: i64,
    /// The finding as a sentence.
    pub sentence: String,
}

/// Options that are reported, in the order of the report.
const OPTIONS: [&str; 5] = [
    "expandable_segments",
    "max_split_size_mb",
    "roundup_power2_divisions",
    "large_segment_size_mb",
    "garbage_collection_threshold",
];

/// The effect of every option, from candidates that set it and nothing else.
pub(crate) fn effects(
    candidates: &[Candidate],
    options: &TuneOptions,
    largest: u64,
) -> Vec<OptionEffect> {
    let Some(default) = candidates.iter().find(|c| c.conf.is_empty()) else { return Vec::new() };
    OPTIONS.iter().map(|option| effect(option, candidates, default, options, largest)).collect()
}

fn effect(
    option: &'static str,
    candidates: &[Candidate],
    default: &Candidate,
    options: &TuneOptions,
    largest: u64,
) -> OptionEffect {
    let alone = |c: &&Candidate| {
        c.conf.starts_with(option) && c.conf[option.len()..].starts_with(':') && is_alone(&c.conf)
    };
    let tried: Vec<&Candidate> = candidates.iter().filter(alone).collect();
    let change = |c: &Candidate| {
        i64::try_from(c.worst_peak()).unwrap_or(i64::MAX)
            - i64::try_from(default.worst_peak()).unwrap_or(i64::MAX)
    };
    let best = tried.iter().min_by_key(|c| change(c));
    let (best_change, worst_change) =
        (best.map_or(0, |c| change(c)), tried.iter().map(|c| change(c)).max().unwrap_or(0));
    let sentence = match best {
        None => untried(option, options, largest),
        Some(best) => sentence(option, tried.len(), best, best_change, worst_change),
    };
    OptionEffect {
        option,
        tried: tried.len(),
        best: best.map(|c| c.conf.clone()),
        best_change,
        worst_change,
        sentence,
    }
}

/// Whether a setting has one option; commas inside brackets belong to its value.
fn is_alone(conf: &str) -> bool {
    let mut depth = 0;
    !conf.chars().any(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    })
}

fn untried(option: &str, options: &TuneOptions, largest: u64) -> String {
    let version = options.version;
    if option == "garbage_collection_threshold" && options.capacity.is_none() {
        return format!("{option} does nothing without a limit on the process (try --capacity)");
    }
    if option == "max_split_size_mb" && largest < 20 << 20 {
        return format!(
            "{option} can change nothing: no request is larger than its smallest value"
        );
    }
    let since = match option {
        "expandable_segments" => 1,
        "large_segment_size_mb" => 11,
        _ => 0,
    };
    if version.at_least_2(since) {
        format!("{option} was not tried alone (more settings: --candidates)")
    } else {
        format!("PyTorch {version} does not have {option}")
    }
}

fn sentence(option: &str, tried: usize, best: &Candidate, low: i64, high: i64) -> String {
    let human = |n: i64| Human(n.unsigned_abs()).to_string();
    let values = if tried == 1 { "1 value".to_owned() } else { format!("{tried} values") };
    match (low, high) {
        (0, 0) => format!("{option} changes nothing here: the peak is the same for {values} tried"),
        (low, _) if low < 0 => {
            let worse = if high > 0 {
                format!("; the worst value costs {}", human(high))
            } else {
                String::new()
            };
            format!("{option} saves up to {} ({}){worse}", human(low), best.conf)
        }
        (0, high) => format!(
            "{option} saves nothing; its worst value costs {} ({values} tried)",
            human(high)
        ),
        (low, high) if low == high => format!("{option} costs {} ({values} tried)", human(low)),
        (low, high) => format!("{option} costs {} to {} ({values} tried)", human(low), human(high)),
    }
}
