//! Out-of-memory texts: found in any log, taken apart, explained.
//!
//! [`explain_log`] does it all; [`explain_text`] and [`find_events`] give parts. The steps, a file
//! each: lines without white space and colours (`lines`), messages put together over several lines
//! (`joiner`), every known text (`formats`), the search (`scan`), the rest of the log
//! (`surroundings`, `phase`), the arithmetic (`account`), the cause (`diagnose`, `wordless`), the
//! advice (`advice`).
//!
//! Only texts are read here. What a snapshot can prove about an out-of-memory error is another
//! matter.

mod account;
mod advice;
mod amount;
mod cause;
mod diagnose;
mod event;
mod explain;
mod formats;
mod joiner;
mod knowledge;
mod lines;
mod pattern;
mod phase;
mod scan;
mod settle;
mod stamp;
mod surroundings;
mod unknown;
mod wordless;

pub use advice::Advice;
pub use amount::Amount;
pub use cause::Cause;
pub use event::{Age, Event, Form, Hint, Kind, Numbers, ProcessUse};
pub use explain::{Explanation, LogReport, explain_log};
pub use knowledge::{FACTS, Fact};
pub use phase::Phase;
pub use stamp::Stamp;
pub use surroundings::FoundSettings;
pub use unknown::UnknownMention;

/// Every out-of-memory text of a log with its explanation, in order.
pub fn explain_text(text: &str) -> Vec<Explanation> {
    explain_log(text).explanations
}

/// Every out-of-memory text of a log, in order, unexplained.
pub fn find_events(text: &str) -> Vec<Event> {
    scan::scan(&joiner::Log::new(text)).0
}

#[cfg(test)]
mod holders_tests;
#[cfg(test)]
mod neighbours_tests;
#[cfg(test)]
mod other_tests;
#[cfg(test)]
mod tests;
