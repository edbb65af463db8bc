//! PyTorch's CUDA caching allocator as a pure, deterministic state machine.

#![forbid(unsafe_code)]

pub mod settings;
