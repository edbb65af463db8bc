//! The CUDA runtime API (`cuda_runtime_api.h`, CUDA 12 and 13).

mod copy;
mod device;
mod error;
mod event;
mod graph;
mod launch;
mod memory;
mod module;
mod pool;
mod stream;

pub(crate) use copy::{fill, transfer};
pub(crate) use device::pci_bus_id;
pub(crate) use error::Error;
pub(crate) use launch::{KERNEL_NS, REGISTERS, blocks_per_multiprocessor, launched};
pub(crate) use memory::{host_alloc, host_free};
pub(crate) use pool::malloc_async;
pub(crate) use stream::create as create_stream;
