//! An emulated GPU: one shared object, soname `libcuda.so.1`, that is preloaded into an unmodified program.
//!
//! It takes the place of the CUDA driver, the CUDA runtime and the libraries above it (cuBLAS, cuSOLVER,
//! cuSPARSE, cuFFT, cuRAND, NCCL, NVML) as far as their *memory* behaviour goes: devices, allocations,
//! virtual memory, streams, events, captures and handles have real meaning, kernels only move a virtual
//! clock. Device memory is host address space that is committed when it is touched, so a card of 141 GB
//! costs nothing, and small copies carry real values.
//!
//! Only documented interfaces (public headers of CUDA 12 and 13) are emulated. Names without a meaning here
//! are no-ops, made by `build.rs` from the lists in `symbols/`; each says its name once in the report.
//!
//! - [`machine`]: the state, without any C in it
//! - [`runtime`], [`driver`]: the C faces of the CUDA runtime and driver API
//! - [`blas`], [`collectives`], [`management`], [`profiling`]: what needs meaning of cuBLAS, NCCL, NVML, CUPTI
//! - [`cudnn`]: cuDNN's descriptors without a device, its sizes from measurements
//! - [`config`], [`report`]: what `vramwise rehearse` says to it, and what it answers
//!
//! Every exported function is called by C code with the contract of the header that declares it: pointers
//! are valid or null as documented there. That contract is the safety argument of the raw pointer
//! accesses, which all go through [`abi`].
#![allow(unsafe_code)]
#![allow(
    missing_docs,
    reason = "exported functions are documented by the public headers that declare them"
)]
#![allow(unreachable_pub, reason = "everything exported is for C")]

mod abi;
mod blas;
mod collectives;
mod config;
mod cudnn;
mod driver;
mod exports;
mod fft;
mod machine;
mod management;
mod profiling;
mod report;
mod runtime;
mod stub;
