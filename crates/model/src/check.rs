//! Invariants that must hold after every step (specification §3.5 and our own).

use crate::allocator::Allocator;
use crate::block::{ALLOCATED, Block, EXPANDABLE, FREE, MAPPED, NONE};
use crate::device::Device;
use crate::stats::Family;

/// An invariant that does not hold: a defect of the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broken invariant: {0}")]
pub struct BrokenInvariant(pub String);

/// What the blocks themselves say the counters must be.
#[derive(Default)]
struct Sums {
    allocated: u64,
    active: u64,
    requested: u64,
    mapped: u64,
    segments: i64,
    allocations: i64,
    actives: i64,
    inactive_split: i64,
    inactive_split_bytes: u64,
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), BrokenInvariant> {
    if holds { Ok(()) } else { Err(BrokenInvariant(what())) }
}

impl<D: Device> Allocator<D> {
    /// Checks every invariant; linear in the number of blocks.
    ///
    /// # Errors
    /// [`BrokenInvariant`] names the first one that does not hold.
    pub fn check(&self) -> Result<(), BrokenInvariant> {
        let mut sums = [Sums::default(), Sums::default()];
        for (id, block) in self.blocks.iter() {
            self.check_links(id, block)?;
            self.check_sets(id, block)?;
            add(&mut sums[(block.half % 2) as usize], block);
        }
        self.check_free_sets()?;
        self.check_overlap()?;
        self.check_counters(&sums)?;
        self.check_reservations()
    }

    fn check_links(&self, id: u32, block: &Block) -> Result<(), BrokenInvariant> {
        ensure(block.size > 0 && block.size.is_multiple_of(512), || {
            format!("block {id} at {:#x} has {} bytes", block.addr, block.size)
        })?;
        if block.next != NONE {
            let next = &self.blocks[block.next];
            ensure(next.prev == id && next.addr == block.end(), || {
                format!("block {id} and its next do not adjoin at {:#x}", block.end())
            })?;
            ensure(next.half == block.half && next.stream == block.stream, || {
                format!("block {id} and its next belong to different pools or streams")
            })?;
            let both_free = block.has(FREE) && next.has(FREE);
            ensure(!both_free || block.has(MAPPED) != next.has(MAPPED), || {
                format!("free neighbours at {:#x} were not merged", next.addr)
            })?;
        }
        ensure(block.prev == NONE || self.blocks[block.prev].next == id, || {
            format!("block {id} is not the next of its prev")
        })
    }

    fn check_sets(&self, id: u32, block: &Block) -> Result<(), BrokenInvariant> {
        ensure(!(block.has(FREE) && block.has(ALLOCATED)), || {
            format!("block {id} at {:#x} is free and allocated", block.addr)
        })?;
        ensure(block.has(MAPPED) || block.has(FREE) && block.has(EXPANDABLE), || {
            format!("block {id} at {:#x} is in use but not mapped", block.addr)
        })?;
        let pending = !block.has(FREE) && !block.has(ALLOCATED);
        ensure(!pending || block.events > 0 || block.uses > 0, || {
            format!("block {id} at {:#x} is neither free nor in use", block.addr)
        })?;
        let half = &self.pools[(block.half / 2) as usize].halves[(block.half % 2) as usize];
        let stream = block.stream as usize;
        let in_free = half.free.get(stream).is_some_and(|set| {
            set.at(block.size, self.tie_rule.order(block)).is_some_and(|e| e.block == id)
        });
        let in_unmapped =
            half.unmapped.get(stream).is_some_and(|m| m.get(&block.addr) == Some(&id));
        ensure(in_free == (block.has(FREE) && block.has(MAPPED)), || {
            format!("block {id} at {:#x} and its free set disagree", block.addr)
        })?;
        ensure(in_unmapped != block.has(MAPPED), || {
            format!("block {id} at {:#x} and its unmapped set disagree", block.addr)
        })
    }

    fn check_free_sets(&self) -> Result<(), BrokenInvariant> {
        let halves = || self.pools.iter().flat_map(|p| &p.halves);
        let in_sets: usize =
            halves().flat_map(|h| &h.free).map(crate::free_set::FreeSet::len).sum();
        let unmapped: usize =
            halves().flat_map(|h| &h.unmapped).map(std::collections::BTreeMap::len).sum();
        let free = self.blocks.iter().filter(|(_, b)| b.has(FREE)).count();
        ensure(in_sets + unmapped == free, || {
            format!("{in_sets} + {unmapped} entries in free sets for {free} free blocks")
        })
    }

    fn check_overlap(&self) -> Result<(), BrokenInvariant> {
        let mut ranges: Vec<_> = self.blocks.iter().map(|(id, b)| (b.addr, b.end(), id)).collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            ensure(pair[0].1 <= pair[1].0, || {
                format!("blocks {} and {} overlap at {:#x}", pair[0].2, pair[1].2, pair[1].0)
            })?;
        }
        Ok(())
    }

    fn check_counters(&self, sums: &[Sums; 2]) -> Result<(), BrokenInvariant> {
        let reserved: u64 = sums.iter().map(|s| s.mapped).sum();
        ensure(reserved == self.reserved, || {
            format!("{} bytes are held, {reserved} lie in segments", self.reserved)
        })?;
        for (sums, small) in sums.iter().zip([true, false]) {
            let bytes = |b: u64| i64::try_from(b).unwrap_or(i64::MAX);
            for (family, want) in [
                (Family::Allocation, sums.allocations),
                (Family::AllocatedBytes, bytes(sums.allocated)),
                (Family::Active, sums.actives),
                (Family::ActiveBytes, bytes(sums.active)),
                (Family::RequestedBytes, bytes(sums.requested)),
                (Family::ReservedBytes, bytes(sums.mapped)),
                (Family::Segment, sums.segments),
                (Family::InactiveSplit, sums.inactive_split),
                (Family::InactiveSplitBytes, bytes(sums.inactive_split_bytes)),
            ] {
                let stat = self.stats.pool(family, small);
                ensure(stat.current == want, || {
                    format!("{family:?} (small: {small}) says {}, blocks say {want}", stat.current)
                })?;
                ensure(stat.peak >= stat.current, || format!("{family:?} is above its peak"))?;
            }
            ensure(sums.allocated <= sums.active && sums.active <= sums.mapped, || {
                format!(
                    "allocated {} ≤ active {} ≤ reserved {} fails",
                    sums.allocated, sums.active, sums.mapped
                )
            })?;
        }
        Ok(())
    }

    fn check_reservations(&self) -> Result<(), BrokenInvariant> {
        let mut covered = vec![0u64; self.reservations.len()];
        for (id, block) in self.blocks.iter().filter(|(_, b)| b.has(EXPANDABLE)) {
            let reservation = &self.reservations[block.reservation as usize];
            let inside = block.addr >= reservation.base
                && block.end() <= reservation.base + reservation.size;
            ensure(inside && reservation.live, || {
                format!("block {id} at {:#x} lies outside its reservation", block.addr)
            })?;
            covered[block.reservation as usize] += block.size;
        }
        for (reservation, covered) in self.reservations.iter().zip(covered) {
            ensure(!reservation.live || covered == reservation.size, || {
                format!("reservation at {:#x} is not tiled by its blocks", reservation.base)
            })?;
        }
        Ok(())
    }
}

fn add(sums: &mut Sums, block: &Block) {
    if !block.has(MAPPED) {
        return;
    }
    sums.mapped += block.size;
    let ordinary = !block.has(EXPANDABLE);
    if ordinary && block.prev == NONE {
        sums.segments += 1;
    }
    if block.has(FREE) {
        if ordinary && block.is_split() {
            sums.inactive_split += 1;
            sums.inactive_split_bytes += block.size;
        }
        return;
    }
    sums.actives += 1;
    sums.active += block.size;
    sums.requested += block.requested;
    if block.has(ALLOCATED) {
        sums.allocations += 1;
        sums.allocated += block.size;
    }
}
