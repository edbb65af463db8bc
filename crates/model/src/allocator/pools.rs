//! Private pools and the routing of requests to them (specification §1.7, §5.7).

use super::{Allocator, Scope, StreamIndex, index};
use crate::device::Device;
use crate::history::Recorder;
use crate::pool::{Pool, PoolIndex, PoolOptions};

/// A thread of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadId(pub u32);

/// Which requests a begun routing takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Those on the streams of a graph capture.
    Streams(Vec<StreamIndex>),
    /// Those of one thread (`torch.cuda.use_mem_pool`).
    Thread(ThreadId),
}

#[derive(Clone, Debug)]
pub(super) struct Route {
    pool: PoolIndex,
    filter: Filter,
}

impl<D: Device> Allocator<D> {
    /// Creates a private pool with one user (the `MemPool` object or the graph).
    pub fn create_pool(&mut self, options: PoolOptions) -> PoolIndex {
        self.pools.push(Pool::new(options, 1));
        PoolIndex(index(self.pools.len() - 1))
    }

    /// Number of pools, the default one included.
    pub fn pool_count(&self) -> usize {
        self.pools.len()
    }

    /// Begins to send the filter's requests to a pool, which gains a user.
    pub fn begin_route(&mut self, pool: PoolIndex, filter: Filter) {
        self.pools[pool.0 as usize].users += 1;
        self.routes.push(Route { pool, filter });
    }

    /// Ends the routing to a pool; the user it added stays until [`Allocator::release_pool`].
    pub fn end_route(&mut self, pool: PoolIndex) {
        if let Some(at) = self.routes.iter().rposition(|r| r.pool == pool) {
            self.routes.remove(at);
        }
    }

    /// One user fewer; without users the pool's free segments may go back to the device.
    pub fn release_pool(&mut self, pool: PoolIndex) {
        let users = &mut self.pools[pool.0 as usize].users;
        *users = users.saturating_sub(1);
    }

    /// Destroys a `MemPool` object: releases it and returns its free segments (§5.7).
    pub fn destroy_pool(&mut self, pool: PoolIndex, history: &mut impl Recorder) {
        self.release_pool(pool);
        self.release_cached(&Scope::pool(pool), history);
    }

    /// Says for replays whether a private pool has no users, so that its free memory can be released.
    pub fn set_freeable(&mut self, pool: PoolIndex, freeable: bool) {
        if pool != PoolIndex::DEFAULT {
            self.pools[pool.0 as usize].users = u32::from(!freeable);
        }
    }

    /// Whether a capture or pool routing is under way.
    pub fn is_routing(&self) -> bool {
        !self.routes.is_empty()
    }

    /// The pool that a request goes to: the last begun matching route wins, before 2.11 the first.
    pub(super) fn route_of(&self, stream: StreamIndex, thread: ThreadId) -> PoolIndex {
        let matches = |route: &&Route| match &route.filter {
            Filter::Streams(streams) => streams.contains(&stream),
            Filter::Thread(t) => *t == thread,
        };
        let found = if self.version.at_least_2(11) {
            self.routes.iter().rev().find(matches)
        } else {
            self.routes.iter().find(matches)
        };
        found.map_or(PoolIndex::DEFAULT, |route| route.pool)
    }
}
