//! A progress bar on standard error: only on a terminal, and only if the work takes long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done sooner shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Progress of one piece of work; may be advanced from several threads.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    /// Whether a bar may be drawn at all.
    wanted: bool,
    drawn: AtomicBool,
}

impl Progress {
    /// Progress towards `total` steps of `doing` ("trying settings").
    pub(crate) fn new(doing: &str, total: u64, wanted: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let template = "{msg} {bar:30} {human_pos}/{human_len} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(doing.to_owned());
        Self { bar, started: Instant::now(), wanted, drawn: AtomicBool::new(false) }
    }

    /// Says that more steps than thought will be needed.
    pub(crate) fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Says that `done` steps are done.
    pub(crate) fn set(&self, done: u64) {
        if self.wanted
            && !self.drawn.load(Ordering::Relaxed)
            && self.started.elapsed() >= PATIENCE
            && !self.drawn.swap(true, Ordering::Relaxed)
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
