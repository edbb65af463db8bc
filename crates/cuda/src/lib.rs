//! CUDA's driver interface, loaded at run time, and [`CudaDevice`]: the hardware below the drop-in allocator.
//!
//! Nothing is linked: [`Driver::load`] opens `libcuda.so.1`, or takes the one that the process has, and says what is
//! missing where there is none. Only functions of the public header `cuda.h` are used, by the names that they have had
//! since CUDA 11.
//!
//! Nearly all unsafe code of the allocator is here. The argument is the same everywhere: the functions have the
//! signatures of the header, and pointers passed to them are to locals of the caller.
#![allow(unsafe_code)]

mod costs;
mod device;
mod driver;
mod error;

pub use costs::{Call, Cost};
pub use device::CudaDevice;
pub use driver::Driver;
pub use error::Error;
