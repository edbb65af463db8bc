//! Which of PyTorch's two settings parsers a release carries.
//!
//! The boundary between them is not printed in any release note that was found. It was placed from
//! public facts: a user of 2.9.1 reports that CUDA obeys only `PYTORCH_CUDA_ALLOC_CONF` there
//! although the unified variable is announced, the unified parser was taken out again before the
//! 2.9 branch and came back in October 2025, and a 2.9 build for ROCm still carries the checked
//! parser. So 2.9 is read with the old rules and 2.10 with the new ones.

use vramwise_types::TorchVersion;

/// The rules that a release reads the settings string by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Up to 2.9: one parser, which checks every separator; numbers are C `int`s; errors are
    /// RuntimeErrors.
    Checked,
    /// From 2.10: two parsers in turn (common options, CUDA's own options) over the same tokens;
    /// separators have to be there but are not looked at; numbers are 64-bit; errors are
    /// ValueErrors.
    Unified,
}

impl Dialect {
    /// The dialect of a release.
    pub const fn of(version: TorchVersion) -> Self {
        if version.at_least_2(10) { Dialect::Unified } else { Dialect::Checked }
    }
}

/// From this release on a string that ends too early raises a ValueError; before it (from 2.10) it
/// trips an internal assertion while the library is loaded, which ends the process. Boundary chosen
/// by the date of the change (June 2026).
pub(super) const fn ends_early_is_value_error(version: TorchVersion) -> bool {
    version.at_least_2(13)
}
