//! The allocator's settings: what `PYTORCH_CUDA_ALLOC_CONF` means to a given PyTorch version.

mod config;

pub use config::{Backend, Config, ROUNDUP_BUCKETS};
