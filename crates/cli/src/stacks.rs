//! What reports say of recordings in which only some steps have stacks.

use serde::Serialize;
use vramwise_analyze::stacks::Sampled;

/// Which steps have stacks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SampledStacks {
    /// Steps in the history that allocate.
    pub(crate) steps: usize,
    /// Those of them with stacks, as the recorder's marks number them from 0.
    pub(crate) steps_with_stacks: Vec<u64>,
    /// Bytes requested in the history.
    pub(crate) requested_bytes: u64,
    /// Bytes of those requests that have a stack.
    pub(crate) requested_with_stack_bytes: u64,
    /// The same as a sentence.
    pub(crate) note: String,
}

impl SampledStacks {
    pub(crate) fn new(sampled: &Sampled) -> Self {
        Self {
            steps: sampled.steps,
            steps_with_stacks: sampled.with_stacks.clone(),
            requested_bytes: sampled.requested,
            requested_with_stack_bytes: sampled.requested_with_stack,
            note: sampled.sentence(),
        }
    }
}
