//! The driver's functions that the allocator needs.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

use crate::Error;

/// `CUresult`; 0 = success.
pub(crate) type Code = c_int;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: Code = 2;

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    /// 1 = a device.
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProp {
    /// 1 = pinned (ordinary device memory).
    pub(crate) kind: c_int,
    /// Bits of `CUmemAllocationHandleType`; 1 = POSIX file descriptor.
    pub(crate) handle_types: c_int,
    pub(crate) location: Location,
    pub(crate) win32: *const c_void,
    pub(crate) compression: u8,
    pub(crate) rdma_capable: u8,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 4],
}

/// `CUmemAccessDesc`; flags 3 = read and write.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AccessDesc {
    pub(crate) location: Location,
    pub(crate) flags: c_int,
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($argument:ty),*);)+) => {
        /// The functions, by CUDA's names. Plain pointers: the library stays loaded as long as the process lives.
        pub struct Driver {
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($argument),*) -> Code,)+
            /// Keeps the pointers valid.
            _library: Library,
        }

        impl Driver {
            fn bind(library: Library) -> Result<Self, Error> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is that of the function in cuda.h.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> Code>($symbol.as_bytes())
                        };
                        *found.map_err(|_| Error::Missing($symbol))?
                    },)+
                    _library: library,
                })
            }
        }
    };
}

functions! {
    init = "cuInit" (c_uint);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_total = "cuDeviceTotalMem_v2" (*mut usize, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    primary_retain = "cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int);
    push = "cuCtxPushCurrent_v2" (*mut c_void);
    pop = "cuCtxPopCurrent_v2" (*mut *mut c_void);
    mem_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    address_reserve = "cuMemAddressReserve" (*mut u64, usize, usize, u64, c_ulonglong);
    address_free = "cuMemAddressFree" (u64, usize);
    mem_create = "cuMemCreate" (*mut u64, usize, *const AllocationProp, c_ulonglong);
    mem_release = "cuMemRelease" (u64);
    mem_map = "cuMemMap" (u64, usize, usize, u64, c_ulonglong);
    mem_unmap = "cuMemUnmap" (u64, usize);
    set_access = "cuMemSetAccess" (u64, usize, *const AccessDesc, usize);
    export = "cuMemExportToShareableHandle" (*mut c_void, u64, c_int, c_ulonglong);
    import = "cuMemImportFromShareableHandle" (*mut u64, *mut c_void, c_int);
    event_create = "cuEventCreate" (*mut *mut c_void, c_uint);
    event_record = "cuEventRecord" (*mut c_void, *mut c_void);
    event_query = "cuEventQuery" (*mut c_void);
    event_synchronize = "cuEventSynchronize" (*mut c_void);
    stream_wait = "cuStreamWaitEvent" (*mut c_void, *mut c_void, c_uint);
    is_capturing = "cuStreamIsCapturing" (*mut c_void, *mut c_int);
    exchange_mode = "cuThreadExchangeStreamCaptureMode" (*mut c_int);
}

impl Driver {
    /// Opens the driver, or takes the one that this process uses already, and starts it.
    ///
    /// # Errors
    ///
    /// There is none, it is too old, or it does not start (no GPU, a version mismatch with its kernel module).
    pub fn load() -> Result<Self, Error> {
        // SAFETY: CUDA's driver has no load-time requirements; a process that runs PyTorch has it loaded anyway.
        let library = unsafe { Library::new("libcuda.so.1") };
        let driver = Self::bind(library.map_err(|e| Error::NoDriver(e.to_string()))?)?;
        // SAFETY: the call of cuda.h; 0 is the only value of its flags.
        check("cuInit", unsafe { (driver.init)(0) })?;
        Ok(driver)
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

pub(crate) fn check(name: &'static str, code: Code) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::Call(name, code)) }
}
