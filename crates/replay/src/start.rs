//! What was there when a recording began: rebuilt backwards from the final state and the history.
//!
//! A history that began in mid-run (or whose ring buffer wrapped) says nothing of the time before. But
//! the snapshot shows the end, and undoing every entry from the last to the first leads back to the
//! start (specification §8.1). What stays unknown are counters and the age of cached blocks.

use std::collections::BTreeMap;

use vramwise_model::settings::Config;
use vramwise_model::{BlockState, BlockView, PoolIndex, SegmentView, StreamIndex, size};
use vramwise_trace::{self as trace, DeviceTrace};
use vramwise_types::Action;

use crate::history::{BEYOND, Ev, History};

/// Why no state at the start leads to this history and this end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inconsistent {
    /// Entry of the history.
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// Whether the history begins with an empty cache: what it took and gave back is what is there at the
/// end. A cheap check; a history that passes it wrongly diverges at once.
pub(crate) fn begins_empty(history: &History, device: &DeviceTrace) -> bool {
    let (mut held, mut blocks) = (0i128, 0i128);
    for e in &history.entries {
        match e.action {
            Action::SegmentAlloc | Action::SegmentMap => held += i128::from(e.size),
            Action::SegmentFree | Action::SegmentUnmap => held -= i128::from(e.size),
            Action::Alloc => blocks += 1,
            Action::FreeRequested | Action::Free => blocks -= 1,
            Action::FreeCompleted if !history.has_requested => blocks -= 1,
            _ => {}
        }
        if held < 0 || blocks < 0 {
            return false;
        }
    }
    let total: i128 = device.segments.iter().map(|s| i128::from(s.total_size)).sum();
    let allocated = |b: &&trace::Block| b.state == trace::BlockState::ActiveAllocated;
    let live = device.blocks.iter().filter(allocated).count();
    held == total && blocks == i128::try_from(live).unwrap_or(0)
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    size: u64,
    requested: u64,
    state: BlockState,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Home {
    stream: u32,
    small: bool,
    pool: PoolIndex,
    expandable: bool,
    size: u64,
}

/// The state while it is wound back.
struct Rewind<'a> {
    config: &'a Config,
    /// Segments (mapped runs) by address.
    segments: BTreeMap<u64, Home>,
    /// Blocks of all segments by address; free neighbours of one segment are always joined.
    pieces: BTreeMap<u64, Piece>,
}

/// The segments at the start of the history, ascending by address.
///
/// # Errors
/// [`Inconsistent`] where an entry cannot be undone.
pub(crate) fn rebuild(
    history: &History,
    device: &DeviceTrace,
    config: &Config,
    pool_ids: &[(u64, u64)],
) -> Result<Vec<SegmentView>, Inconsistent> {
    rebuild_before(0, history, device, config, pool_ids)
}

/// The segments before entry `until` of the history, ascending by address.
///
/// # Errors
/// [`Inconsistent`] where an entry cannot be undone.
pub(crate) fn rebuild_before(
    until: usize,
    history: &History,
    device: &DeviceTrace,
    config: &Config,
    pool_ids: &[(u64, u64)],
) -> Result<Vec<SegmentView>, Inconsistent> {
    let beyond = |addr: u64, size: u64| addr >= BEYOND || size >= BEYOND;
    let absurd = device.segments.iter().any(|s| beyond(s.address, s.total_size))
        || device.blocks.iter().any(|b| beyond(b.address, b.size));
    if absurd {
        let what = "the snapshot has segments that no device has".to_owned();
        return Err(Inconsistent { at: history.len(), what });
    }
    let mut rewind = Rewind::at_end(history, device, config, pool_ids);
    for (at, entry) in history.entries.iter().enumerate().skip(until).rev() {
        rewind.undo(history, at, entry).map_err(|what| Inconsistent { at, what })?;
    }
    Ok(rewind.finish())
}

impl<'a> Rewind<'a> {
    fn at_end(
        history: &History,
        device: &DeviceTrace,
        config: &'a Config,
        pool_ids: &[(u64, u64)],
    ) -> Self {
        let mut rewind = Self { config, segments: BTreeMap::new(), pieces: BTreeMap::new() };
        for segment in &device.segments {
            let stream = history.streams.iter().position(|h| *h == segment.stream);
            let pool = pool_ids.iter().position(|id| *id == segment.pool_id).unwrap_or(0);
            rewind.segments.insert(
                segment.address,
                Home {
                    stream: narrow(stream.unwrap_or(0)),
                    small: segment.kind == trace::SegmentKind::Small,
                    pool: PoolIndex(narrow(pool)),
                    expandable: segment.is_expandable,
                    size: segment.total_size,
                },
            );
            let range = segment.blocks.start as usize..segment.blocks.end as usize;
            for block in device.blocks.get(range).unwrap_or_default() {
                let state = match block.state {
                    trace::BlockState::ActiveAllocated => BlockState::ActiveAllocated,
                    trace::BlockState::ActivePendingFree => BlockState::ActivePendingFree,
                    trace::BlockState::Inactive => BlockState::Inactive,
                };
                let piece = Piece { size: block.size, requested: block.requested_size, state };
                rewind.pieces.insert(block.address, piece);
            }
        }
        rewind
    }

    fn undo(&mut self, history: &History, at: usize, entry: &Ev) -> Result<(), String> {
        let Ev { addr, size, .. } = *entry;
        match entry.action {
            Action::Alloc => {
                let piece = self.pieces.get_mut(&addr).filter(|p| p.state != BlockState::Inactive);
                let piece = piece.ok_or_else(|| {
                    format!("no block is in use at {addr:#x} after its allocation")
                })?;
                piece.state = BlockState::Inactive;
                self.give_to_front(addr);
                self.join(addr);
                Ok(())
            }
            Action::FreeRequested if history.has_completed => {
                let piece =
                    self.pieces.get_mut(&addr).filter(|p| p.state == BlockState::ActivePendingFree);
                let piece = piece.ok_or_else(|| {
                    format!("the block at {addr:#x} was not waiting after its free")
                })?;
                piece.state = BlockState::ActiveAllocated;
                Ok(())
            }
            Action::FreeCompleted if history.has_requested => {
                self.carve(addr, size, BlockState::ActivePendingFree)
            }
            Action::FreeRequested | Action::FreeCompleted | Action::Free => {
                self.carve(addr, size, BlockState::ActiveAllocated)
            }
            Action::SegmentAlloc | Action::SegmentMap => self.ungrow(addr, size),
            Action::SegmentFree | Action::SegmentUnmap => {
                self.unrelease(entry, history.told_pool(at).unwrap_or(PoolIndex::DEFAULT))
            }
            _ => Ok(()),
        }
    }

    fn home_of(&self, addr: u64) -> Option<(u64, Home)> {
        let (&start, &home) = self.segments.range(..=addr).next_back()?;
        (addr < start + home.size).then_some((start, home))
    }

    /// An allocation takes a free block from its start. So what seems free directly before it was not: it
    /// is the rest of the block in front, which was not split off (§3.1).
    fn give_to_front(&mut self, addr: u64) {
        let Some((start, home)) = self.home_of(addr) else { return };
        if home.expandable {
            return;
        }
        let mut before = self.pieces.range(start..addr).rev();
        let (Some((&rest, r)), Some((&front, f))) = (before.next(), before.next()) else { return };
        let apart = r.state != BlockState::Inactive || f.state == BlockState::Inactive;
        if apart || rest + r.size != addr || front + f.size != rest {
            return;
        }
        let more = r.size;
        self.pieces.remove(&rest);
        if let Some(front) = self.pieces.get_mut(&front) {
            front.size += more;
        }
    }

    /// Joins the free piece at `addr` with free neighbours in its segment.
    fn join(&mut self, addr: u64) {
        let Some((start, home)) = self.home_of(addr) else { return };
        let mut at = addr;
        if let Some((&before, p)) = self.pieces.range(start..addr).next_back()
            && p.state == BlockState::Inactive
            && before + p.size == addr
        {
            let size = p.size;
            let own = self.pieces.remove(&addr).map_or(0, |p| p.size);
            self.pieces.insert(before, free_piece(size + own));
            at = before;
        }
        let end = at + self.pieces.get(&at).map_or(0, |p| p.size);
        if end < start + home.size
            && let Some(next) = self.pieces.get(&end)
            && next.state == BlockState::Inactive
        {
            let more = next.size;
            self.pieces.remove(&end);
            if let Some(piece) = self.pieces.get_mut(&at) {
                piece.size += more;
            }
        }
    }

    /// A free that is undone: its block comes back out of the free memory at `addr`.
    fn carve(&mut self, addr: u64, requested: u64, state: BlockState) -> Result<(), String> {
        let size = size::round_size(self.config, requested);
        let (start, end) = self.free_around(addr, size)?;
        self.pieces.remove(&start);
        if start < addr {
            self.pieces.insert(start, free_piece(addr - start));
        }
        self.pieces.insert(addr, Piece { size, requested, state });
        if addr + size < end {
            self.pieces.insert(addr + size, free_piece(end - addr - size));
        }
        Ok(())
    }

    /// The free piece that covers `addr..addr + size`.
    fn free_around(&self, addr: u64, size: u64) -> Result<(u64, u64), String> {
        let found = self.pieces.range(..=addr).next_back();
        found
            .filter(|(_, p)| p.state == BlockState::Inactive)
            .map(|(start, p)| (*start, start + p.size))
            .filter(|(_, end)| addr.checked_add(size).is_some_and(|own_end| own_end <= *end))
            .ok_or_else(|| format!("{size} bytes at {addr:#x} lie in no free memory"))
    }

    /// Growth that is undone: the memory leaves.
    fn ungrow(&mut self, addr: u64, size: u64) -> Result<(), String> {
        let (start, end) = self.free_around(addr, size)?;
        let (base, home) =
            self.home_of(addr).ok_or_else(|| format!("{addr:#x} lies in no segment"))?;
        if !home.expandable && (base, home.size) != (addr, size) {
            return Err(format!(
                "the segment at {base:#x} has {} bytes, {size} were taken",
                home.size
            ));
        }
        self.pieces.remove(&start);
        self.segments.remove(&base);
        let own_end = addr + size;
        if base < addr {
            self.segments.insert(base, Home { size: addr - base, ..home });
        }
        if own_end < base + home.size {
            self.segments.insert(own_end, Home { size: base + home.size - own_end, ..home });
        }
        if start < addr {
            self.pieces.insert(start, free_piece(addr - start));
        }
        if own_end < end {
            self.pieces.insert(own_end, free_piece(end - own_end));
        }
        Ok(())
    }

    /// A release that is undone: the memory comes back, free.
    fn unrelease(&mut self, entry: &Ev, pool: PoolIndex) -> Result<(), String> {
        let Ev { addr, size, stream, action } = *entry;
        if size == 0 {
            return Err(format!("0 bytes were released at {addr:#x}"));
        }
        let end = addr.checked_add(size).ok_or("an impossible range")?;
        if self.home_of(addr).is_some() || self.segments.range(addr..end).next().is_some() {
            return Err(format!("{addr:#x} was released but is still there"));
        }
        let expandable = action == Action::SegmentUnmap;
        // Ordinary small segments all have one size; expandable memory goes in granules of the class.
        let small = if expandable {
            !size.is_multiple_of(self.config.large_segment_size.max(1))
        } else {
            size <= size::SMALL_SEGMENT
        };
        let mut home = Home { stream, small, pool, expandable, size };
        let mut start = addr;
        if expandable {
            // it joins what is mapped on either side
            if let Some((&base, &before)) = self.segments.range(..addr).next_back()
                && before.expandable
                && base + before.size == addr
                && before.stream == stream
            {
                home = Home { size: before.size + size, ..before };
                start = base;
            }
            if let Some(&behind) = self.segments.get(&end)
                && behind.expandable
                && behind.stream == stream
            {
                let mine = home.size;
                home = Home { size: mine + behind.size, ..behind };
                self.segments.remove(&end);
            }
        }
        self.segments.insert(start, home);
        self.pieces.insert(addr, free_piece(size));
        self.join(addr);
        Ok(())
    }

    fn finish(self) -> Vec<SegmentView> {
        let Self { config, segments, mut pieces } = self;
        let mut views = Vec::with_capacity(segments.len());
        for (addr, home) in segments {
            let rest = pieces.split_off(&(addr + home.size));
            let mut blocks: Vec<BlockView> = Vec::new();
            for (addr, piece) in std::mem::replace(&mut pieces, rest) {
                let Piece { size, requested, state } = piece;
                // The large pool leaves no free piece of up to 1 MiB: it is the unsplit rest of the
                // block in front (§3.1).
                // So is whatever lies behind an oversize block.
                let oversize = |front: &BlockView| front.size >= config.max_split_size;
                let rest = state == BlockState::Inactive
                    && (size <= size::SMALL_MAX || blocks.last().is_some_and(oversize));
                match blocks.last_mut() {
                    Some(front)
                        if rest
                            && !home.small
                            && !home.expandable
                            && front.state != BlockState::Inactive =>
                    {
                        front.size += size;
                    }
                    _ => blocks.push(BlockView { addr, size, requested, state }),
                }
            }
            views.push(SegmentView {
                addr,
                size: home.size,
                stream: StreamIndex(home.stream),
                small: home.small,
                pool: home.pool,
                expandable: home.expandable,
                blocks,
            });
        }
        views
    }
}

fn free_piece(size: u64) -> Piece {
    Piece { size, requested: 0, state: BlockState::Inactive }
}

fn narrow(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}
