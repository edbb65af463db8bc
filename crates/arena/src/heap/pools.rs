//! Private pools: of graph captures and of `MemPool`s. What they hold is lent to nobody while somebody uses them.

use super::{AllocError, Heap, PoolId};
use crate::device::Device;

/// One pool.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) id: PoolId,
    /// Graphs and `MemPool`s that refer to it.
    users: i64,
    /// Whether other requests may use its free memory when nothing else is left.
    pub(super) use_on_oom: bool,
}

impl Pool {
    pub(super) fn new(id: PoolId) -> Self {
        Self { id, users: 0, use_on_oom: false }
    }

    /// Whether its free pages may serve elsewhere or be released.
    pub(super) fn lends(&self) -> bool {
        self.id == PoolId::DEFAULT || self.users <= 0
    }
}

impl<D: Device> Heap<D> {
    pub(super) fn pool_index(&self, id: PoolId) -> Result<u16, AllocError> {
        let index = self.pools.iter().position(|p| p.id == id);
        index.map(|i| i as u16).ok_or(AllocError::UnknownPool)
    }

    /// One more user of a pool, which is made if it is new; the number of users.
    pub fn pool_retain(&mut self, id: PoolId) -> Result<i64, AllocError> {
        if let Ok(index) = self.pool_index(id) {
            let pool = &mut self.pools[index as usize];
            pool.users += 1;
            return Ok(pool.users);
        }
        if self.pools.len() >= usize::from(u16::MAX) {
            return Err(AllocError::UnknownPool);
        }
        self.pools.push(Pool { users: 1, ..Pool::new(id) });
        Ok(1)
    }

    /// One user less; without users its free memory is like that of the default pool. The number left.
    pub fn pool_release(&mut self, id: PoolId) -> Result<i64, AllocError> {
        let index = self.pool_index(id)?;
        let pool = &mut self.pools[index as usize];
        pool.users = (pool.users - 1).max(0);
        Ok(pool.users)
    }

    /// Users of a pool; `None` = there is no such pool.
    pub fn pool_users(&self, id: PoolId) -> Option<i64> {
        self.pools.iter().find(|p| p.id == id).map(|p| p.users)
    }

    /// Whether requests of other pools may use this pool's free memory when nothing else is left.
    pub fn pool_use_on_oom(&mut self, id: PoolId, on: bool) -> Result<(), AllocError> {
        let index = self.pool_index(id)?;
        self.pools[index as usize].use_on_oom = on;
        Ok(())
    }

    /// A capture begins: from now on nothing that a capture forbids is asked of its streams.
    pub fn capture_begin(&mut self) {
        self.captures += 1;
    }

    /// A capture ended.
    pub fn capture_end(&mut self) {
        self.captures = self.captures.saturating_sub(1);
    }

    /// A region whose pool has no users and no blocks serves a new pool, addresses and free pages included: programs
    /// that capture again and again would use up the address space otherwise.
    pub(super) fn adopt_region(&mut self, stream: u64, pool: u16) -> Option<usize> {
        if pool == 0 {
            return None;
        }
        let pools = &self.pools;
        let left = |r: &crate::region::Region| {
            r.pool != 0 && r.live == 0 && r.stream == stream && pools[r.pool as usize].lends()
        };
        let index = self.regions.iter().position(left)?;
        self.regions[index].pool = pool;
        Some(index)
    }
}
