//! A shared object for LD_PRELOAD on a machine with a GPU: it stands between PyTorch and cuDNN, passes every call on
//! unchanged, and writes down what cuDNN answered.
//!
//! For each operation graph: the plans that were finalised, in order, with engine, knobs and workspace, and which of
//! them ran. For the size queries that take a library handle: descriptors and sizes. The lines go to the file named in
//! `VRAMWISE_PROBE_OUT`, whenever the program calls `vramwise_probe_mark`.
//!
//! And it writes down what a program reads back from the card, where `VRAMWISE_PROBE_VALUES` names a log (`reads`).
//!
//! Only functions of cuDNN's and the CUDA runtime's public headers are used, as documented.

// An interposer speaks C: it is handed pointers by its callers and hands them on. Each block says what it relies on.
#![allow(unsafe_code)]
// The names are cuDNN's and CUDA's, and so is the reach: the loader finds these functions, no crate does.
#![allow(non_snake_case, unreachable_pub)]

mod backend;
mod dropout;
mod legacy;
mod reads;
mod real;
mod record;
mod rnn;
mod runtime;
mod symbols;
mod turn;
