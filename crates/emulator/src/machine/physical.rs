//! Virtual memory management (`cuMemCreate`, `cuMemMap`, …): handles of physical memory with their
//! reference counts, reservations of address space, and what is mapped where.

use std::collections::BTreeMap;

use super::host;
use super::memory::Place;
use super::share::Identity;

/// Allocation granularity that `cuMemGetAllocationGranularity` gives on every card since Volta, bytes.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// What is known of a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandleInfo {
    pub(crate) device: usize,
    /// Bytes that it takes of the card: none where the memory is the host's or another process's.
    pub(crate) bytes: u64,
    /// Kinds of descriptors that it may be handed to other processes as (`CUmemAllocationHandleType`, or-ed).
    pub(crate) handle_types: i32,
    /// What it is called in other processes, where it came from one or was handed to one.
    pub(crate) identity: Option<Identity>,
    /// How often it is yet to be released, and mapped.
    owners: u32,
    mapped: u32,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    handle: u64,
}

/// All handles, reservations and mappings of the process.
#[derive(Debug)]
pub(crate) struct Physical {
    handles: BTreeMap<u64, HandleInfo>,
    next_handle: u64,
    /// start → bytes.
    reservations: BTreeMap<u64, u64>,
    next_reservation: u64,
    mappings: BTreeMap<u64, Mapping>,
}

impl Default for Physical {
    fn default() -> Self {
        Self {
            handles: BTreeMap::new(),
            next_handle: 1,
            reservations: BTreeMap::new(),
            next_reservation: 0,
            mappings: BTreeMap::new(),
        }
    }
}

impl Physical {
    /// A handle for physical memory that is already counted.
    pub(crate) fn create(&mut self, device: usize, bytes: u64, handle_types: i32) -> u64 {
        let handle = self.next_handle;
        self.next_handle += 1;
        let info = HandleInfo { device, bytes, handle_types, identity: None, owners: 1, mapped: 0 };
        self.handles.insert(handle, info);
        handle
    }

    pub(crate) fn info(&self, handle: u64) -> Option<HandleInfo> {
        self.handles.get(&handle).copied()
    }

    /// What a handle is called in other processes; `new` where it has no name yet.
    pub(crate) fn name(&mut self, handle: u64, new: Identity) -> Option<Identity> {
        let info = self.handles.get_mut(&handle)?;
        Some(*info.identity.get_or_insert(new))
    }

    /// A handle for memory that came from a descriptor: the same one where this process has it, else one of
    /// another process's memory.
    pub(crate) fn import(&mut self, identity: Identity, device: usize, handle_types: i32) -> u64 {
        let known = self.handles.iter_mut().find(|(_, info)| info.identity == Some(identity));
        if let Some((&handle, info)) = known {
            info.owners += 1;
            return handle;
        }
        let handle = self.create(device, 0, handle_types);
        self.name(handle, identity);
        handle
    }

    /// One more owner of a handle (`cuMemRetainAllocationHandle`).
    pub(crate) fn retain(&mut self, addr: u64) -> Option<u64> {
        let (&start, mapping) = self.mappings.range(..=addr).next_back()?;
        if addr >= start + mapping.bytes {
            return None;
        }
        let handle = mapping.handle;
        self.handles.get_mut(&handle)?.owners += 1;
        Some(handle)
    }

    /// Drops one owner of a handle. `Err` for an unknown handle; `Ok(Some)` where the memory is free now.
    pub(crate) fn release(&mut self, handle: u64) -> Result<Option<HandleInfo>, ()> {
        let info = self.handles.get_mut(&handle).ok_or(())?;
        info.owners = info.owners.checked_sub(1).ok_or(())?;
        Ok(self.take_if_free(handle))
    }

    /// Forgets a handle that nobody owns and that is mapped nowhere.
    fn take_if_free(&mut self, handle: u64) -> Option<HandleInfo> {
        let info = self.handles.get(&handle)?;
        if info.owners + info.mapped > 0 {
            return None;
        }
        self.handles.remove(&handle)
    }

    pub(crate) fn reserve(&mut self, bytes: u64) -> Option<u64> {
        let addr = host::map_reservation(&mut self.next_reservation, bytes)?;
        self.reservations.insert(addr, bytes);
        Some(addr)
    }

    /// `false` where that is no reservation.
    pub(crate) fn free_reservation(&mut self, addr: u64, bytes: u64) -> bool {
        if self.reservations.get(&addr) != Some(&bytes) {
            return false;
        }
        self.reservations.remove(&addr);
        host::unmap(addr, bytes);
        true
    }

    /// Maps a handle; `false` where the range is not reserved or already mapped, or the handle unknown.
    pub(crate) fn map(&mut self, addr: u64, bytes: u64, handle: u64) -> bool {
        let reserved = self.reservations.range(..=addr).next_back();
        let inside = reserved.is_some_and(|(s, b)| addr + bytes <= s + b);
        let before = self.mappings.range(..addr + bytes).next_back();
        let clear = before.is_none_or(|(s, m)| s + m.bytes <= addr);
        let Some(info) = self.handles.get_mut(&handle) else { return false };
        if !inside || !clear {
            return false;
        }
        info.mapped += 1;
        self.mappings.insert(addr, Mapping { bytes, handle });
        true
    }

    /// Unmaps every mapping inside the range; the physical memory that nobody holds any more.
    pub(crate) fn unmap(&mut self, addr: u64, bytes: u64) -> Option<Vec<HandleInfo>> {
        let inside: Vec<(u64, Mapping)> =
            self.mappings.range(addr..addr + bytes).map(|(&s, &m)| (s, m)).collect();
        let whole: u64 = inside.iter().map(|(_, m)| m.bytes).sum();
        if inside.is_empty() || whole != bytes {
            return None;
        }
        host::forget(addr, bytes);
        let mut free = Vec::new();
        for (start, mapping) in inside {
            self.mappings.remove(&start);
            if let Some(info) = self.handles.get_mut(&mapping.handle) {
                info.mapped -= 1;
            }
            free.extend(self.take_if_free(mapping.handle));
        }
        Some(free)
    }

    pub(crate) fn place_of(&self, addr: u64) -> Option<Place> {
        let (&start, mapping) = self.mappings.range(..=addr).next_back()?;
        let device = self.handles.get(&mapping.handle).map_or(0, |h| h.device);
        let bytes = mapping.bytes;
        (addr < start + bytes).then_some(Place { device, start, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_free_when_the_last_of_handle_and_mapping_goes() {
        let mut physical = Physical::default();
        let at = physical.reserve(64 << 20).unwrap();
        let handle = physical.create(0, 2 << 20, 0);
        assert!(physical.map(at, 2 << 20, handle));
        assert!(!physical.map(at, 2 << 20, handle), "already mapped");
        assert!(physical.release(handle).unwrap().is_none(), "still mapped");
        assert!(physical.release(handle).is_err(), "released twice");
        let free = physical.unmap(at, 2 << 20).unwrap();
        assert_eq!(free.len(), 1);
        assert!(physical.unmap(at, 2 << 20).is_none());
        assert!(physical.free_reservation(at, 64 << 20));
        assert!(!physical.free_reservation(at, 64 << 20));
    }

    #[test]
    fn memory_that_comes_back_is_the_same_and_another_process_s_takes_nothing() {
        let mut physical = Physical::default();
        let handle = physical.create(1, 2 << 20, 1);
        let own = physical.name(handle, Identity([1, 2])).unwrap();
        assert_eq!(physical.name(handle, Identity([3, 4])), Some(own), "it keeps its name");
        assert_eq!(physical.import(own, 1, 1), handle);
        assert!(physical.release(handle).unwrap().is_none(), "one owner is left");
        assert_eq!(physical.release(handle).unwrap().map(|info| info.bytes), Some(2 << 20));
        let foreign = physical.import(Identity([9, 9]), 1, 1);
        assert_ne!(foreign, handle);
        assert_eq!(physical.release(foreign).unwrap().map(|info| info.bytes), Some(0));
    }
}
