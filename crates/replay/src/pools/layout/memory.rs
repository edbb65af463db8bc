//! The free memory of a layout: blocks joined with their neighbours, in lookup order.

use super::*;

impl Layout {
    /// Adds a free block and joins it with free neighbours of the same segment.
    pub(super) fn add_free(&mut self, mut addr: u64, mut size: u64, segment: u32) -> Option<()> {
        if let Some((&a, &(s, g))) = self.state.free.range(..addr).next_back()
            && a + s == addr
            && g == segment
        {
            self.take_free(a);
            (addr, size) = (a, size + s);
        }
        if let Some(&(s, g)) = self.state.free.get(&addr.checked_add(size)?)
            && g == segment
        {
            self.take_free(addr + size);
            size += s;
        }
        let s = &mut self.segments[segment as usize];
        s.pieces += 1;
        if !s.expandable && s.addr == addr && s.end - s.addr == size {
            self.state.idle.insert(segment);
        }
        self.state.order.insert((s.small, s.stream, size, addr));
        self.state.free.insert(addr, (size, segment));
        Some(())
    }

    pub(super) fn take_free(&mut self, addr: u64) -> Option<(u64, u32)> {
        let (size, segment) = self.state.free.remove(&addr)?;
        let s = &mut self.segments[segment as usize];
        s.pieces -= 1;
        self.state.order.remove(&(s.small, s.stream, size, addr));
        self.state.idle.remove(&segment);
        Some((size, segment))
    }
}
