//! The state of the emulated machine, one for the process, behind one lock.

mod capture;
mod carried;
mod context;
mod host;
pub(crate) mod mappings;
mod memory;
pub(crate) mod operation;
mod physical;
mod properties;
mod reserved;
mod share;
mod stream;
mod values;

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

pub(crate) use capture::CaptureStatus;
pub(crate) use context::{Step, started};
pub(crate) use host::{clear_host, forget, is_backed, is_device_address};
pub(crate) use memory::Place;
pub(crate) use physical::GRANULARITY;
pub(crate) use physical::HandleInfo;
pub(crate) use properties::{pci_address, uuid};
pub(crate) use share::{Identity, Shared};
pub(crate) use stream::Stream;
pub(crate) use values::{Values, tell_compiling, tell_next};
pub(crate) use vramwise_values::SMALL_COPY;

use crate::config::{self, Config};
use crate::report;

/// Calls that reach the device, counted as `vramwise replay` counts them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) malloc: u64,
    pub(crate) free: u64,
    pub(crate) map: u64,
    pub(crate) unmap: u64,
}

/// One emulated card.
pub(crate) struct Device {
    pub(crate) memory: memory::DeviceMemory,
    pub(crate) context: context::Context,
    pub(crate) total: u64,
    /// Whether the primary context exists.
    pub(crate) active: bool,
    /// Stream-ordered pool (`cudaMallocAsync`): used bytes and their peak.
    pub(crate) pool_used: u64,
    pub(crate) pool_peak: u64,
}

impl Device {
    /// Bytes that `cudaMemGetInfo` calls free.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.total.saturating_sub(self.context.bytes() + self.memory.used())
    }

    fn note_peak(&mut self) {
        let used = self.context.bytes() + self.memory.used();
        self.memory.raise_peak(used);
    }
}

/// Everything.
pub(crate) struct Machine {
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    pub(crate) physical: physical::Physical,
    pub(crate) streams: stream::Streams,
    pub(crate) captures: capture::Captures,
    pub(crate) values: Values,
    /// Device memory whose contents are certain.
    pub(crate) carried: carried::Carried,
    pub(crate) calls: Calls,
    pub(crate) unknown_calls: Vec<String>,
    pub(crate) notes: Vec<String>,
    /// Communicators of NCCL's that were made.
    pub(crate) communicators: u64,
    /// Virtual time in nanoseconds: kernels and copies add to it.
    pub(crate) clock_ns: u64,
    /// Pinned or registered host ranges: start → length.
    pub(crate) pinned: std::collections::BTreeMap<usize, usize>,
    /// Device variables of modules: address of the host's shadow → (size, address per device).
    pub(crate) variables: FxHashMap<usize, Variable>,
    last_report: std::time::Instant,
}

/// A `__device__` variable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variable {
    pub(crate) size: usize,
    pub(crate) addr: FxHashMap<usize, u64>,
}

static MACHINE: OnceLock<Mutex<Machine>> = OnceLock::new();

thread_local! {
    static CURRENT_DEVICE: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread's device.
pub(crate) fn current_device() -> usize {
    CURRENT_DEVICE.get()
}

/// Sets the calling thread's device; it must exist.
pub(crate) fn set_current_device(device: usize) {
    CURRENT_DEVICE.set(device);
}

/// The machine, made at the first call.
pub(crate) fn lock() -> MutexGuard<'static, Machine> {
    let machine = MACHINE.get_or_init(|| {
        report::at_exit();
        Mutex::new(Machine::new())
    });
    // A panic in one call must not turn every later call into one.
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The machine if it was ever used.
pub(crate) fn if_used() -> Option<MutexGuard<'static, Machine>> {
    Some(MACHINE.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Machine {
    /// Adds a remark to the report, once.
    pub(crate) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    fn new() -> Self {
        let mut notes = Vec::new();
        let config = match config::folder().map(|f| Config::read(&f)) {
            Some(Ok(config)) => config,
            Some(Err(why)) => {
                notes.push(why);
                Config::fallback()
            }
            None => Config::fallback(),
        };
        if let Err(why) = host::map_devices() {
            notes.push(why);
        }
        let total =
            config.memory_bytes.or(config.profile.total_bytes).unwrap_or(properties::DEFAULT_TOTAL);
        let devices = (0..config.devices.clamp(1, host::MAX_DEVICES))
            .map(|index| Device {
                memory: memory::DeviceMemory::new(index),
                context: context::Context::new(&config),
                total,
                active: false,
                pool_used: 0,
                pool_peak: 0,
            })
            .collect();
        let values = Values::new(&config.values);
        Self {
            config,
            devices,
            physical: physical::Physical::default(),
            streams: stream::Streams::default(),
            captures: capture::Captures::default(),
            values,
            carried: carried::Carried::default(),
            calls: Calls::default(),
            unknown_calls: Vec::new(),
            notes,
            communicators: 0,
            clock_ns: 0,
            pinned: std::collections::BTreeMap::new(),
            variables: FxHashMap::default(),
            last_report: std::time::Instant::now(),
        }
    }

    /// Whether device memory is memory of this process.
    pub(crate) fn is_backed(&self) -> bool {
        host::is_backed(host::slice_end(0) - 1)
    }

    /// CUDA's major version of the program above us: 12 or 13.
    pub(crate) fn cuda_major(&self) -> u32 {
        let told = self.config.cuda.as_deref().and_then(|v| v.split('.').next()?.parse().ok());
        told.unwrap_or_else(host::loaded_runtime_major)
    }

    /// CUDA's version as `1000 * major + 10 * minor`.
    pub(crate) fn cuda_version(&self) -> i32 {
        let mut parts = self.config.cuda.as_deref().unwrap_or("").split('.');
        let major = parts.next().and_then(|p| p.parse::<i32>().ok());
        let minor = parts.next().and_then(|p| p.parse::<i32>().ok()).unwrap_or(0);
        major.map_or_else(
            || i32::try_from(self.cuda_major()).unwrap_or(13) * 1000,
            |m| m * 1000 + minor * 10,
        )
    }

    /// `cudaMalloc`: the address, or `None` where the card is full.
    pub(crate) fn malloc(&mut self, device: usize, bytes: u64) -> Option<u64> {
        self.calls.malloc += 1;
        self.reach(device, Step::Init);
        let card = self.devices.get_mut(device)?;
        let addr = card.memory.malloc(bytes, card.total.saturating_sub(card.context.bytes()))?;
        card.note_peak();
        self.report_now_and_then();
        Some(addr)
    }

    /// `cudaFree`; `false` where nothing was allocated at `addr`.
    pub(crate) fn free(&mut self, addr: u64) -> bool {
        self.calls.free += 1;
        let freed = self.devices.iter_mut().any(|d| d.memory.free(addr));
        self.report_now_and_then();
        freed
    }

    /// The allocation or mapping that an address lies in: (device, start, bytes).
    pub(crate) fn place_of(&self, addr: u64) -> Option<Place> {
        let found = self.devices.iter().enumerate();
        found
            .filter_map(|(device, d)| {
                d.memory.range_of(addr).map(|(start, bytes)| Place { device, start, bytes })
            })
            .next()
            .or_else(|| self.physical.place_of(addr))
    }

    /// The context grows when it is first used in a new way.
    pub(crate) fn reach(&mut self, device: usize, step: Step) {
        if let Some(card) = self.devices.get_mut(device) {
            card.active = true;
            if card.context.reach(step) {
                card.memory.reach(step);
                card.note_peak();
            }
        }
    }

    /// A handle of cuBLAS is made.
    pub(crate) fn add_handle(&mut self, device: usize) {
        self.reach(device, Step::Init);
        if let Some(card) = self.devices.get_mut(device) {
            card.memory.add_handle();
        }
    }

    /// A stream is made beside the default one.
    pub(crate) fn add_stream(&mut self, stream: Stream) -> usize {
        let device = stream.device;
        self.reach(device, Step::Init);
        self.reach(device, Step::SideStream);
        if let Some(card) = self.devices.get_mut(device) {
            card.memory.add_stream();
        }
        self.streams.create(stream)
    }

    /// Virtual memory of a device was mapped or unmapped; `false` where the card is full.
    pub(crate) fn take_physical(&mut self, device: usize, bytes: u64) -> bool {
        self.reach(device, Step::Init);
        let Some(card) = self.devices.get_mut(device) else { return false };
        let taken = card.memory.take(bytes, card.total.saturating_sub(card.context.bytes()));
        if taken {
            card.note_peak();
        }
        taken
    }

    /// Bytes of a device's `cudaDeviceProp` for a CUDA major version.
    pub(crate) fn device_prop(&self, device: usize, major: u32) -> Vec<u8> {
        let total = self.devices.get(device).map_or(0, |d| d.total);
        properties::device_prop(&self.config, total, device, major)
    }

    /// A device attribute, the same on every device.
    pub(crate) fn attribute(&self, number: u32) -> i32 {
        properties::attribute(&self.config, number)
    }

    /// Whether a number is that of an attribute.
    pub(crate) fn has_attribute(&self, number: u32) -> bool {
        (1..=properties::LAST_ATTRIBUTE).contains(&number)
            || self.config.profile.attributes.contains_key(&number.to_string())
    }

    /// The architecture that a kernel's code was built for, as `10 * major + minor`: libraries carry code for a few
    /// architectures, and a card runs the newest of its own generation.
    pub(crate) fn code_architecture(&self) -> i32 {
        let card = self.attribute(75) * 10 + self.attribute(76);
        let built = [50, 60, 70, 75, 80, 86, 90, 100, 120];
        let fits = |a: &i32| a / 10 == card / 10 && *a <= card;
        built.into_iter().rfind(fits).unwrap_or(card)
    }

    /// A name that somebody looked for and that is not here, once. Graphics' names are asked for by every CUDA
    /// runtime and used by none of these programs.
    pub(crate) fn note_unknown(&mut self, name: String) {
        let graphics = ["GL", "EGL", "Egl", "VDPAU"].iter().any(|part| name.contains(part));
        if !name.is_empty() && !graphics && !self.unknown_calls.contains(&name) {
            self.unknown_calls.push(name);
        }
    }

    /// Whether an address lies in page-locked host memory.
    pub(crate) fn is_pinned(&self, addr: usize) -> bool {
        self.pinned.range(..=addr).next_back().is_some_and(|(start, len)| addr < start + len)
    }

    /// The stream-ordered pool of a device gave or took back `change` bytes.
    pub(crate) fn note_pool_use(&mut self, device: usize, change: i64) {
        if let Some(card) = self.devices.get_mut(device) {
            card.pool_used = card.pool_used.saturating_add_signed(change);
            card.pool_peak = card.pool_peak.max(card.pool_used);
        }
    }

    /// Physical memory of a device is free again.
    pub(crate) fn return_physical(&mut self, info: HandleInfo) {
        if let Some(card) = self.devices.get_mut(info.device) {
            card.memory.put_back(info.bytes);
        }
        self.report_now_and_then();
    }

    /// A kernel of `ns` nanoseconds was queued, or several.
    pub(crate) fn kernel(&mut self, ns: u64) {
        self.carried.kernel_ran();
        self.work(ns);
    }

    /// Work of `ns` nanoseconds was queued.
    pub(crate) fn work(&mut self, ns: u64) {
        self.clock_ns += ns;
    }

    fn report_now_and_then(&mut self) {
        if self.last_report.elapsed().as_secs() >= 1 {
            self.last_report = std::time::Instant::now();
            report::write(self);
        }
    }
}
