//! One GPU as the heap sees it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use vramwise_arena::{Device, Event, Failure, Handle};

use crate::costs::{Call, Cost, Costs};
use crate::driver::{AccessDesc, AllocationProp, Code, Driver, Location, OUT_OF_MEMORY, check};
use crate::error::Error;

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX_FD: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: c_int = 3;
/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const ATTRIBUTE_VMM: c_int = 102;
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
const ATTRIBUTE_POSIX_FD: c_int = 103;
/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
const ATTRIBUTE_RDMA_VMM: c_int = 110;
/// `CU_EVENT_DISABLE_TIMING`: such events are cheaper.
const NO_TIMING: u32 = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// A GPU, by its ordinal. Calls may come from any thread and with any context current.
#[derive(Debug)]
pub struct CudaDevice {
    driver: Arc<Driver>,
    ordinal: c_int,
    /// The primary context, which the CUDA runtime uses too.
    context: usize,
    total: u64,
    shareable: bool,
    rdma: bool,
    /// Devices whose kernels may use this memory too.
    peers: Vec<c_int>,
    /// Events that are not in use.
    events: Vec<u64>,
    /// Told of each reservation: device, first byte, bytes.
    on_reserve: fn(i32, u64, u64),
    costs: Costs,
    /// What [`Device::enter`] changed on this thread and [`Device::leave`] puts back.
    entered: Option<Before>,
}

/// A thread's state before this device's calls.
#[derive(Clone, Copy, Debug)]
struct Before {
    mode: c_int,
    pushed: bool,
}

impl CudaDevice {
    /// Takes a GPU's primary context. `on_reserve` is told of each range of addresses: device, first byte, bytes.
    ///
    /// # Errors
    ///
    /// No such GPU, or one without virtual memory calls (before Pascal, some vGPU profiles, WSL1).
    pub fn new(
        driver: Arc<Driver>,
        ordinal: i32,
        on_reserve: fn(i32, u64, u64),
    ) -> Result<Self, Error> {
        let (mut device, mut total, mut context) = (0, 0usize, null_mut());
        // SAFETY: calls of cuda.h with pointers to locals.
        unsafe {
            check("cuDeviceGet", (driver.device_get)(&mut device, ordinal))?;
            check("cuDeviceTotalMem", (driver.device_total)(&mut total, device))?;
        }
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: as above.
            let code = unsafe { (driver.device_attribute)(&mut value, which, device) };
            code == 0 && value != 0
        };
        if !attribute(ATTRIBUTE_VMM) {
            return Err(Error::Missing("virtual memory management on this device"));
        }
        let (shareable, rdma) = (attribute(ATTRIBUTE_POSIX_FD), attribute(ATTRIBUTE_RDMA_VMM));
        // SAFETY: as above.
        check("cuDevicePrimaryCtxRetain", unsafe {
            (driver.primary_retain)(&mut context, device)
        })?;
        let context = context as usize;
        let total = total as u64;
        Ok(Self {
            driver,
            ordinal,
            context,
            total,
            shareable,
            rdma,
            peers: Vec::new(),
            events: Vec::new(),
            on_reserve,
            costs: Costs::default(),
            entered: None,
        })
    }

    /// What the calls of a kind came to since this object was made.
    pub fn cost(&self, call: Call) -> Cost {
        self.costs.of(call)
    }

    /// Runs a call as [`CudaDevice::within`] does and counts it.
    fn counted<T>(&self, call: Call, run: impl FnOnce(&Driver) -> T) -> T {
        self.costs.measure(call, || self.within(run))
    }

    /// Runs calls with this device's context current, and so that a capture on this thread does not forbid them.
    fn within<T>(&self, calls: impl FnOnce(&Driver) -> T) -> T {
        if self.entered.is_some() {
            return calls(&self.driver);
        }
        let before = self.make_current();
        let result = calls(&self.driver);
        self.put_back(before);
        result
    }

    fn make_current(&self) -> Before {
        let mut mode = RELAXED;
        // SAFETY: the context is the primary one, which this object retains; the pointer is to a local. Where a push
        // fails (the process is ending) the calls fail as well, and nothing is popped.
        let pushed = unsafe {
            (self.driver.exchange_mode)(&mut mode);
            (self.driver.push)(self.context as *mut c_void) == 0
        };
        Before { mode, pushed }
    }

    fn put_back(&self, before: Before) {
        let Before { mut mode, pushed } = before;
        // SAFETY: pointers are to locals; what is popped was pushed by `make_current`.
        unsafe {
            if pushed {
                (self.driver.pop)(&mut null_mut());
            }
            (self.driver.exchange_mode)(&mut mode);
        }
    }

    fn access(&self, peer: c_int) -> AccessDesc {
        AccessDesc { location: Location { kind: ON_DEVICE, id: peer }, flags: READ_WRITE }
    }

    /// Makes memory of this device usable from another one: these ranges, and all that is mapped later.
    ///
    /// # Errors
    ///
    /// The driver refuses, as the two can't reach each other.
    pub fn add_peer(&mut self, peer: i32, mapped: &[(u64, u64)]) -> Result<(), Error> {
        if peer == self.ordinal || self.peers.contains(&peer) {
            return Ok(());
        }
        let access = self.access(peer);
        for (addr, bytes) in mapped {
            // SAFETY: the range is mapped; the pointer is to a local.
            let code =
                self.within(|d| unsafe { (d.set_access)(*addr, *bytes as usize, &access, 1) });
            check("cuMemSetAccess", code)?;
        }
        self.peers.push(peer);
        Ok(())
    }

    /// A file descriptor by which another process can map a handle.
    ///
    /// # Errors
    ///
    /// The device can't share memory in this way.
    pub fn export(&self, handle: Handle) -> Result<i32, Error> {
        let mut fd: c_int = -1;
        let to = (&raw mut fd).cast();
        // SAFETY: for this handle type the driver writes an int.
        let code = self.within(|d| unsafe { (d.export)(to, handle.0, POSIX_FD, 0) });
        check("cuMemExportToShareableHandle", code)?;
        Ok(fd)
    }

    /// Maps handles of another process one after the other; the address of the first.
    ///
    /// # Errors
    ///
    /// A descriptor is none of this kind, or there is no address space. Nothing stays mapped then.
    pub fn import(&mut self, parts: &[(i32, u64)]) -> Result<u64, Error> {
        let bytes: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        let base = self.reserve_addresses(bytes)?;
        let mut at = base;
        for (fd, bytes) in parts {
            if let Err(error) = self.import_one(*fd, *bytes, at) {
                self.unimport(base, at - base, parts);
                return Err(error);
            }
            at += bytes;
        }
        Ok(base)
    }

    fn import_one(&mut self, fd: i32, bytes: u64, at: u64) -> Result<(), Error> {
        let mut handle = 0;
        // SAFETY: for this handle type the descriptor itself is passed as the pointer; the rest as in `map`.
        self.within(|d| unsafe {
            let fd = fd as usize as *mut c_void;
            check("cuMemImportFromShareableHandle", (d.import)(&mut handle, fd, POSIX_FD))?;
            let mapped = check("cuMemMap", (d.mem_map)(at, bytes as usize, 0, handle, 0));
            // The mapping keeps the memory.
            (d.mem_release)(handle);
            mapped
        })?;
        self.set_access(at, bytes).map_err(|failure| match failure {
            Failure::OutOfMemory => Error::Call("cuMemSetAccess", OUT_OF_MEMORY),
            Failure::Driver(code) => Error::Call("cuMemSetAccess", code),
        })
    }

    /// Takes back what [`CudaDevice::import`] mapped; `mapped` = how many bytes of it.
    pub fn unimport(&mut self, base: u64, mapped: u64, parts: &[(i32, u64)]) {
        let total: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        let mut at = base;
        for (_, bytes) in parts {
            if at - base < mapped {
                // SAFETY: mapped by `import_one`, and its user is done with it.
                self.within(|d| unsafe { (d.mem_unmap)(at, *bytes as usize) });
            }
            at += bytes;
        }
        // SAFETY: reserved by `import` with these bytes.
        self.within(|d| unsafe { (d.address_free)(base, total as usize) });
    }

    fn reserve_addresses(&self, bytes: u64) -> Result<u64, Error> {
        let mut base = 0;
        // SAFETY: the pointer is to a local.
        let code = self.counted(Call::Reserve, |d| unsafe {
            (d.address_reserve)(&mut base, bytes as usize, 0, 0, 0)
        });
        check("cuMemAddressReserve", code)?;
        Ok(base)
    }

    fn event(&mut self) -> Result<u64, Failure> {
        if let Some(event) = self.events.pop() {
            return Ok(event);
        }
        let mut event = null_mut();
        // SAFETY: the pointer is to a local.
        result(self.within(|d| unsafe { (d.event_create)(&mut event, NO_TIMING) }))?;
        Ok(event as u64)
    }
}

fn result(code: Code) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        OUT_OF_MEMORY => Err(Failure::OutOfMemory),
        code => Err(Failure::Driver(code)),
    }
}

impl Device for CudaDevice {
    // The heap is locked from one to the other, so that both run on one thread and nobody else's calls come between.
    fn enter(&mut self) {
        self.entered = Some(self.make_current());
    }

    fn leave(&mut self) {
        if let Some(before) = self.entered.take() {
            self.put_back(before);
        }
    }

    fn reserve(&mut self, bytes: u64, align: u64) -> Option<u64> {
        // The driver's own alignment argument is limited; a larger range has an aligned one inside.
        let base = self.reserve_addresses(bytes.checked_add(align)?).ok()?;
        let base = base.next_multiple_of(align);
        (self.on_reserve)(self.ordinal, base, bytes);
        Some(base)
    }

    fn create(&mut self, bytes: u64) -> Result<Handle, Failure> {
        let prop = AllocationProp {
            kind: PINNED,
            handle_types: if self.shareable { POSIX_FD } else { 0 },
            location: Location { kind: ON_DEVICE, id: self.ordinal },
            win32: null_mut(),
            compression: 0,
            rdma_capable: u8::from(self.rdma),
            usage: 0,
            reserved: [0; 4],
        };
        let mut handle = 0;
        // SAFETY: pointers are to locals.
        result(self.counted(Call::Create, |d| unsafe {
            (d.mem_create)(&mut handle, bytes as usize, &prop, 0)
        }))?;
        Ok(Handle(handle))
    }

    fn release(&mut self, handle: Handle, _bytes: u64) {
        // SAFETY: the heap releases each handle once, when nothing maps it. A failure (the process is ending) leaves
        // the memory to the driver.
        self.counted(Call::Release, |d| unsafe { (d.mem_release)(handle.0) });
    }

    fn map(&mut self, addr: u64, bytes: u64, handle: Handle) -> Result<(), Failure> {
        // SAFETY: the range lies in a reservation, and nothing is mapped there.
        result(
            self.counted(Call::Map, |d| unsafe {
                (d.mem_map)(addr, bytes as usize, 0, handle.0, 0)
            }),
        )
    }

    fn set_access(&mut self, addr: u64, bytes: u64) -> Result<(), Failure> {
        let mut access = vec![self.access(self.ordinal)];
        access.extend(self.peers.iter().map(|peer| self.access(*peer)));
        // SAFETY: the range is mapped; the array has this many entries.
        result(self.counted(Call::SetAccess, |d| unsafe {
            (d.set_access)(addr, bytes as usize, access.as_ptr(), access.len())
        }))
    }

    fn unmap(&mut self, addr: u64, bytes: u64) -> Result<(), Failure> {
        // SAFETY: the range was mapped, and the work that used it is done.
        result(self.counted(Call::Unmap, |d| unsafe { (d.mem_unmap)(addr, bytes as usize) }))
    }

    fn total(&self) -> u64 {
        self.total
    }

    fn free(&self) -> u64 {
        let (mut free, mut total) = (0, 0);
        // SAFETY: pointers are to locals.
        self.counted(Call::Info, |d| unsafe { (d.mem_info)(&mut free, &mut total) });
        free as u64
    }

    fn record(&mut self, stream: u64) -> Result<Event, Failure> {
        let event = self.event()?;
        // SAFETY: the event is of this context and not in use; the stream is one that PyTorch works with.
        let code = self.counted(Call::Order, |d| unsafe {
            (d.event_record)(event as *mut c_void, stream as *mut c_void)
        });
        match result(code) {
            Ok(()) => Ok(Event(event)),
            Err(failure) => {
                self.events.push(event);
                Err(failure)
            }
        }
    }

    fn is_done(&mut self, event: Event) -> bool {
        // SAFETY: an event that `record` gave.
        let code =
            self.counted(Call::Query, |d| unsafe { (d.event_query)(event.0 as *mut c_void) });
        code == 0
    }

    fn wait(&mut self, stream: u64, event: Event) -> Result<(), Failure> {
        let (stream, event) = (stream as *mut c_void, event.0 as *mut c_void);
        // SAFETY: as in `record`.
        result(self.counted(Call::Order, |d| unsafe { (d.stream_wait)(stream, event, 0) }))
    }

    fn synchronize(&mut self, event: Event) -> Result<(), Failure> {
        // SAFETY: an event that `record` gave.
        result(
            self.counted(Call::Wait, |d| unsafe { (d.event_synchronize)(event.0 as *mut c_void) }),
        )
    }

    fn forget(&mut self, event: Event) {
        self.events.push(event.0);
    }

    fn is_capturing(&mut self, stream: u64) -> bool {
        let mut status = 0;
        // SAFETY: the pointer is to a local. An error (the legacy stream while another captures) means that the
        // stream must be left alone, as a capture does.
        let code = self.counted(Call::Query, |d| unsafe {
            (d.is_capturing)(stream as *mut c_void, &mut status)
        });
        code != 0 || status != 0
    }
}
