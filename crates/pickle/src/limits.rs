//! How much a file may ask for.

/// Bounds on what one pickle may contain. A length that a file declares is checked against these and
/// against the bytes that are really there before memory is set aside for it.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of (decompressed) input.
    pub input_bytes: u64,
    /// Lists, dictionaries, tuples and sets that are kept, not counting those that a sink took over.
    pub containers: u32,
    /// Values on the stack at one time.
    pub stack: usize,
    /// Marks open at one time: how deep literals nest.
    pub depth: usize,
    /// Memo entries.
    pub memo: u32,
    /// Bytes of one string or byte string.
    pub string_bytes: u64,
    /// Bytes of one integer.
    pub int_bytes: u64,
}

impl Default for Limits {
    /// Room for snapshots of several gigabytes, yet not for a file that only pretends to be one.
    fn default() -> Self {
        Self {
            input_bytes: 64 << 30,
            containers: 1 << 24,
            stack: 1 << 26,
            depth: 1 << 16,
            memo: 1 << 29,
            string_bytes: 256 << 20,
            int_bytes: 1 << 16,
        }
    }
}
