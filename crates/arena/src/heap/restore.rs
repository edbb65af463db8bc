//! Bringing a private pool back to a saved state, as graph trees need it between paths.

use super::{AllocError, BlockInfo, Heap, PoolId, Saved};
use crate::block::{Kind, NONE};
use crate::device::Device;
use crate::params::UNIT;

impl<D: Device> Heap<D> {
    /// Frees every live block of a pool and makes exactly the saved ones live.
    ///
    /// # Errors
    ///
    /// [`AllocError::UnknownPool`] if there is no such pool or a saved block lies where the pool has no free memory;
    /// the blocks before it are live then.
    pub fn pool_restore(
        &mut self,
        pool: PoolId,
        saved: &[Saved],
        mut freed: impl FnMut(&BlockInfo),
        mut made: impl FnMut(&BlockInfo),
    ) -> Result<(), AllocError> {
        let index = self.pool_index(pool)?;
        for address in self.live_addresses(index) {
            if let Some(id) = self.live_block(address) {
                // Graph trees know that nobody uses these: no stream is waited for.
                self.uses.remove(&id);
                self.blocks[id].shared = false;
            }
            if let Some(info) = self.free(address) {
                freed(&info);
            }
        }
        self.cool();
        for block in saved {
            let id = self.take_exactly(block, index).ok_or(AllocError::UnknownPool)?;
            self.hand_out(id, block.requested);
            made(&self.block_info(id));
        }
        Ok(())
    }

    fn live_addresses(&self, pool: u16) -> Vec<u64> {
        let mut addresses = Vec::new();
        for extent in &self.extents {
            if self.regions[extent.region as usize].pool != pool {
                continue;
            }
            let mut id = extent.first;
            while id != NONE {
                if self.blocks[id].kind == Kind::Live {
                    addresses.push(extent.address(self.blocks[id].start));
                }
                id = self.blocks[id].next;
            }
        }
        addresses
    }

    fn take_exactly(&mut self, wanted: &Saved, pool: u16) -> Option<u32> {
        let extent = &self.extents[self.directory.find(wanted.address)? as usize];
        let offset = wanted.address.checked_sub(extent.base)?;
        if self.regions[extent.region as usize].pool != pool || !offset.is_multiple_of(UNIT) {
            return None;
        }
        let start = u32::try_from(offset / UNIT).ok()?;
        let units = u32::try_from(wanted.size.div_ceil(UNIT).max(1)).ok()?;
        let end = start.checked_add(units)?;
        let mut id = extent.first;
        while id != NONE && self.blocks[id].end() <= start {
            id = self.blocks[id].next;
        }
        let fits = id != NONE && self.blocks[id].kind == Kind::Free;
        (fits && self.blocks[id].start <= start && end <= self.blocks[id].end())
            .then(|| self.carve(id, start, units))
    }
}
