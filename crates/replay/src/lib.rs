//! Replays a recorded allocator history through the model.
//!
//! [`Recording::verify`] replays a history under its own settings, compares every prediction with the
//! recording, and recovers the program; [`what_if`] replays that program under other conditions. The
//! inference rules and their accuracy are in specification §16 and §17.

#![forbid(unsafe_code)]

mod checker;
mod cut;
mod divergence;
mod drop_in;
mod emit;
mod feed;
mod final_state;
mod history;
mod impossible;
mod pools;
mod program;
mod recording;
mod requests;
mod settings;
mod start;
mod tables;
mod ties;
mod verify;
mod what_if;

pub use cut::{Cut, Cuts};
pub use divergence::Divergence;
pub use drop_in::{DropIn, drop_in};
pub use emit::replayed_snapshot;
pub use program::{Op, Program, ReleaseScope};
pub use recording::{Agreement, Agreements, Recording, VerifyOptions};
pub use settings::{Under, recorded_config, recorded_under};
pub use vramwise_arena::Params as DropInParams;
pub use what_if::{
    ANY_CARD, Addresses, Conditions, Observer, OutOfMemory, Outcome, Unobserved, what_if,
    what_if_observed,
};
