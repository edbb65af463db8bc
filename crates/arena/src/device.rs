//! What the heap asks of the hardware.

/// Physical memory, by the number that the device gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub u64);

/// A point in a stream's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u64);

/// Why a call to the device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no physical memory left.
    OutOfMemory,
    /// The driver said something else: its error code.
    Driver(i32),
}

/// The driver's virtual memory calls, streams and events. Sizes and addresses are bytes, multiples of 2 MiB.
///
/// A call that fails must have changed nothing.
pub trait Device {
    /// Several calls follow until [`Device::leave`]: what each of them needs may be made ready once. Does not nest.
    fn enter(&mut self) {}
    /// The end of what [`Device::enter`] began.
    fn leave(&mut self) {}
    /// Reserves addresses for `bytes`, starting at a multiple of `align`; `None` = none left.
    fn reserve(&mut self, bytes: u64, align: u64) -> Option<u64>;
    /// Creates physical memory (`cuMemCreate`).
    fn create(&mut self, bytes: u64) -> Result<Handle, Failure>;
    /// Gives physical memory back (`cuMemRelease`). Nothing maps it any more.
    fn release(&mut self, handle: Handle, bytes: u64);
    /// Maps a whole handle at an address (`cuMemMap`). It may be mapped elsewhere too.
    fn map(&mut self, addr: u64, bytes: u64, handle: Handle) -> Result<(), Failure>;
    /// Makes mapped addresses readable and writable for kernels (`cuMemSetAccess`).
    fn set_access(&mut self, addr: u64, bytes: u64) -> Result<(), Failure>;
    /// Takes the mapping of one whole handle away (`cuMemUnmap`). The work that used it is done.
    fn unmap(&mut self, addr: u64, bytes: u64) -> Result<(), Failure>;
    /// The card's physical bytes.
    fn total(&self) -> u64;
    /// Free physical bytes (`cuMemGetInfo`).
    fn free(&self) -> u64;
    /// Records an event behind the work queued on a stream.
    fn record(&mut self, stream: u64) -> Result<Event, Failure>;
    /// Whether the work before an event is done. Errors count as not done.
    fn is_done(&mut self, event: Event) -> bool;
    /// Makes later work of `stream` wait for an event.
    fn wait(&mut self, stream: u64, event: Event) -> Result<(), Failure>;
    /// Blocks the caller until the work before an event is done.
    fn synchronize(&mut self, event: Event) -> Result<(), Failure>;
    /// The event is needed no more.
    fn forget(&mut self, event: Event);
    /// Whether a stream is part of a graph capture.
    fn is_capturing(&mut self, stream: u64) -> bool;
}
