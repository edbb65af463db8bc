//! Out-of-memory texts: found in any log, taken apart, explained.

mod amount;
mod event;
mod formats;
mod joiner;
mod lines;
mod pattern;
mod scan;

pub use amount::Amount;
pub use event::{Age, Event, Form, Hint, Kind, Numbers, ProcessUse};

/// Every out-of-memory text of a log, in order.
pub fn find_events(text: &str) -> Vec<Event> {
    scan::scan(&joiner::Log::new(text))
}

#[cfg(test)]
mod tests;
