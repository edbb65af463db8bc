//! The allocator's model as a whole: the specification's examples, and properties of random runs.
//!
//! One binary, so that it links once. The unit tests of single parts stand beside them in `src`.

mod differential;
mod exhaustive;
mod expandable_examples;
mod hostile;
mod laws;
mod limit_examples;
mod lookup;
mod ordinary_examples;
mod pool_examples;
mod replay_hooks;
mod restore;
mod runtime_changes;
mod sizes;
mod stream_examples;
mod world;
