//! Counters with the names of `torch.cuda.memory_stats()`.

/// A counter with its peak, and what was added and taken in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: i64,
    /// The most at one time since the last reset.
    pub peak: i64,
    /// Sum of what was added.
    pub allocated: i64,
    /// Sum of what was taken.
    pub freed: i64,
}

impl Stat {
    #[inline]
    pub(crate) fn add(&mut self, amount: i64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    #[inline]
    pub(crate) fn take(&mut self, amount: i64) {
        self.current -= amount;
        self.freed += amount;
    }

    /// Brings the counter to a value that was counted anew.
    pub(crate) fn set(&mut self, value: i64) {
        match value - self.current {
            more if more > 0 => self.add(more),
            less => self.take(-less),
        }
    }
}

/// Of three: all, small pool, large pool.
pub type Class = [Stat; 3];

#[inline]
fn add(class: &mut Class, small: bool, amount: i64) {
    class[0].add(amount);
    class[2 - usize::from(small)].add(amount);
}

#[inline]
fn take(class: &mut Class, small: bool, amount: i64) {
    class[0].take(amount);
    class[2 - usize::from(small)].take(amount);
}

/// Everything counted. Bytes of blocks are rounded to 512; `requested_bytes` are as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks handed out.
    pub allocation: Class,
    /// Longest runs of mapped addresses; counted when asked.
    pub segment: Class,
    /// Blocks handed out or waiting for another stream.
    pub active: Class,
    /// Free blocks beside blocks in use within a page; counted when asked.
    pub inactive_split: Class,
    /// Bytes handed out.
    pub allocated_bytes: Class,
    /// Physical bytes held; those that back nothing count as large.
    pub reserved_bytes: Class,
    /// Bytes handed out or waiting.
    pub active_bytes: Class,
    /// Free bytes in partly used pages; counted when asked.
    pub inactive_split_bytes: Class,
    /// Bytes asked for.
    pub requested_bytes: Class,
    /// Requests that needed a release and a second attempt.
    pub num_alloc_retries: i64,
    /// Requests that failed.
    pub num_ooms: i64,
    /// Times that all streams were waited for.
    pub num_sync_all_streams: i64,
    /// Handles created.
    pub num_device_alloc: i64,
    /// Handles released.
    pub num_device_free: i64,
}

impl Stats {
    #[inline]
    pub(crate) fn on_alloc(&mut self, small: bool, size: i64, requested: i64) {
        add(&mut self.allocation, small, 1);
        add(&mut self.active, small, 1);
        add(&mut self.allocated_bytes, small, size);
        add(&mut self.active_bytes, small, size);
        add(&mut self.requested_bytes, small, requested);
    }

    #[inline]
    pub(crate) fn on_free(&mut self, small: bool, size: i64, requested: i64) {
        take(&mut self.allocation, small, 1);
        take(&mut self.allocated_bytes, small, size);
        take(&mut self.requested_bytes, small, requested);
    }

    #[inline]
    pub(crate) fn on_idle(&mut self, small: bool, size: i64) {
        take(&mut self.active, small, 1);
        take(&mut self.active_bytes, small, size);
    }

    pub(crate) fn on_reserve(&mut self, small: bool, bytes: i64) {
        add(&mut self.reserved_bytes, small, bytes);
    }

    pub(crate) fn on_unreserve(&mut self, small: bool, bytes: i64) {
        take(&mut self.reserved_bytes, small, bytes);
    }

    /// A handle serves the other class of blocks from now on.
    pub(crate) fn on_move(&mut self, from_small: bool, to_small: bool, bytes: i64) {
        if from_small != to_small {
            self.reserved_bytes[2 - usize::from(from_small)].take(bytes);
            self.reserved_bytes[2 - usize::from(to_small)].add(bytes);
        }
    }

    fn classes(&mut self) -> [&mut Class; 9] {
        [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ]
    }

    pub(crate) fn reset_peaks(&mut self) {
        for stat in self.classes().into_iter().flatten() {
            stat.peak = stat.current;
        }
    }

    pub(crate) fn reset_accumulated(&mut self) {
        for stat in self.classes().into_iter().flatten() {
            (stat.allocated, stat.freed) = (0, 0);
        }
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
    }
}
