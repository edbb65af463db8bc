//! Regions: the blocks of one stream and one pool.

use crate::bins::Bins;
use crate::block::NONE;

/// One region. Blocks never move between regions; only pages do.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) stream: u64,
    /// Index of the pool; 0 = the default pool.
    pub(crate) pool: u16,
    /// For blocks below [`crate::Params::small_below`].
    pub(crate) small: bool,
    pub(crate) bins: Bins,
    /// First of the list of holes.
    pub(crate) holes: u32,
    pub(crate) extents: Vec<u16>,
    /// Live and pending blocks.
    pub(crate) live: u32,
}

impl Region {
    pub(crate) fn new(stream: u64, pool: u16, small: bool) -> Self {
        Self {
            stream,
            pool,
            small,
            bins: Bins::default(),
            holes: NONE,
            extents: Vec::new(),
            live: 0,
        }
    }
}
