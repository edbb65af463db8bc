//! Searches allocator settings by exact replay.
//!
//! Every candidate is the recorded program replayed through the model under other settings, so every
//! figure is a proof under the stated assumptions. [`tune`] tries PyTorch's defaults, the recorded
//! settings, each option's grid refined around the sizes that occur, combinations, and then searches
//! around the best. Memory does not grow with the number of settings: of a replay only its figures stay.

#![forbid(unsafe_code)]

mod candidate;
mod capacity;
mod case;
mod cost;
mod effects;
mod evaluate;
mod grid;
mod jitter;
mod load;
mod search;
mod sizes;

pub use candidate::{Candidate, DeviceCalls};
pub use case::Case;
pub use effects::OptionEffect;
pub use evaluate::Setting;
pub use load::{Load, LoadKind};
pub use search::{Progress, Report, TuneOptions, tune, tune_until};
