//! Values that are nearly right, made right.

use vramwise_types::TorchVersion;

use super::Dialect;
use super::keys::{Id, Key, ROUNDUP_ZERO_SINCE, Shape};

/// The value in the form that the release accepts, or nothing if the option is better left out;
/// says in words what was changed.
pub(super) fn value(
    key: &Key,
    raw: Option<&str>,
    version: TorchVersion,
    hints: &mut Vec<String>,
) -> Option<String> {
    let Some(raw) = raw.map(|r| r.trim_matches(['"', '\''])) else {
        return missing(key, hints);
    };
    match key.shape {
        Shape::Boolean => boolean(key, raw, hints),
        Shape::Megabytes => megabytes(key, raw, version, hints),
        Shape::Count => count(key, raw, hints),
        Shape::Fraction => fraction(key, raw, hints),
        Shape::Divisions => divisions(raw, version, hints),
        Shape::Name => backend(raw, hints),
        Shape::Reserve => Some(raw.to_owned()),
        Shape::ReserveList => bracketed(raw).map(|inner| format!("[{inner}]")),
    }
}

fn missing(key: &Key, hints: &mut Vec<String>) -> Option<String> {
    if key.shape == Shape::Boolean {
        hints.push(format!("{} needs a value, True or False", key.name));
        return Some("True".to_owned());
    }
    let example = match key.shape {
        Shape::Fraction => "0.8",
        Shape::Divisions => "8",
        Shape::Name => "native",
        _ => "128",
    };
    hints.push(format!(
        "{} needs a value, such as {}:{example}; it is left out",
        key.name, key.name
    ));
    None
}

fn boolean(key: &Key, raw: &str, hints: &mut Vec<String>) -> Option<String> {
    if matches!(raw, "True" | "False") {
        return Some(raw.to_owned());
    }
    let word: String = raw.chars().take_while(char::is_ascii_alphanumeric).collect();
    let meant = match word.to_ascii_lowercase().as_str() {
        "true" | "1" | "on" | "yes" | "t" | "y" | "enable" | "enabled" => "True",
        "false" | "0" | "off" | "no" | "f" | "n" | "disable" | "disabled" => "False",
        _ => {
            hints.push(format!("{} takes True or False", key.name));
            return None;
        }
    };
    hints.push(format!("write {meant} with a capital letter, nothing else is understood"));
    Some(meant.to_owned())
}

/// Smallest legal value of an option in MiB.
fn smallest(key: &Key, version: TorchVersion) -> u64 {
    match key.id {
        Id::MaxSplitSize | Id::MaxNonSplitRounding => match Dialect::of(version) {
            Dialect::Checked => 21,
            Dialect::Unified => 20,
        },
        Id::LargeSegmentSize => 11,
        Id::PinnedReserveSegmentSize => 1,
        _ => 0,
    }
}

fn megabytes(
    key: &Key,
    raw: &str,
    version: TorchVersion,
    hints: &mut Vec<String>,
) -> Option<String> {
    let compact: String = raw.chars().filter(|c| !c.is_whitespace() && *c != '_').collect();
    let digits = compact.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(compact.len());
    let (number, unit) = compact.split_at(digits);
    let Ok(number) = number.parse::<f64>() else {
        hints.push(format!("{} takes a whole number of MiB", key.name));
        return None;
    };
    let factor = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "g" => 1024.0,
        "t" => 1024.0 * 1024.0,
        "k" => 1.0 / 1024.0,
        _ => 1.0,
    };
    let mb = (number * factor).round();
    if mb > 2_147_483_647.0 {
        hints.push(format!("leave {} out for no limit", key.name));
        return None;
    }
    let mb = mb as u64; // below 2^31, checked above
    if factor != 1.0 {
        hints.push(format!("{} counts MiB: {raw} is {mb}", key.name));
    } else if !unit.is_empty() {
        hints.push(format!("{} takes the number alone, its unit is MiB", key.name));
    }
    let least = smallest(key, version);
    if mb < least {
        hints.push(format!("the smallest legal {} is {least}", key.name));
    }
    Some(mb.max(least).to_string())
}

fn count(key: &Key, raw: &str, hints: &mut Vec<String>) -> Option<String> {
    let Ok(n) = raw.parse::<u64>() else {
        hints.push(format!("{} takes a whole number", key.name));
        return None;
    };
    let fixed = power_of_two_below(n.max(1)).min(128);
    if fixed != n {
        hints.push(format!("{} has to be a power of two, at most 128", key.name));
    }
    Some(fixed.to_string())
}

fn fraction(key: &Key, raw: &str, hints: &mut Vec<String>) -> Option<String> {
    let percent = raw.ends_with('%');
    let Ok(number) = raw.trim_end_matches('%').trim().replace(',', ".").parse::<f64>() else {
        hints.push(format!("{} takes a fraction, such as 0.8", key.name));
        return None;
    };
    let fixed = if percent || (number > 1.0 && number <= 100.0) { number / 100.0 } else { number };
    let closed = key.id == Id::PerProcessMemoryFraction;
    let legal = if closed { (0.0..=1.0).contains(&fixed) } else { fixed > 0.0 && fixed < 1.0 };
    if !legal {
        let range = if closed {
            "from 0 to 1"
        } else {
            "between 0 and 1, both excluded; leave it out to switch it off"
        };
        hints.push(format!("{} takes a fraction {range}", key.name));
        return None;
    }
    if fixed != number {
        hints.push(format!("{} is a fraction: {raw} is {fixed}", key.name));
    }
    Some(fixed.to_string())
}

fn backend(raw: &str, hints: &mut Vec<String>) -> Option<String> {
    let meant = match raw.to_ascii_lowercase().as_str() {
        "native" | "default" | "malloc" | "cudamalloc" => "native",
        "cudamallocasync" | "async" | "mallocasync" | "cuda_malloc_async" => "cudaMallocAsync",
        _ => {
            hints.push("the backends are native (the default) and cudaMallocAsync".to_owned());
            return None;
        }
    };
    if meant != raw {
        hints.push(format!("the backend is probably {meant}"));
    }
    Some(meant.to_owned())
}

fn divisions(raw: &str, version: TorchVersion, hints: &mut Vec<String>) -> Option<String> {
    let zero_is_legal = version.at_least_2(ROUNDUP_ZERO_SINCE);
    let Some(inner) = bracketed(raw) else {
        let digits: String = raw.chars().take_while(char::is_ascii_digit).collect();
        return match digits.parse::<u64>() {
            Ok(0) => {
                hints.push(
                    "0 divisions are the default; leave roundup_power2_divisions out".to_owned(),
                );
                None
            }
            Ok(n) => Some(power(n, hints).to_string()),
            Err(_) => {
                hints.push("roundup_power2_divisions takes a power of two, or a list such as [256:1,512:2,>:4]".to_owned());
                None
            }
        };
    };
    if !(raw.trim().starts_with('[') && raw.trim().ends_with(']')) {
        hints.push("a list begins with '[' and ends with ']'".to_owned());
    }
    let mut entries = Vec::new();
    for entry in inner.split([',', ';']).map(str::trim).filter(|e| !e.is_empty()) {
        let Some((interval, divisions)) = entry.split_once([':', '=']) else {
            hints.push(format!(
                "the list entry '{entry}' lacks its ':' or its value; it is left out"
            ));
            continue;
        };
        let (interval, divisions) = (interval.trim(), divisions.trim());
        let interval = match interval.parse::<u64>() {
            Ok(n) => power(n.max(1), hints).to_string(),
            Err(_) if interval.starts_with('>') => ">".to_owned(),
            Err(_) => {
                hints.push(format!(
                    "the interval '{interval}' is neither a number of MiB nor '>'; it is left out"
                ));
                continue;
            }
        };
        match divisions.parse::<u64>() {
            Ok(0) if zero_is_legal => entries.push(format!("{interval}:0")),
            Ok(n) => entries.push(format!("{interval}:{}", power(n.max(1), hints))),
            Err(_) => hints
                .push(format!("'{divisions}' is no number of divisions; the entry is left out")),
        }
    }
    (!entries.is_empty()).then(|| format!("[{}]", entries.join(",")))
}

/// What stands between brackets, of whatever kind and even if one is missing; nothing for a single
/// number.
fn bracketed(raw: &str) -> Option<String> {
    let trimmed = raw.trim();
    let opened = trimmed.starts_with(['[', '(', '{']);
    let inner = trimmed.trim_start_matches(['[', '(', '{']).trim_end_matches([']', ')', '}']);
    (opened || trimmed.ends_with(']') || inner.contains(':')).then(|| inner.to_owned())
}

fn power(n: u64, hints: &mut Vec<String>) -> u64 {
    let fixed = power_of_two_below(n);
    if fixed != n {
        hints.push(format!("{n} has to be a power of two; {fixed} is the one below it"));
    }
    fixed
}

/// The largest power of two that is not above `n` (1 for 0).
fn power_of_two_below(n: u64) -> u64 {
    1 << n.max(1).ilog2()
}
