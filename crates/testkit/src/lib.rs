//! What the tests, the fuzz runner and the benchmarks of the workspace share: generators.
//!
//! Everything is a function of a seed ([`Rng`]), so that a failure can be had again on any machine.
//! Nothing here is part of the product; other crates use it as a dev-dependency only.
//!
//! - [`allocator`]: a reference allocator, random programs, and the simulation that compares it with the model.
//! - [`training`]: a program that allocates as training does, run on the allocator's model.
//! - [`snapshot`]: the snapshot that PyTorch would have dumped of such a run, as a pickle.
//! - [`conf`]: random settings strings.

#![forbid(unsafe_code)]

pub mod allocator;
pub mod conf;
pub mod pickler;
mod rng;
pub mod snapshot;
pub mod training;

pub use rng::Rng;
