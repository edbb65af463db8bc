//! Where `cudaMalloc` puts segments, as measured on an H200 (specification §17.1).
//!
//! The driver holds chunks of address space, multiples of 32 MiB. A request is served from the newest
//! chunk with room, else from a new chunk in the highest sufficient gap, else below all chunks.

use std::collections::BTreeMap;

use super::{CHUNK, Placement, Reservations};

/// First chunk ends here when nothing was recorded.
const TOP: u64 = 0x7f80_0000_0000;

#[derive(Clone, Debug)]
struct Chunk {
    id: u64,
    start: u64,
    end: u64,
    /// Free ranges (start, end), ascending, never touching.
    free: Vec<(u64, u64)>,
    /// A chunk that began in the middle of something unknown never goes back.
    pinned: bool,
    /// Taken from the address space of the process.
    of_process: bool,
}

/// The address space of a process, which the driver asks for its chunks as any library asks for memory: what else lies
/// there, and what comes and goes, decides where they are.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSpace {
    /// Takes so many bytes, a multiple of 32 MiB, at an address that is one, too; `None` where there is no room.
    pub take: fn(u64) -> Option<u64>,
    /// Returns what was taken: start, bytes.
    pub give_back: fn(u64, u64),
    /// Where chunks go, downwards, for which there is no room: below all that `take` gives.
    pub below: u64,
}

/// The driver's address model; see the module's description.
#[derive(Clone, Debug)]
pub struct DriverPlacement {
    /// Oldest first.
    chunks: Vec<Chunk>,
    /// Address space left by returned chunks, start → end, never touching.
    gaps: BTreeMap<u64, u64>,
    /// Everything below is open.
    cursor: u64,
    /// Live segments: start → (end, chunk that it was taken from).
    live: BTreeMap<u64, (u64, u64)>,
    next_id: u64,
    adopted_any: bool,
    reservations: Reservations,
    /// Where chunks come from, if not from `gaps` and below `cursor`.
    process: Option<ProcessSpace>,
}

impl Default for DriverPlacement {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            gaps: BTreeMap::new(),
            cursor: TOP,
            live: BTreeMap::new(),
            next_id: 0,
            adopted_any: false,
            reservations: Reservations::default(),
            process: None,
        }
    }
}

impl DriverPlacement {
    /// The same in a process that runs: chunks are taken from its address space.
    pub fn within(process: ProcessSpace) -> Self {
        Self { cursor: process.below, process: Some(process), ..Self::default() }
    }

    /// Takes a new chunk for `size` bytes, whatever room others have; what it leaves is for all.
    pub fn place_apart(&mut self, size: u64) -> u64 {
        let length = size.next_multiple_of(CHUNK);
        let given = self.process.and_then(|process| (process.take)(length));
        let start = given.unwrap_or_else(|| self.new_chunk(length));
        let end = start + length;
        let free = if size < length { vec![(start + size, end)] } else { Vec::new() };
        let chunk = Chunk { id: 0, start, end, free, pinned: false, of_process: given.is_some() };
        self.add_chunk(chunk, (start, start + size));
        start
    }

    /// Takes note that the real driver put a segment at `addr` (§17.4).
    pub fn adopt(&mut self, addr: u64, size: u64) {
        let first = !std::mem::replace(&mut self.adopted_any, true);
        let end = addr.saturating_add(size);
        for chunk in self.chunks.iter_mut().rev() {
            if let Some(i) = chunk.free.iter().position(|&(s, e)| s <= addr && end <= e) {
                let (s, e) = chunk.free[i];
                let rest = [(s, addr), (end, e)];
                chunk.free.splice(i..=i, rest.into_iter().filter(|(s, e)| s < e));
                self.live.insert(addr, (end, chunk.id));
                return;
            }
        }
        let aligned = addr.is_multiple_of(CHUNK);
        let (start, stop) = (addr - addr % CHUNK, end.next_multiple_of(CHUNK));
        let free = if end < stop { vec![(end, stop)] } else { Vec::new() };
        let chunk = Chunk { id: 0, start, end: stop, free, pinned: !aligned, of_process: false };
        self.add_chunk(chunk, (addr, end));
        self.cut_gaps(start, stop);
        if first || (aligned && start < self.cursor) {
            self.cursor = start;
        }
    }

    fn cut_gaps(&mut self, start: u64, end: u64) {
        let hit: Vec<_> =
            self.gaps.range(..end).filter(|&(_, e)| *e > start).map(|(&s, &e)| (s, e)).collect();
        for (s, e) in hit {
            self.gaps.remove(&s);
            if s < start {
                self.gaps.insert(s, start);
            }
            if end < e {
                self.gaps.insert(end, e);
            }
        }
    }

    fn add_chunk(&mut self, chunk: Chunk, (start, end): (u64, u64)) {
        self.next_id += 1;
        self.live.insert(start, (end, self.next_id));
        self.chunks.push(Chunk { id: self.next_id, ..chunk });
    }

    /// Whether no live segment lies in the range. What the rules call free can be taken: a recorded
    /// segment may reach over the end of its chunk into the next 32 MiB.
    fn is_clear(&self, start: u64, end: u64) -> bool {
        self.live.range(..end).next_back().is_none_or(|(_, (live_end, _))| *live_end <= start)
    }

    /// From the newest chunk that has room: its smallest sufficient range, lowest among equals.
    fn take_from_chunks(&mut self, size: u64) -> Option<u64> {
        for at in (0..self.chunks.len()).rev() {
            let chunk = &self.chunks[at];
            let best = (chunk.free.iter().enumerate())
                .filter(|(_, (s, e))| e - s >= size && self.is_clear(*s, s + size))
                .min_by_key(|(_, (s, e))| (e - s, *s))
                .map(|(i, range)| (i, *range));
            if let Some((i, (start, end))) = best {
                let chunk = &mut self.chunks[at];
                if end - start == size {
                    chunk.free.remove(i);
                } else {
                    chunk.free[i].0 = start + size;
                }
                self.live.insert(start, (start + size, chunk.id));
                return Some(start);
            }
        }
        None
    }

    /// Start of a new chunk of `size` bytes.
    fn new_chunk(&mut self, size: u64) -> u64 {
        let roomy = |&(s, e): &(&u64, &u64)| e - s >= size + CHUNK && self.is_clear(e - size, *e);
        let gap = self.gaps.iter().rev().find(roomy);
        if let Some((&start, &end)) = gap {
            let at = end - size;
            if at == start {
                self.gaps.remove(&start);
            } else {
                self.gaps.insert(start, at);
            }
            return at;
        }
        while let Some(end) = self.gaps.remove(&self.cursor) {
            self.cursor = end;
        }
        loop {
            let start = self.cursor.saturating_sub(size);
            // A recorded segment may stand below the cursor: step over it.
            match self.live.range(..self.cursor).next_back() {
                Some((below, (end, _))) if *end > start => self.cursor = below - below % CHUNK,
                _ => {
                    self.cursor = start;
                    return start;
                }
            }
        }
    }

    fn return_chunk(&mut self, chunk: &Chunk) {
        if let Some(process) = self.process.filter(|_| chunk.of_process) {
            (process.give_back)(chunk.start, chunk.end - chunk.start);
            return;
        }
        let (mut start, mut end) = (chunk.start, chunk.end);
        if let Some((&s, &e)) = self.gaps.range(..start).next_back()
            && e == start
        {
            self.gaps.remove(&s);
            start = s;
        }
        if let Some(e) = self.gaps.remove(&end) {
            end = e;
        }
        self.gaps.insert(start, end);
    }
}

impl Placement for DriverPlacement {
    fn place(&mut self, size: u64) -> u64 {
        self.take_from_chunks(size).unwrap_or_else(|| self.place_apart(size))
    }

    fn release(&mut self, addr: u64, size: u64) {
        let Some((_, owner)) = self.live.remove(&addr) else { return };
        let Some(at) = self.chunks.iter().position(|c| c.id == owner) else {
            return;
        };
        let chunk = &mut self.chunks[at];
        let (mut start, mut end) = (addr, addr + size);
        let mut i = chunk.free.partition_point(|&(s, _)| s < start);
        if i < chunk.free.len() && chunk.free[i].0 == end {
            end = chunk.free.remove(i).1;
        }
        if i > 0 && chunk.free[i - 1].1 == start {
            i -= 1;
            start = chunk.free.remove(i).0;
        }
        chunk.free.insert(i, (start, end));
        if start == chunk.start && end == chunk.end && !chunk.pinned {
            let chunk = self.chunks.remove(at);
            self.return_chunk(&chunk);
        }
    }

    fn reserve(&mut self, size: u64) -> u64 {
        self.reservations.reserve(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn small_segments_rise_in_the_newest_chunk_and_large_ones_fall() {
        let mut driver = DriverPlacement::default();
        let a = driver.place(2 * MIB);
        assert_eq!(a, TOP - 32 * MIB);
        assert_eq!(driver.place(20 * MIB), a + 2 * MIB);
        assert_eq!(driver.place(100 * MIB), a - 128 * MIB);
        // the newest chunk has 28 MiB behind the 100, the older one 10
        assert_eq!(driver.place(10 * MIB), a - 28 * MIB);
    }

    #[test]
    fn chunks_that_the_process_has_no_room_for_go_below() {
        let below = 0x7e00_0000_0000;
        let take = |bytes| (bytes <= CHUNK).then_some(0x7f00_0000_0000);
        let mut driver =
            DriverPlacement::within(ProcessSpace { take, give_back: |_, _| {}, below });
        assert_eq!(driver.place(2 * MIB), 0x7f00_0000_0000);
        assert_eq!(driver.place(100 * MIB), below - 128 * MIB);
        driver.release(below - 128 * MIB, 100 * MIB);
        assert_eq!(driver.place(120 * MIB), below - 128 * MIB);
    }

    #[test]
    fn a_returned_chunk_leaves_a_gap_that_is_used_only_with_room_to_spare() {
        let mut driver = DriverPlacement::default();
        let a = driver.place(64 * MIB);
        let b = driver.place(96 * MIB);
        let c = driver.place(32 * MIB);
        driver.release(b, 96 * MIB);
        assert_eq!(driver.place(96 * MIB), c - 96 * MIB);
        assert_eq!(driver.place(64 * MIB), a - 64 * MIB);
    }

    #[test]
    fn adopted_addresses_shape_what_follows() {
        let mut driver = DriverPlacement::default();
        let base = 0x7f00_0000_0000;
        driver.adopt(base, 2 * MIB);
        driver.adopt(base + 6 * MIB, 4 * MIB);
        assert_eq!(driver.place(4 * MIB), base + 2 * MIB);
        assert_eq!(driver.place(40 * MIB), base - 64 * MIB);
    }

    proptest! {
        #[test]
        fn live_segments_never_overlap(steps in prop::collection::vec((0u8..10, 1u64..60, any::<u16>()), 1..300)) {
            let mut driver = DriverPlacement::default();
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (kind, units, pick) in steps {
                let size = units * 2 * MIB;
                if kind < 4 && !live.is_empty() {
                    let (addr, size) = live.swap_remove(usize::from(pick) % live.len());
                    driver.release(addr, size);
                    continue;
                }
                let addr = if kind == 9 {
                    let addr = TOP - u64::from(pick) * 2 * MIB;
                    if live.iter().any(|(a, s)| addr < a + s && *a < addr + size) { continue; }
                    driver.adopt(addr, size);
                    addr
                } else {
                    driver.place(size)
                };
                prop_assert!(live.iter().all(|(a, s)| addr >= a + s || addr + size <= *a));
                live.push((addr, size));
            }
        }
    }
}
