//! CUDA's driver interface.
