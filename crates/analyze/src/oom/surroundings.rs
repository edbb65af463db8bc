//! What the rest of the log says: PyTorch's version, the settings in force, the platform.

use std::collections::BTreeSet;

use vramwise_model::settings::{self, Code, Config, Lint, VARIABLES};
use vramwise_types::TorchVersion;

use super::event::Event;
use super::joiner::Log;
use super::lines::compact;
use super::pattern::find;

/// A settings string found in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSettings {
    /// The variable or the call that sets it.
    pub name: String,
    /// The string.
    pub text: String,
    /// Line of the log, from 1.
    pub line: usize,
    /// The log sets it, rather than recommends it.
    pub in_force: bool,
    /// What is doubtful about the variable and the string.
    pub lints: Vec<Lint>,
}

/// Everything about a log that is no event.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    pub(super) version: Option<TorchVersion>,
    /// The release by whose rules settings strings are read.
    rules: TorchVersion,
    pub(super) settings: Vec<FoundSettings>,
    pub(super) windows: bool,
    pub(super) wsl: bool,
    pub(super) vgpu: bool,
    pub(super) engine: Option<&'static str>,
    pub(super) data_parallel: bool,
    /// Line on which the log sets the limit of the MPS back end, from 1.
    pub(super) mps_ratio_line: Option<usize>,
}

impl Surroundings {
    /// Looks through the whole log.
    pub(super) fn of(log: &Log<'_>, events: &[Event]) -> Self {
        // The hint at the end of an error is no setting, even where it is wrapped out of
        // recognition.
        let errors: BTreeSet<usize> =
            events.iter().flat_map(|e| e.further.iter().copied()).collect();
        let mut out = Self::default();
        out.platform(log.text);
        let any = |words: &[&str]| words.iter().any(|w| log.text.contains(w));
        let settings = any(&["ALLOC_CONF", "llocatorSettings", "allocator_settings"]);
        let mps = any(&[MPS_RATIO]);
        for (index, line) in log.lines.iter().enumerate() {
            let text = line.text;
            if out.version.is_none() && text.contains("orch") {
                out.version = version_in(text);
            }
            if !(settings || mps) || errors.contains(&index) {
                continue;
            }
            if mps && out.mps_ratio_line.is_none() && sets_mps_ratio(text) {
                out.mps_ratio_line = Some(line.number);
            }
            if settings {
                out.settings.extend(settings_in(text, line.number));
            }
        }
        out
    }

    /// Adds what is to be said about the settings, now that the version is known as well as it will
    /// be.
    pub(super) fn lint_settings(&mut self, fallback: Option<TorchVersion>) {
        let oldest = TorchVersion::new(2, 0);
        let version = self.version.or(fallback).unwrap_or(TorchVersion::REFERENCE).max(oldest);
        self.rules = version;
        for found in &mut self.settings {
            found.lints = settings::lint_variable(&found.name, version).into_iter().collect();
            // The program ran (or not) under a release of its own; which others know the option is
            // no matter here.
            let lints = settings::lint(&found.text, version);
            found.lints.extend(lints.into_iter().filter(|l| l.code != Code::NeedsVersion));
        }
    }

    /// The settings string in force whose settings pass a test, if one does. A string that PyTorch
    /// refuses is never in force.
    pub(super) fn in_force(&self, test: impl Fn(&Config) -> bool) -> Option<&FoundSettings> {
        let parsed = |s: &&FoundSettings| {
            settings::parse(&s.text, self.rules).is_ok_and(|p| test(&p.config))
        };
        self.settings.iter().filter(|s| s.in_force).find(parsed)
    }

    /// The string that switches expandable segments on.
    pub(super) fn expandable(&self) -> Option<&FoundSettings> {
        self.in_force(|c| c.expandable_segments)
    }

    fn platform(&mut self, text: &str) {
        let has = |word: &str| text.contains(word);
        self.wsl |= has("WSL2") || has("microsoft-standard") || has("/mnt/c/");
        self.windows |= windows_path(text)
            || has("win_amd64")
            || has("WDDM")
            || has("Windows-10")
            || has("Windows 11");
        self.vgpu |= has("vGPU") || has("GRID ") || has("MIG ") || has(" MIG-");
        self.data_parallel |=
            has("Caught RuntimeError in replica") || has("parallel/data_parallel.py");
        if self.engine.is_none() {
            let engines = [
                ("vLLM", ["vllm", "VllmWorker", "EngineCore"]),
                ("SGLang", ["sglang", "mem-fraction-static", "mem_fraction_static"]),
                ("ComfyUI", ["ComfyUI", "comfy/", "comfy_extras"]),
            ];
            self.engine = engines
                .iter()
                .find(|(_, words)| words.iter().any(|w| has(w)))
                .map(|(name, _)| *name);
        }
    }
}

/// The variable of the MPS back end's limit.
const MPS_RATIO: &str = "PYTORCH_MPS_HIGH_WATERMARK_RATIO";

/// Whether a line sets PYTORCH_MPS_HIGH_WATERMARK_RATIO; the error's own advice to use it does not.
fn sets_mps_ratio(text: &str) -> bool {
    text.match_indices(MPS_RATIO).any(|(at, _)| {
        let advice = is_advice(&text[..at]) != Advice::No;
        !advice && value_behind(&text[at + MPS_RATIO.len()..]).is_some()
    })
}

/// `C:\…` somewhere in the text.
fn windows_path(text: &str) -> bool {
    text.match_indices(":\\").any(|(at, _)| {
        let before = text[..at].bytes().last();
        let after = text[at + 2..].bytes().next();
        before.is_some_and(|b| b.is_ascii_alphabetic())
            && after.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'\\')
    })
}

/// The version of PyTorch that a line names: `torch==2.5.1+cu121`, `PyTorch version: 2.9.0`.
fn version_in(text: &str) -> Option<TorchVersion> {
    let lower = text.to_ascii_lowercase();
    lower.match_indices("torch").find_map(|(at, _)| {
        let before = lower[..at].bytes().last();
        if before.is_some_and(|b| b.is_ascii_alphanumeric()) && !lower[..at].ends_with("py") {
            return None;
        }
        let mut rest = &lower[at + "torch".len()..];
        let separators =
            |c: char| matches!(c, ' ' | '=' | ':' | '"' | '\'' | '_' | '-' | '.' | '|' | '(');
        rest = rest.trim_start_matches(separators);
        rest = rest.strip_prefix("version").unwrap_or(rest);
        rest = rest.trim_start_matches(separators);
        rest = rest.strip_prefix('v').unwrap_or(rest);
        version_at(rest)
    })
}

/// A plausible `major.minor` at the beginning of the text.
fn version_at(text: &str) -> Option<TorchVersion> {
    let (major, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let rest = rest.strip_prefix('.')?;
    let minor = &rest[..rest.bytes().take_while(u8::is_ascii_digit).count()];
    let version = TorchVersion::new(major.parse().ok()?, minor.parse().ok()?);
    let plausible = version.major <= 3 && version.minor <= 40 && major.len() == 1;
    // A size ("torch 2.00 GiB") has two decimals and a unit; a version goes on with a point or a
    // plus.
    let behind = &rest[minor.len()..];
    let sized = behind.trim_start().to_ascii_lowercase();
    let is_size = ["gib", "mib", "gb", "mb", "s", "x", "%"].iter().any(|u| sized.starts_with(u));
    (plausible && !is_size).then_some(version)
}

/// Settings strings in a line, the ones that PyTorch's own hint recommends left out.
fn settings_in(text: &str, line: usize) -> Vec<FoundSettings> {
    let mut out = Vec::new();
    let calls =
        ["_set_allocator_settings", "_accelerator_setAllocatorSettings", "setAllocatorSettings"];
    for name in VARIABLES.into_iter().chain(calls) {
        for (at, _) in text.match_indices(name) {
            let before = &text[..at];
            let part_of_longer =
                before.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
            if part_of_longer {
                continue;
            }
            let Some(value) = value_behind(&text[at + name.len()..]) else { continue };
            if !value.contains(|c: char| c.is_ascii_alphanumeric()) {
                continue;
            }
            let advice = is_advice(before);
            let behind = compact(&text[at..]);
            if advice == Advice::Hint || find(&behind, "toavoidfragmentation", 0).is_some() {
                continue;
            }
            out.push(FoundSettings {
                name: name.to_owned(),
                text: value,
                line,
                in_force: advice == Advice::No,
                lints: Vec::new(),
            });
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Advice {
    /// PyTorch's own hint.
    Hint,
    /// Somebody recommends it.
    Words,
    No,
}

/// Whether the words in front of the variable recommend it.
fn is_advice(before: &str) -> Advice {
    let near = compact(before);
    if near.ends_with(b"trysetting") {
        return Advice::Hint;
    }
    let lower = before.trim_end().to_ascii_lowercase();
    let words = [
        "try",
        "setting",
        "consider",
        "recommend",
        "suggest",
        "you can",
        "please",
        "should",
        "may need to set",
        "might help",
        "avoid",
        ", set",
        "use ",
    ];
    let lower = lower + " ";
    let tail: String = lower.chars().rev().take(40).collect::<Vec<_>>().into_iter().rev().collect();
    if words.iter().any(|w| tail.contains(w)) { Advice::Words } else { Advice::No }
}

/// The value behind a variable's name, in any of the usual notations.
fn value_behind(text: &str) -> Option<String> {
    let rest = text.trim_start_matches(['"', '\'', ']', '\\']).trim_start();
    let mut rest = rest.strip_prefix(['=', ':', ',', '('])?.trim_start();
    rest = rest.trim_start_matches(['\\', '(']);
    if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let inner = &rest[1..];
        let end = inner.find([quote, '\\']).unwrap_or(inner.len());
        return Some(inner[..end].trim().to_owned());
    }
    let mut value = String::new();
    let mut after_comma = false;
    for ch in rest.chars() {
        match ch {
            '"' | '\'' | ';' | ')' | '}' | '`' | '\\' => break,
            c if c.is_whitespace() && !after_comma => break,
            _ => value.push(ch),
        }
        after_comma = ch == ',' || (after_comma && ch.is_whitespace());
    }
    let value = value.trim().trim_end_matches(['.', ',']).to_owned();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_every_notation() {
        for (text, version) in [
            ("torch==2.5.1+cu121", Some((2, 5))),
            ("PyTorch version: 2.9.0+cu130", Some((2, 9))),
            ("- PyTorch 1.13.1", Some((1, 13))),
            ("'torch': '2.1.2'", Some((2, 1))),
            ("torch.__version__ 2.10.0", Some((2, 10))),
            ("torchvision 0.15.2", None),
            ("/pytorch-0.1.12/torch/lib", Some((0, 1))),
            ("pytorch_1595629403081/work", None),
            ("allocated by PyTorch 2.00 GiB", None),
            ("torch 2", None),
        ] {
            assert_eq!(version_in(text), version.map(|(a, b)| TorchVersion::new(a, b)), "{text}");
        }
    }

    fn found(text: &str) -> Vec<(String, bool)> {
        settings_in(text, 1).into_iter().map(|s| (s.text, s.in_force)).collect()
    }

    #[test]
    fn settings_are_found_where_they_are_set() {
        let set = |v: &str| vec![(v.to_owned(), true)];
        assert_eq!(
            found("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"),
            set("max_split_size_mb:128")
        );
        assert_eq!(
            found("os.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"expandable_segments:True\""),
            set("expandable_segments:True")
        );
        assert_eq!(found("{'PYTORCH_CUDA_ALLOC_CONF': 'a:1, b:2', 'X': 1}"), set("a:1, b:2"));
        assert_eq!(found("PYTORCH_ALLOC_CONF: a:1, b:2 next"), set("a:1, b:2"));
        assert_eq!(found("torch.cuda.memory._set_allocator_settings('a:1')"), set("a:1"));
    }

    #[test]
    fn hints_and_warnings_set_nothing() {
        assert_eq!(
            found("is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid"),
            []
        );
        assert_eq!(
            found("See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"),
            []
        );
        assert_eq!(
            found("PYTORCH_CUDA_ALLOC_CONF is deprecated, use PYTORCH_ALLOC_CONF instead"),
            []
        );
        let advised = found("you can set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
        assert_eq!(advised, [("expandable_segments:True".to_owned(), false)]);
    }
}
