//! The text of settings: `key:value,key:value`, PyTorch's names where they mean something here, and ours.
//!
//! | key | value | meaning |
//! | --- | --- | --- |
//! | `limit` | size (`20GiB`) or `none` | physical memory that this device's heap may hold |
//! | `per_process_memory_fraction` | 0 to 1 | PyTorch's name for a limit, as a share of the card |
//! | `slack` | share (`0.01`) or per cent (`1%`) | memory above what is in use that may be held without recycling |
//! | `handle_cap` | size, a power of two | largest physical handle |
//! | `handle_share` | number | a handle is at most memory held / this |
//! | `request_share` | number | a handle may have the request's bytes / this all the same |
//! | `fine_share` | number | a handle is at most memory held / this while sizes change |
//! | `varied` | share or per cent | of memory that was recycled lately, above which sizes count as changing |
//! | `aligned` | share or per cent | of memory that was recycled lately, above which requests of whole pages begin at a page |
//! | `small_below` | size | requests below it have a region of their own |

use vramwise_arena::Params;
use vramwise_types::parse_size;

/// What a text asks for, beside the parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Change {
    pub(crate) params: Params,
    /// A limit as a share of the card, which is not known before the card is.
    pub(crate) fraction: Option<f64>,
    /// Options of PyTorch's allocator that mean nothing here.
    pub(crate) ignored: Vec<String>,
}

/// PyTorch's options that this allocator has no use for, each with the reason.
const WITHOUT_MEANING: &[(&str, &str)] = &[
    ("expandable_segments", "all memory is mapped in pages already"),
    ("max_split_size_mb", "blocks of any size are split and merged without stranding memory"),
    ("garbage_collection_threshold", "free pages are recycled before new memory is taken"),
    ("roundup_power2_divisions", "sizes are rounded to 512 bytes only"),
    ("roundup_bypass_threshold_mb", "sizes are rounded to 512 bytes only"),
    ("max_non_split_rounding_mb", "sizes are rounded to 512 bytes only"),
    ("large_segment_size_mb", "there are no segments of fixed size"),
    ("expandable_segments_reserve", "addresses are reserved for the whole card"),
    ("backend", "this allocator takes the place of PyTorch's"),
    ("release_lock_on_cudamalloc", "cudaMalloc is not called"),
    ("release_lock_on_hipmalloc", "hipMalloc is not called"),
    (
        "graph_capture_record_stream_reuse",
        "blocks used on other streams wait for the end of a capture",
    ),
];

/// Settings of pinned host memory: PyTorch's host allocator stays in charge of it.
const HOST: &[&str] = &[
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_use_hip_host_register",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
    "pinned_max_power2_size_mb",
];

/// Reads a text over the parameters in force, of which a limit may be a share of a card that is not known yet; the
/// error says what is wrong and where (position in characters).
pub(crate) fn parse(text: &str, now: Params, fraction: Option<f64>) -> Result<Change, String> {
    let mut change = Change { params: now, fraction, ..Change::default() };
    let mut at = 0;
    for part in split(text) {
        read_option(part, at, &mut change)?;
        at += part.chars().count() + 1;
    }
    Ok(change)
}

/// Parts between commas, those within brackets left together.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    })
}

fn read_option(part: &str, at: usize, change: &mut Change) -> Result<(), String> {
    let part = part.trim();
    if part.is_empty() {
        return Ok(());
    }
    let place = format!("at position {at}");
    let (key, value) =
        part.split_once(':').ok_or_else(|| format!("`{part}` {place} is not key:value"))?;
    let (key, value) = (key.trim(), value.trim());
    let bad = |what: &str| format!("{key} {place} takes {what}, not `{value}`");
    let size = || parse_size(value).map_err(|_| bad("a size such as 64MiB"));
    match key {
        // The two are one choice: the last of them holds.
        "limit" => {
            let limit = if value == "none" { None } else { Some(size()?) };
            if limit == Some(0) {
                return Err(bad("a size above 0, or none"));
            }
            (change.params.limit, change.fraction) = (limit, None);
        }
        "per_process_memory_fraction" => {
            change.fraction = Some(fraction(value).ok_or_else(|| bad("a number from 0 to 1"))?);
        }
        "handle_cap" => {
            let cap = size()?;
            let fits = cap.is_power_of_two() && cap >= 2 << 20;
            change.params.handle_cap =
                fits.then_some(cap).ok_or_else(|| bad("a power of two from 2MiB on"))?;
        }
        "slack" | "varied" | "aligned" => {
            let share = fraction(value);
            let share = share.ok_or_else(|| bad("a share from 0 to 1, such as 0.01 or 1%"))?;
            let place = match key {
                "slack" => &mut change.params.slack,
                "varied" => &mut change.params.varied,
                _ => &mut change.params.aligned,
            };
            *place = share;
        }
        "handle_share" | "fine_share" | "request_share" => {
            let number = value.parse().ok().filter(|s| *s > 0);
            let number = number.ok_or_else(|| bad("a whole number above 0"))?;
            let place = match key {
                "handle_share" => &mut change.params.handle_share,
                "fine_share" => &mut change.params.fine_share,
                _ => &mut change.params.request_share,
            };
            *place = number;
        }
        "small_below" => change.params.small_below = size()?,
        _ if HOST.contains(&key) => {}
        _ => match WITHOUT_MEANING.iter().find(|(name, _)| *name == key) {
            Some((name, reason)) => change.ignored.push(format!("{name} ({reason})")),
            None => {
                return Err(format!(
                    "`{key}` {place} is no setting of this allocator or of PyTorch's"
                ));
            }
        },
    }
    Ok(())
}

fn fraction(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// The text that [`parse`] takes for parameters.
pub(crate) fn print(params: &Params, fraction: Option<f64>) -> String {
    let limit = match (fraction, params.limit) {
        (Some(fraction), _) => format!("per_process_memory_fraction:{fraction}"),
        (None, None) => "limit:none".to_owned(),
        (None, Some(0)) => "per_process_memory_fraction:0".to_owned(),
        (None, Some(bytes)) => format!("limit:{bytes}"),
    };
    let Params { slack, handle_cap, handle_share, request_share, .. } = params;
    let Params { fine_share, varied, aligned, small_below, .. } = params;
    format!(
        "{limit},slack:{slack},handle_cap:{handle_cap},handle_share:{handle_share},\
         request_share:{request_share},fine_share:{fine_share},varied:{varied},aligned:{aligned},\
         small_below:{small_below}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Change, String> {
        parse(text, Params::default(), None)
    }

    #[test]
    fn what_is_printed_can_be_read() {
        let params =
            Params { limit: Some(3 << 30), slack: 0.02, handle_cap: 4 << 20, ..Params::default() };
        let params = Params { request_share: 64, varied: 0.25, aligned: 0.125, ..params };
        assert_eq!(read(&print(&params, None)).map(|c| c.params), Ok(params));
        assert_eq!(read(&print(&Params::default(), None)).map(|c| c.params), Ok(Params::default()));
        let half = read(&print(&params, Some(0.5))).unwrap();
        assert_eq!(half.fraction, Some(0.5));
        // A limit of nothing, which PyTorch's function allows.
        let nothing = read(&print(&Params { limit: Some(0), ..params }, None)).unwrap();
        assert_eq!(nothing.fraction, Some(0.0));
    }

    #[test]
    fn of_a_limit_and_a_share_of_the_card_the_last_one_holds() {
        let both = |text: &str| read(text).map(|c| (c.params.limit, c.fraction));
        let (limit, share) = ("limit:1GiB", "per_process_memory_fraction:0.5");
        assert_eq!(both(&format!("{share},{limit}")), Ok((Some(1 << 30), None)));
        assert_eq!(both(&format!("{share},limit:none")), Ok((None, None)));
        assert_eq!(both(&format!("{limit},{share}")).map(|b| b.1), Ok(Some(0.5)));
        // One from before, as the environment's.
        let later = parse(limit, Params::default(), Some(0.5)).unwrap();
        assert_eq!((later.params.limit, later.fraction), (Some(1 << 30), None));
        assert_eq!(parse("slack:2%", Params::default(), Some(0.5)).unwrap().fraction, Some(0.5));
    }

    #[test]
    fn pytorchs_options_are_named_and_the_rest_is_refused() {
        let change = read(
            "roundup_power2_divisions:[256:1,512:2,>:4],slack:2%,pinned_num_register_threads:4",
        )
        .unwrap();
        assert_eq!(change.params.slack, 0.02);
        assert_eq!(change.ignored.len(), 1);
        for (text, words) in [
            ("slack:2", "slack at position 0"),
            ("slack:1%,limits:3GiB", "`limits` at position 9"),
            ("limit:much", "a size"),
            ("limit:0", "above 0"),
            ("handle_cap:3MiB", "a power of two"),
            ("slack", "not key:value"),
            ("handle_share:0", "above 0"),
            ("request_share:0", "above 0"),
            ("varied:2", "a share"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
