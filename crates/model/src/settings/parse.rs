//! The parser: the same strings accepted, and the same settings out of them, as in a given PyTorch
//! release.
//!
//! It follows PyTorch's parser token by token, odd ends included, because what is wanted is not
//! what a string should mean but what it does. Two dialects exist, see [`super::dialect`].

use vramwise_types::TorchVersion;

use super::dialect::Dialect;
use super::error::{Problem, Refusal, SettingsError};
use super::keys::{self, Id, Key, Reader};
use super::lexer::{Token, lex};
use super::lint::{Code, Lint};
use super::load::loaded_backend;
use super::reaction::reaction;
use super::suggest;
use super::{Backend, Config, ROUNDUP_BUCKETS};

mod values;

const MIB: u64 = 1 << 20;
/// The most MiB that fit in 64 bits of bytes; larger values are cut to it.
const MAX_MB: u64 = u64::MAX / MIB;
/// `kMinLargeAlloc` in MiB: a large segment has to be larger.
const MIN_LARGE_MB: u64 = 10;
/// An accepted settings string.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The settings in force.
    pub config: Config,
    /// What was accepted although it looks like a mistake.
    pub warnings: Vec<Lint>,
    /// Options that were accepted and that [`Config`] does not carry (host memory, address
    /// reservations), with their values, in order.
    pub unmodelled: Vec<(String, String)>,
}

/// Reads the settings string of a process that starts.
///
/// # Errors
/// [`SettingsError`] if that release refuses the string.
pub fn parse(text: &str, version: TorchVersion) -> Result<Parsed, SettingsError> {
    finish(text, version, parse_raw(None, text, version))
}

/// Reads a settings string that a running process sets, as
/// `torch.cuda.memory._set_allocator_settings` does.
///
/// Of the previous settings `max_split_size_mb`, `roundup_power2_divisions` and
/// `garbage_collection_threshold` go back to their defaults first (from 2.11 also
/// `max_non_split_rounding_mb`, to the large segment size); all others stay unless the string
/// mentions them.
///
/// # Errors
/// [`SettingsError`] if that release refuses the string. PyTorch keeps the resets in that case.
pub fn parse_onto(
    previous: &Config,
    text: &str,
    version: TorchVersion,
) -> Result<Parsed, SettingsError> {
    finish(text, version, parse_raw(Some(previous), text, version))
}

fn finish(
    text: &str,
    version: TorchVersion,
    result: Result<Parsed, Fault>,
) -> Result<Parsed, SettingsError> {
    result.map_err(|fault| {
        let reaction = reaction(&fault, text, version);
        let advice = suggest::advise(text, version, &fault);
        SettingsError::from(Refusal {
            text: text.to_owned(),
            version,
            problem: fault.problem,
            option: fault.option.map(str::to_owned),
            offset: fault.offset,
            reaction,
            hints: advice.hints,
            suggestion: advice.suggestion,
        })
    })
}

/// A refusal, before anything is said about what was meant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) problem: Problem,
    pub(super) option: Option<&'static str>,
    pub(super) offset: usize,
}

/// The parse without advice; [`suggest`] checks its proposals with it.
pub(super) fn parse_raw(
    previous: Option<&Config>,
    text: &str,
    version: TorchVersion,
) -> Result<Parsed, Fault> {
    let dialect = Dialect::of(version);
    let tokens = lex(text, dialect);
    let loaded = match previous {
        Some(config) => config.backend,
        None => loaded_backend(text, &tokens, dialect),
    };
    let mut parser = Parser {
        tokens: &tokens,
        text_len: text.len(),
        version,
        dialect,
        loaded,
        config: previous.cloned().unwrap_or_default(),
        warnings: Vec::new(),
        unmodelled: Vec::new(),
        seen: Vec::new(),
        native_only: None,
        asynchronous: false,
        option: None,
    };
    let outcome = parser.run();
    let option = parser.option;
    outcome.map_err(|(problem, at)| Fault { problem, option, offset: parser.offset(at) })?;
    parser.warn_about_ignored_options();
    let Parser { config, warnings, unmodelled, .. } = parser;
    Ok(Parsed { config, warnings, unmodelled })
}

/// A refusal at a token (by index; beyond the last = at the end of the string).
type Step<T> = Result<T, (Problem, usize)>;

struct Parser<'a> {
    tokens: &'a [Token],
    text_len: usize,
    version: TorchVersion,
    dialect: Dialect,
    /// The backend chosen at load time.
    loaded: Backend,
    config: Config,
    warnings: Vec<Lint>,
    unmodelled: Vec<(String, String)>,
    /// Options met so far in this pass, for repeats.
    seen: Vec<Id>,
    /// The first option that only the native backend obeys.
    native_only: Option<(&'static str, usize)>,
    asynchronous: bool,
    /// The option at work, for messages.
    option: Option<&'static str>,
}

impl Parser<'_> {
    fn run(&mut self) -> Step<()> {
        self.config.max_split_size = u64::MAX;
        self.config.roundup_power2_divisions = [0; ROUNDUP_BUCKETS];
        self.config.garbage_collection_threshold = 0.0;
        match self.dialect {
            Dialect::Checked => self.pass(None),
            Dialect::Unified => {
                if self.version.at_least_2(11) {
                    self.read_large_segment_size_first()?;
                }
                self.pass(Some(Reader::Common))?;
                self.seen.clear();
                self.pass(Some(Reader::Device))
            }
        }
    }

    /// Every token is looked at as a key, a value too: `max_split_size_mb:large_segment_size_mb:30`
    /// finds it.
    fn read_large_segment_size_first(&mut self) -> Step<()> {
        let mut i = 0;
        while i < self.tokens.len() {
            if self.tokens[i].text == "large_segment_size_mb" {
                self.option = Some("large_segment_size_mb");
                let mb = self.number(i + 2)?.value;
                if mb <= MIN_LARGE_MB {
                    return Err((
                        Problem::TooSmall { value: mb, minimum: MIN_LARGE_MB + 1 },
                        i + 2,
                    ));
                }
                self.config.large_segment_size = mb.min(MAX_MB) * MIB;
                self.option = None;
                i += 2;
            }
            i += 1;
        }
        self.config.max_non_split_rounding = self.config.large_segment_size;
        Ok(())
    }

    /// One walk over the tokens. `reader` says which options it reads and which it only steps over;
    /// without one (checked dialect) it reads all.
    fn pass(&mut self, reader: Option<Reader>) -> Step<()> {
        let mut i = 0;
        while i < self.tokens.len() {
            self.option = None;
            let name = self.tokens[i].text.as_str();
            let Some(key) = keys::known(name, self.version) else {
                let since = keys::named(name).map(Key::since);
                return Err((Problem::UnknownOption { name: name.to_owned(), since }, i));
            };
            self.option = Some(key.name);
            let read_here = reader.is_none_or(|r| r == key.reader)
                && !(key.id == Id::LargeSegmentSize && reader.is_some());
            i = if read_here {
                self.note_repeat(key, i);
                self.option_at(key, i)?
            } else {
                self.step_over(i)?
            };
            if i + 1 < self.tokens.len() {
                i += 1;
                // Both passes walk alike; the separators are reported once.
                self.separator(i, ',', reader != Some(Reader::Device))?;
            }
            i += 1;
        }
        self.option = None;
        Ok(())
    }

    fn note_repeat(&mut self, key: &Key, i: usize) {
        if self.seen.contains(&key.id) {
            let message = format!("{} is given more than once; the last one counts", key.name);
            self.warn(Code::RepeatedOption, i, message);
        }
        self.seen.push(key.id);
    }

    /// Index of the value token, or of the closing bracket, of an option that this pass does not
    /// read.
    fn step_over(&mut self, i: usize) -> Step<usize> {
        let value = i + 2;
        if self.token(value)?.text != "[" {
            return Ok(value);
        }
        let closing = self.tokens[value..].iter().position(|t| t.text == "]");
        closing.map(|n| value + n).ok_or((Problem::UnclosedList, self.tokens.len()))
    }

    /// Reads the option whose key is token `i`; returns the index of the last token used.
    fn option_at(&mut self, key: &Key, i: usize) -> Step<usize> {
        self.separator(i + 1, ':', true)?;
        let v = i + 2;
        if key.id != Id::Backend && self.native_only.is_none() {
            self.native_only = Some((key.name, i));
        }
        match key.id {
            Id::Backend => self.backend(v)?,
            Id::MaxSplitSize => self.config.max_split_size = self.split_megabytes(v)?,
            Id::MaxNonSplitRounding => {
                self.config.max_non_split_rounding = self.split_megabytes(v)?;
            }
            Id::LargeSegmentSize => {}
            Id::GarbageCollectionThreshold => {
                self.config.garbage_collection_threshold = self.fraction(v, false)?;
            }
            Id::RoundupPower2Divisions => return self.divisions(v),
            Id::ExpandableSegments => self.config.expandable_segments = self.boolean(v)?,
            Id::PerProcessMemoryFraction => {
                self.config.per_process_memory_fraction = self.fraction(v, true)?;
            }
            Id::GraphCaptureRecordStreamReuse => {
                self.config.graph_capture_record_stream_reuse = self.boolean(v)?;
            }
            Id::ReleaseLockOnCudamalloc => {
                self.config.release_lock_on_cudamalloc = self.boolean(v)?;
            }
            Id::ThrowOnCudamallocOom => self.config.throw_on_cudamalloc_oom = self.boolean(v)?,
            Id::PinnedUseCudaHostRegister => {
                self.config.pinned_use_cuda_host_register = self.boolean(v)?;
            }
            Id::PinnedNumRegisterThreads => {
                self.config.pinned_num_register_threads = self.register_threads(v)?;
            }
            Id::PinnedUseBackgroundThreads => {
                self.config.pinned_use_background_threads = self.boolean(v)?;
            }
            Id::PinnedReserveSegmentSize => {
                self.config.pinned_reserve_segment_size = self.reserve_segment(v)?;
            }
            Id::PinnedFreeCatchAll => {
                self.boolean(v)?;
                self.keep_aside(key, v);
            }
            Id::PinnedMaxRoundThreshold | Id::PinnedMaxCachedSize => {
                self.number(v)?;
                self.keep_aside(key, v);
            }
            Id::ExpandableSegmentsReserve => {
                let token = self.token(v)?.text.clone();
                if self.reserve(&token, v) {
                    self.keep_aside(key, v);
                }
            }
            Id::ExpandableSegmentsReserveByClass => return self.reserve_list(key, v),
        }
        Ok(v)
    }

    fn keep_aside(&mut self, key: &Key, v: usize) {
        self.unmodelled.push((key.name.to_owned(), self.tokens[v].text.clone()));
    }

    fn token(&self, i: usize) -> Step<&Token> {
        self.tokens.get(i).ok_or((Problem::EndsEarly, self.tokens.len()))
    }

    /// Passes over the separator at `i`. The unified dialect only wants some token to be there.
    fn separator(&mut self, i: usize, expected: char, report: bool) -> Step<()> {
        let found = self.tokens.get(i).map(|t| t.text.clone());
        let matches = found.as_deref().is_some_and(|t| t.len() == 1 && t.starts_with(expected));
        match (self.dialect, found) {
            _ if matches => {}
            (Dialect::Checked, found) => {
                return Err((Problem::ExpectedSeparator { expected, found }, i));
            }
            (Dialect::Unified, None) => return Err((Problem::EndsEarly, i)),
            (Dialect::Unified, Some(found)) => {
                if report {
                    let message = format!(
                        "'{found}' stands where '{expected}' belongs; this release does not check it, up to 2.9 the string is an error"
                    );
                    self.warn(Code::WrongSeparator, i, message);
                }
            }
        }
        Ok(())
    }

    fn warn(&mut self, code: Code, token: usize, message: String) {
        let lint = Lint {
            code,
            option: self.option.map(str::to_owned),
            offset: self.offset(token),
            message,
        };
        // The walk for the large segment size and the passes may meet the same token.
        if !self.warnings.contains(&lint) {
            self.warnings.push(lint);
        }
    }

    fn offset(&self, token: usize) -> usize {
        self.tokens.get(token).map_or(self.text_len, |t| t.start)
    }

    fn warn_about_ignored_options(&mut self) {
        if let (true, Some((name, token))) = (self.asynchronous, self.native_only) {
            self.option = Some(name);
            let message = format!("backend:cudaMallocAsync ignores {name} and every other option");
            self.warn(Code::IgnoredByBackend, token, message);
        }
    }
}

/// The name of a backend in a settings string.
pub(super) fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Native => "native",
        Backend::CudaMallocAsync => "cudaMallocAsync",
    }
}
