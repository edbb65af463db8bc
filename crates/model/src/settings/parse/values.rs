//! The values of the options, each read and checked as PyTorch does.

use super::super::dialect::Dialect;
use super::super::error::Problem;
use super::super::keys::{Key, ROUNDUP_ZERO_SINCE};
use super::super::lint::Code;
use super::super::numbers::{NumberFault, Read, stod, stoi, stoull};
use super::super::{Backend, Config, ROUNDUP_BUCKETS};
use super::{MAX_MB, MIB, Parser, Step, backend_name};

/// Most threads for registering host memory.
const MAX_REGISTER_THREADS: u64 = 128;

impl Parser<'_> {
    pub(super) fn backend(&mut self, v: usize) -> Step<()> {
        let asked = match self.token(v)?.text.as_str() {
            "native" => Backend::Native,
            "cudaMallocAsync" => Backend::CudaMallocAsync,
            other => return Err((Problem::UnknownBackend { found: other.to_owned() }, v)),
        };
        if asked != self.loaded {
            let problem = Problem::BackendChanged {
                loaded: backend_name(self.loaded),
                asked: backend_name(asked),
            };
            return Err((problem, v));
        }
        self.asynchronous = asked == Backend::CudaMallocAsync;
        self.config.backend = asked;
        Ok(())
    }

    /// `max_split_size_mb` and `max_non_split_rounding_mb`, in bytes.
    pub(super) fn split_megabytes(&mut self, v: usize) -> Step<u64> {
        let mb = self.number(v)?.value;
        let minimum = match self.dialect {
            Dialect::Checked => Config::LARGE_SEGMENT_DEFAULT / MIB + 1,
            Dialect::Unified => self.config.large_segment_size / MIB,
        };
        if mb < minimum {
            return Err((Problem::TooSmall { value: mb, minimum }, v));
        }
        Ok(mb.min(MAX_MB) * MIB)
    }

    pub(super) fn reserve_segment(&mut self, v: usize) -> Step<u64> {
        let mb = self.number(v)?.value;
        if mb == 0 {
            return Err((Problem::TooSmall { value: 0, minimum: 1 }, v));
        }
        Ok(mb.saturating_mul(MIB))
    }

    pub(super) fn register_threads(&mut self, v: usize) -> Step<u64> {
        let value = self.number(v)?.value;
        if !value.is_power_of_two() {
            return Err((Problem::NotAPowerOfTwo { value, zero_is_legal: false }, v));
        }
        if value > MAX_REGISTER_THREADS {
            return Err((Problem::TooLarge { value, maximum: MAX_REGISTER_THREADS }, v));
        }
        Ok(value)
    }

    /// `roundup_power2_divisions` (specification §1.5).
    pub(super) fn divisions(&mut self, v: usize) -> Step<usize> {
        if self.token(v)?.text == "[" {
            return self.divisions_list(v);
        }
        let value = self.number(v)?.value;
        if !value.is_power_of_two() {
            return Err((Problem::NotAPowerOfTwo { value, zero_is_legal: false }, v));
        }
        self.config.roundup_power2_divisions = [value; ROUNDUP_BUCKETS];
        Ok(v)
    }

    /// The list that opens at token `open`.
    fn divisions_list(&mut self, open: usize) -> Step<usize> {
        let mut first = true;
        let mut last_bucket = 0;
        let mut i = open + 1;
        while i < self.tokens.len() && self.tokens[i].text != "]" {
            let interval = i;
            self.separator(i + 1, ':', true)?;
            i += 2;
            let value = self.division(i)?;
            if self.tokens[interval].text == ">" {
                // Up to 2.9 from the last bucket named, from 2.10 on from the one behind it.
                let from = last_bucket + usize::from(self.dialect == Dialect::Unified);
                self.config.roundup_power2_divisions[from..].fill(value);
            } else {
                let bucket = self.interval(interval)?;
                if first {
                    self.config.roundup_power2_divisions[..bucket].fill(value);
                    first = false;
                }
                self.config.roundup_power2_divisions[bucket] = value;
                last_bucket = bucket;
            }
            let Some(next) = self.tokens.get(i + 1) else {
                return Err((Problem::UnclosedList, self.tokens.len()));
            };
            if next.text != "]" {
                i += 1;
                self.separator(i, ',', true)?;
            }
            i += 1;
        }
        if i >= self.tokens.len() && self.dialect == Dialect::Unified {
            return Err((Problem::UnclosedList, self.tokens.len()));
        }
        Ok(i)
    }

    fn division(&mut self, v: usize) -> Step<u64> {
        let value = self.number(v)?.value;
        let zero_is_legal = self.version.at_least_2(ROUNDUP_ZERO_SINCE);
        if value.is_power_of_two() || (value == 0 && zero_is_legal) {
            Ok(value)
        } else {
            Err((Problem::NotAPowerOfTwo { value, zero_is_legal }, v))
        }
    }

    /// The bucket of a named interval; intervals have 64 bits in both dialects.
    fn interval(&mut self, v: usize) -> Step<usize> {
        let read = stoull(&self.tokens[v].text);
        let value = self.checked(read, v)?.value;
        if !value.is_power_of_two() {
            return Err((Problem::NotAPowerOfTwo { value, zero_is_legal: false }, v));
        }
        Ok((value.ilog2() as usize).min(ROUNDUP_BUCKETS - 1))
    }

    /// Whether a reserve is usable: a positive fraction of the card, or a number with `G` behind
    /// it.
    pub(super) fn reserve(&mut self, token: &str, v: usize) -> bool {
        let digits = token.strip_suffix(['G', 'g']).unwrap_or(token);
        let plain = digits
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
        let usable = plain && digits.parse::<f64>().is_ok_and(|n| n.is_finite() && n > 0.0);
        if !usable {
            let message = format!(
                "'{token}' is neither a positive fraction like 0.5 nor a size like 40G; PyTorch ignores it with a warning"
            );
            self.warn(Code::ReserveIgnored, v, message);
        }
        usable
    }

    pub(super) fn reserve_list(&mut self, key: &Key, open: usize) -> Step<usize> {
        self.token(open)?;
        let mut i = open;
        while self.token(i + 1)?.text != "]" {
            let name = self.tokens[i + 1].text.clone();
            self.token(i + 2)?;
            let value = self.token(i + 3)?.text.clone();
            i += 3;
            if self.reserve(&value, i) {
                self.unmodelled.push((key.name.to_owned(), format!("{name}:{value}")));
            }
            if self.token(i + 1)?.text == "," {
                i += 1;
            }
        }
        Ok(i + 1)
    }

    pub(super) fn boolean(&mut self, v: usize) -> Step<bool> {
        match self.token(v)?.text.as_str() {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err((Problem::NotABoolean { found: other.to_owned() }, v)),
        }
    }

    pub(super) fn fraction(&mut self, v: usize, closed: bool) -> Step<f64> {
        let found = self.token(v)?.text.clone();
        let value = self.checked(stod(&found), v)?.value;
        let inside = if closed { (0.0..=1.0).contains(&value) } else { value > 0.0 && value < 1.0 };
        if inside { Ok(value) } else { Err((Problem::OutsideInterval { found, closed }, v)) }
    }

    /// A whole number in the width of the dialect.
    pub(super) fn number(&mut self, v: usize) -> Step<Read<u64>> {
        let token = &self.token(v)?.text;
        let read = match self.dialect {
            Dialect::Checked => stoi(token),
            Dialect::Unified => stoull(token),
        };
        let read = self.checked(read, v)?;
        if read.wrapped {
            let message = format!(
                "'{}' wraps around to {}; for a size that means unlimited",
                self.tokens[v].text, read.value
            );
            self.warn(Code::NegativeWraps, v, message);
        }
        Ok(read)
    }

    /// Turns a failed read into a problem, and warns of text behind the number.
    fn checked<T: Copy>(&mut self, read: Result<Read<T>, NumberFault>, v: usize) -> Step<Read<T>> {
        let found = self.tokens[v].text.clone();
        let read = read.map_err(|fault| match fault {
            NumberFault::NotANumber => (Problem::NotANumber { found: found.clone() }, v),
            NumberFault::OutOfRange => (Problem::NumberOutOfRange { found: found.clone() }, v),
        })?;
        if read.used < found.len() {
            let (number, rest) = found.split_at(read.used);
            let message = format!("'{found}' is read as {number}; '{rest}' behind it is ignored");
            self.warn(Code::TextBehindNumber, v, message);
        }
        Ok(read)
    }
}
