//! Settings strings that are accepted and still doubtful.

use std::fmt;

use vramwise_types::{GIB, Human, TorchVersion};

use super::dialect::Dialect;
use super::keys::{self, Id};
use super::lexer::{Token, lex};
use super::parse::{Parsed, parse};
use super::{Backend, Config, ROUNDUP_BUCKETS};

/// A remark on a settings string.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lint {
    /// What kind of remark.
    pub code: Code,
    /// The option it concerns.
    pub option: Option<String>,
    /// Byte offset in the string.
    pub offset: usize,
    /// The remark, a sentence.
    pub message: String,
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.code)
    }
}

macro_rules! codes {
    ($($variant:ident => $name:literal: $doc:literal,)*) => {
        /// The kinds of remark. The names are stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $doc] $variant,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The stable name, for scripts.
            pub const fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }
        }
    };
}

codes! {
    Refused => "refused": "The string is refused; the message is the error's.",
    RepeatedOption => "repeated-option": "An option given more than once.",
    WrongSeparator => "wrong-separator": "A separator that only newer releases let pass.",
    TextBehindNumber => "text-behind-number": "Text behind a number that is not read.",
    NegativeWraps => "negative-wraps": "A negative number that wraps around.",
    ReserveIgnored => "reserve-ignored": "A reserve that is ignored with a warning.",
    IgnoredByBackend => "ignored-by-backend": "An option that the chosen backend ignores.",
    NeedsVersion => "needs-version": "An option that older releases refuse.",
    GcNeedsFraction => "gc-needs-fraction": "Garbage collection without the memory fraction that arms it.",
    ThrowNeedsFraction => "throw-needs-fraction": "Early rejection without the memory fraction that arms it.",
    RoundingNeedsSplit => "rounding-needs-split": "max_non_split_rounding_mb without max_split_size_mb.",
    ReserveNeedsExpandable => "reserve-needs-expandable": "A reserve without expandable segments.",
    ThreadsNeedRegister => "threads-need-register": "Register threads without host registration.",
    SplitWithExpandable => "split-with-expandable": "max_split_size_mb together with expandable segments.",
    GcWithExpandable => "gc-with-expandable": "Garbage collection together with expandable segments.",
    LimitAboveCard => "limit-above-card": "A size limit that no block can reach.",
    RoundupArrow => "roundup-arrow": "A '>' entry whose reach depends on the release.",
    RoundupGap => "roundup-gap": "Size classes between two listed ones that are left without rounding.",
    RoundupNoEffect => "roundup-no-effect": "Divisions that round nothing.",
    RoundupEverySize => "roundup-every-size": "The old syntax of one number, which rounds small and huge sizes alike.",
    FractionZero => "fraction-zero": "A memory fraction that allows nothing.",
    Variable => "variable": "The environment variable, not the string.",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The memory of the largest card on sale that is known here (2026); larger limits bind nothing.
const LARGEST_CARD: u64 = 288 * GIB;

/// Everything doubtful about a string under that release. A string that is refused yields one
/// remark with the error in it; an empty result means that nothing speaks against the string.
pub fn lint(text: &str, version: TorchVersion) -> Vec<Lint> {
    lint_for_card(text, version, None)
}

/// As [`lint`], for a card of known size.
pub fn lint_for_card(text: &str, version: TorchVersion, card_bytes: Option<u64>) -> Vec<Lint> {
    match parse(text, version) {
        Err(error) => vec![Lint {
            code: Code::Refused,
            option: error.option.clone(),
            offset: error.offset,
            message: error.to_string(),
        }],
        Ok(parsed) => {
            let tokens = lex(text, Dialect::of(version));
            let mut linter = Linter { tokens, version, card_bytes, lints: parsed.warnings.clone() };
            linter.run(&parsed);
            linter.lints
        }
    }
}

struct Linter {
    tokens: Vec<Token>,
    version: TorchVersion,
    card_bytes: Option<u64>,
    lints: Vec<Lint>,
}

impl Linter {
    fn run(&mut self, parsed: &Parsed) {
        let config = &parsed.config;
        self.versions();
        if config.backend == Backend::CudaMallocAsync {
            return; // everything else is ignored, and that has been said
        }
        self.dependencies(parsed);
        self.conflicts(config);
        self.limits(config);
        self.roundup(config);
    }

    /// Token index of the key of an option, if the string names it.
    fn key_of(&self, id: Id) -> Option<usize> {
        self.tokens
            .iter()
            .position(|t| keys::known(&t.text, self.version).is_some_and(|k| k.id == id))
    }

    fn add(&mut self, code: Code, id: Id, message: impl Into<String>) {
        let at = self.key_of(id).and_then(|i| self.tokens.get(i));
        let option = at.map(|t| t.text.clone());
        let offset = at.map_or(0, |t| t.start);
        self.lints.push(Lint { code, option, offset, message: message.into() });
    }

    fn versions(&mut self) {
        let mut found: Vec<(String, usize, TorchVersion)> = Vec::new();
        for token in &self.tokens {
            if let Some(key) = keys::known(&token.text, self.version)
                && key.since > 0
                && found.iter().all(|(name, ..)| *name != token.text)
            {
                found.push((token.text.clone(), token.start, key.since()));
            }
        }
        for (name, offset, since) in found {
            let message = format!(
                "{name} needs PyTorch {since} or later; older releases refuse the whole string"
            );
            self.lints.push(Lint { code: Code::NeedsVersion, option: Some(name), offset, message });
        }
    }

    fn dependencies(&mut self, parsed: &Parsed) {
        let config = &parsed.config;
        let limited = config.per_process_memory_fraction < 1.0;
        if config.garbage_collection_threshold > 0.0 && !limited {
            let how = if self.version.at_least_2(10) {
                "torch.cuda.set_per_process_memory_fraction or per_process_memory_fraction"
            } else {
                "torch.cuda.set_per_process_memory_fraction"
            };
            self.add(
                Code::GcNeedsFraction,
                Id::GarbageCollectionThreshold,
                format!("garbage_collection_threshold does nothing unless a memory fraction below 1 is set as well ({how})"),
            );
        }
        if config.throw_on_cudamalloc_oom && !limited {
            self.add(
                Code::ThrowNeedsFraction,
                Id::ThrowOnCudamallocOom,
                "throw_on_cudamalloc_oom rejects early only against a memory fraction below 1",
            );
        }
        let rounding = self.key_of(Id::MaxNonSplitRounding).is_some();
        if rounding && config.max_split_size == u64::MAX {
            self.add(
                Code::RoundingNeedsSplit,
                Id::MaxNonSplitRounding,
                "max_non_split_rounding_mb matters only together with max_split_size_mb",
            );
        }
        if !parsed.config.expandable_segments
            && parsed
                .unmodelled
                .iter()
                .any(|(name, _)| name.starts_with("expandable_segments_reserve"))
        {
            let id = match self.key_of(Id::ExpandableSegmentsReserve) {
                Some(_) => Id::ExpandableSegmentsReserve,
                None => Id::ExpandableSegmentsReserveByClass,
            };
            self.add(
                Code::ReserveNeedsExpandable,
                id,
                "a reserve for expandable segments has no effect without expandable_segments:True",
            );
        }
        if config.pinned_num_register_threads > 1 && !config.pinned_use_cuda_host_register {
            self.add(
                Code::ThreadsNeedRegister,
                Id::PinnedNumRegisterThreads,
                "pinned_num_register_threads has no effect without pinned_use_cuda_host_register:True",
            );
        }
    }

    fn conflicts(&mut self, config: &Config) {
        if !config.expandable_segments {
            return;
        }
        if config.max_split_size != u64::MAX {
            let message = if self.version.at_least_2(3) {
                "with expandable_segments:True blocks are split whatever max_split_size_mb says; it only keeps smaller requests off free blocks of that size or more"
            } else {
                "max_split_size_mb together with expandable_segments:True trips an internal assertion in 2.1 and 2.2"
            };
            self.add(Code::SplitWithExpandable, Id::MaxSplitSize, message);
        }
        if config.garbage_collection_threshold > 0.0 {
            self.add(
                Code::GcWithExpandable,
                Id::GarbageCollectionThreshold,
                "garbage collection skips expandable segments; with expandable_segments:True nearly all memory is expandable",
            );
        }
    }

    fn limits(&mut self, config: &Config) {
        let card = self.card_bytes.unwrap_or(LARGEST_CARD);
        let whose = if self.card_bytes.is_some() { "this card" } else { "any card" };
        for (id, name, value) in [
            (Id::MaxSplitSize, "max_split_size_mb", config.max_split_size),
            (Id::LargeSegmentSize, "large_segment_size_mb", config.large_segment_size),
        ] {
            if value >= card && value < u64::MAX && self.key_of(id).is_some() {
                let effect = if id == Id::MaxSplitSize {
                    "so nothing is ever above it and it changes nothing"
                } else {
                    "so the first request between 1 and 10 MiB fails"
                };
                self.add(
                    Code::LimitAboveCard,
                    id,
                    format!("{name} is {}, more than {whose} has, {effect}", Human(value)),
                );
            }
        }
        if config.per_process_memory_fraction == 0.0 {
            self.add(
                Code::FractionZero,
                Id::PerProcessMemoryFraction,
                "per_process_memory_fraction:0 allows no allocation at all",
            );
        }
    }

    fn roundup(&mut self, config: &Config) {
        let id = Id::RoundupPower2Divisions;
        let Some(key) = self.key_of(id) else { return };
        let divisions = &config.roundup_power2_divisions;
        if divisions.iter().all(|d| *d <= 1) {
            self.add(Code::RoundupNoEffect, id, "0 and 1 divisions round nothing up");
            return;
        }
        let value = self.tokens.get(key + 2).map_or("", |t| t.text.as_str());
        if value != "[" {
            let message = format!(
                "one number rounds every size up by as much as 1/{value} of the power of two below it; a list in brackets can leave large sizes alone"
            );
            self.add(Code::RoundupEverySize, id, message);
            return;
        }
        if let Some(message) = self.arrow(key) {
            self.add(Code::RoundupArrow, id, message);
        }
        if let Some(message) = gap(divisions) {
            self.add(Code::RoundupGap, id, message);
        }
    }

    /// Says what a `>` entry means before and from 2.10, where that differs.
    fn arrow(&self, key: usize) -> Option<String> {
        let list = &self.tokens[key..];
        let arrow = list.iter().position(|t| t.text == ">")?;
        let (value, before) = (list.get(arrow + 2)?, list.get(arrow.checked_sub(2)?)?);
        let interval = list.get(arrow.checked_sub(4)?)?;
        if before.text == value.text || interval.text.parse::<u64>().is_err() {
            return None;
        }
        Some(format!(
            "'>:{0}' begins behind the interval {1} from 2.10 on; up to 2.9 it begins with it, so there {1} gets {0} instead of {2}",
            value.text, interval.text, before.text
        ))
    }
}

/// Names the size classes between two listed ones that stay at 0.
fn gap(divisions: &[u64; ROUNDUP_BUCKETS]) -> Option<String> {
    let first = divisions.iter().position(|d| *d > 1)?;
    let last = divisions.iter().rposition(|d| *d > 1)?;
    let holes: Vec<String> =
        (first..last).filter(|i| divisions[*i] == 0).map(|i| format!("{}", 1_u64 << i)).collect();
    (!holes.is_empty()).then(|| {
        format!(
            "the intervals {} MiB lie between listed ones and get no rounding; list them if that is not meant",
            holes.join(", ")
        )
    })
}
