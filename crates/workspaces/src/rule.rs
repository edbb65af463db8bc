//! Sizes that follow a rule, where no table has them.

/// A workspace by rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Its size.
    pub bytes: u64,
    /// Whether that is what the library says on an H200; else it is an estimate.
    pub known: bool,
}
