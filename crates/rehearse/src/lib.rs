//! Runs a PyTorch program on an emulated GPU and reads what it took.
//!
//! A [`Rehearsal`] is a command and the surroundings it should find. [`Rehearsal::run`] prepares a
//! directory ([`session`]), starts the command in it, once to learn the values that the program asks the
//! device for and once to measure ([`passes`]), and reads what the emulated device and PyTorch's own
//! counters say ([`reports`]). [`evidence`] looks at the recorded history: which line holds the peak, and
//! whether free blocks of equal size could have led elsewhere. [`largest`] searches the largest value that
//! fits. [`measure`] asks a real card what all this has to know of it.
//!
//! Nothing here prints; what the child prints goes where the caller says.

#![forbid(unsafe_code)]

pub mod assume;
mod child;
mod doubts;
mod elf;
mod error;
pub mod evidence;
pub mod largest;
mod libraries;
mod machine;
pub mod measure;
mod outcome;
mod passes;
mod python;
pub mod reports;
mod room;
mod session;

pub use child::{Ended, Streams};
pub use error::RehearsalError;
pub use libraries::library_places;
pub use outcome::{DeviceUse, Outcome, Reads, Verdict};
pub use passes::{Rehearsal, Values};
pub use python::Torch;
