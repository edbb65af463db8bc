//! What the tests of the allocator model share: a watched device, a literal reference allocator, random
//! programs, and the drivers that run model and reference side by side.

pub mod device;
pub mod lockstep;
pub mod program;
pub mod reference;
pub mod settings;
pub mod simulate;
