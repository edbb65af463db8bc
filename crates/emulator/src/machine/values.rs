//! Values that the program reads back from the device.
//!
//! Kernels do nothing, so what a copy to the host finds may be anything. Two passes give the truth where it
//! can be known: in the first, values are computed on the host beside the program and every small copy is
//! logged; in the second, which runs undisturbed, the copies are answered from that log in order. Each process has
//! its own (`vramwise_values`), which is opened when it first reads a value.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use vramwise_values::Line;

use super::operation;
use crate::config::{self, Mode};

/// How far an answer of the right size is looked for when the program reads something else than logged.
const WINDOW: usize = 64;
/// How many differences are described.
const DETAILS: usize = 20;

thread_local! {
    /// What the next copies to the host of this thread give, told by the value layer.
    static NEXT: RefCell<VecDeque<Vec<u8>>> = const { RefCell::new(VecDeque::new()) };
    /// Whether it is not the program that reads now, but a compiler that runs in one pass only.
    static COMPILING: Cell<bool> = const { Cell::new(false) };
}

/// From now on, what the calling thread reads is a compiler's business, or the program's again: the log has no entries
/// for the former.
pub(crate) fn tell_compiling(now: bool) {
    COMPILING.set(now);
}

/// The next small copy to the host by the calling thread gives these bytes, behind those told before; no bytes
/// take back what was told and not asked for.
pub(crate) fn tell_next(bytes: Vec<u8>) {
    NEXT.with_borrow_mut(
        |next| if bytes.is_empty() { next.clear() } else { next.push_back(bytes) },
    );
}

/// What was told for a copy of this size.
fn told(bytes: usize) -> Option<Vec<u8>> {
    NEXT.with_borrow_mut(|next| next.pop_front_if(|front| front.len() == bytes))
}

/// State of the log.
#[derive(Default)]
pub(crate) struct Values {
    mode: Mode,
    /// The log of the rehearsal, from whose name those of all processes are made.
    base: Option<PathBuf>,
    /// Which process this is among those of the program; empty for the first.
    pub(crate) process: String,
    /// The process that has opened its log.
    opened_by: u32,
    log: Option<BufWriter<File>>,
    answers: VecDeque<Line>,
    next: u64,
    /// Copies answered from the log, by the value layer, or from what the program had just put there.
    pub(crate) answered: u64,
    /// Of these, the ones whose answers a real card gave.
    pub(crate) measured: u64,
    /// Copies of which nothing is known.
    pub(crate) unknown: u64,
    /// Copies to the host that were too large to be carried: they gave zeros.
    pub(crate) large: u64,
    /// Copies whose size was not the logged one.
    pub(crate) mismatches: u64,
    /// Places in the log where numbers of lines do not follow one another.
    pub(crate) breaks: u64,
    pub(crate) details: Vec<String>,
    /// What is wrong with the log.
    pub(crate) complaints: Vec<String>,
}

impl Values {
    pub(crate) fn new(config: &config::Values) -> Self {
        Self { mode: config.mode, base: config.file.clone(), ..Self::default() }
    }

    /// Opens this process's log, when the first value is read.
    fn open(&mut self) {
        let pid = std::process::id();
        if self.opened_by == pid {
            return;
        }
        // What a fork brought along is the parent's.
        self.opened_by = pid;
        self.answers.clear();
        if let Some(log) = self.log.take() {
            std::mem::forget(log);
        }
        if let Err(complaint) = self.open_log() {
            self.complaints.push(complaint);
        }
    }

    fn open_log(&mut self) -> Result<(), String> {
        let Some(base) = &self.base else { return Ok(()) };
        let learns = self.mode == Mode::Learn;
        let path = vramwise_values::claim(base, &self.process, learns)?;
        let said = |error: io::Error| format!("{}: {error}", path.display());
        if learns {
            self.log = Some(BufWriter::new(File::create(&path).map_err(said)?));
            return Ok(());
        }
        match vramwise_values::read(&path) {
            Ok((lines, complaints)) => {
                self.breaks = vramwise_values::breaks(&lines);
                self.answers = lines.into();
                self.complaints.extend(complaints);
            }
            // The process had nothing to read in the first pass.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(said(error)),
        }
        Ok(())
    }

    /// A small copy to the host: the bytes that it gives. `found` is what memory holds, which is `certain` where the
    /// program put it there and no kernel ran since; where nobody knows better, what is not certain reads as zeros,
    /// never as what another block left behind.
    pub(crate) fn answer(&mut self, from: u64, found: Vec<u8>, certain: bool) -> Vec<u8> {
        let told = told(found.len());
        if COMPILING.get() {
            return told.unwrap_or(found);
        }
        if self.mode != Mode::Off {
            self.open();
        }
        match self.mode {
            Mode::Off if certain => {
                self.answered += 1;
                found
            }
            Mode::Off => {
                self.unknown += 1;
                told.unwrap_or_else(|| vec![0; found.len()])
            }
            Mode::Learn => {
                let bytes = told.unwrap_or_else(|| operation::readable(from, found, certain));
                let line = Line::new(self.next, &bytes, false);
                self.next += 1;
                if let Some(log) = &mut self.log {
                    let _ = log.write_all(line.text().as_bytes());
                }
                self.answered += 1;
                bytes
            }
            Mode::Answer => self.as_logged(found, certain),
        }
    }

    fn as_logged(&mut self, found: Vec<u8>, certain: bool) -> Vec<u8> {
        let fits = |line: &Line| line.bytes == found.len();
        let at = self.answers.iter().take(WINDOW).position(fits);
        if at != Some(0) {
            // Behind the log's end there is no size to differ from.
            self.mismatches += u64::from(!self.answers.is_empty());
            if self.details.len() < DETAILS {
                let logged = self
                    .answers
                    .front()
                    .map_or("nothing more".to_owned(), |l| format!("{} bytes", l.bytes));
                let read = found.len();
                self.details.push(format!(
                    "read {read} bytes where the log has {logged} (entry {})",
                    self.next
                ));
            }
        }
        let line = at.and_then(|skip| self.answers.drain(..=skip).next_back());
        match line.and_then(|line| {
            self.next = line.n.saturating_add(1);
            line.content().map(|bytes| (bytes, line.measured))
        }) {
            Some((bytes, measured)) => {
                self.answered += 1;
                self.measured += u64::from(measured);
                bytes
            }
            None => {
                self.unknown += 1;
                if certain { found } else { vec![0; found.len()] }
            }
        }
    }

    /// Answers of the log that nothing has asked for.
    pub(crate) fn unread(&self) -> usize {
        let own = self.mode == Mode::Answer && self.opened_by == std::process::id();
        if own { self.answers.len() } else { 0 }
    }

    /// Writes what is buffered. What a fork brought along the parent writes.
    pub(crate) fn flush(&mut self) {
        let own = self.opened_by == std::process::id();
        if let Some(log) = self.log.as_mut().filter(|_| own) {
            let _ = log.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answering(sizes: &[usize]) -> Values {
        let line = |(n, &bytes): (usize, &usize)| Line {
            n: n as u64,
            bytes,
            hex: format!("{n:02x}").repeat(bytes),
            measured: n == 0,
        };
        let answers = sizes.iter().enumerate().map(line).collect();
        Values { mode: Mode::Answer, answers, opened_by: std::process::id(), ..Values::default() }
    }

    #[test]
    fn copies_are_answered_in_order() {
        let mut values = answering(&[4, 1]);
        assert_eq!(values.answer(0, vec![9; 4], false), [0; 4]);
        assert_eq!(values.answer(0, vec![9], false), [1]);
        assert_eq!((values.answered, values.unknown, values.mismatches), (2, 0, 0));
        assert_eq!((values.measured, values.unread()), (1, 0));
        assert_eq!(answering(&[4, 1]).unread(), 2);
    }

    #[test]
    fn what_a_compiler_reads_is_not_in_the_log() {
        let mut values = answering(&[4]);
        tell_compiling(true);
        assert_eq!(values.answer(0, vec![9; 4], false), [9; 4]);
        tell_compiling(false);
        assert_eq!(values.answer(0, vec![9; 4], false), [0; 4]);
        assert_eq!((values.answered, values.unknown, values.mismatches), (1, 0, 0));
    }

    #[test]
    fn a_copy_that_was_not_logged_is_noted_and_the_rest_found_again() {
        let mut values = answering(&[4, 8, 1]);
        assert_eq!(values.answer(0, vec![9; 8], false), [1; 8], "the entry of 4 bytes is skipped");
        assert_eq!(values.answer(0, vec![9; 2], true), [9; 2]);
        assert_eq!(values.answer(0, vec![9], false), [2]);
        assert_eq!((values.answered, values.unknown, values.mismatches), (2, 1, 2));
        assert_eq!(values.details[0], "read 8 bytes where the log has 4 bytes (entry 0)");
    }

    #[test]
    fn what_nobody_knows_is_zero_and_never_what_memory_held() {
        let mut nothing_logged = answering(&[]);
        assert_eq!(nothing_logged.answer(0, vec![9; 8], false), [0; 8]);
        assert_eq!((nothing_logged.unknown, nothing_logged.mismatches), (1, 0));
        let mut off = Values { mode: Mode::Off, ..Values::default() };
        assert_eq!(off.answer(0, vec![9; 8], false), [0; 8]);
        assert_eq!(off.answer(0, vec![9; 8], true), [9; 8]);
        assert_eq!((off.answered, off.unknown), (1, 1));
    }
}
