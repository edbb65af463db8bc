//! PyTorch's version, as far as the allocator's behaviour depends on it.

use std::fmt;
use std::str::FromStr;

/// A PyTorch release: major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TorchVersion {
    /// 2 in `2.11`.
    pub major: u16,
    /// 11 in `2.11`.
    pub minor: u16,
}

impl TorchVersion {
    /// The release whose behaviour was measured most closely; the default everywhere.
    pub const REFERENCE: TorchVersion = TorchVersion::new(2, 11);

    /// The release `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Whether this is release `2.minor` or later.
    pub const fn at_least_2(self, minor: u16) -> bool {
        self.major > 2 || (self.major == 2 && self.minor >= minor)
    }
}

impl Default for TorchVersion {
    fn default() -> Self {
        Self::REFERENCE
    }
}

impl fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A version that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseVersionError {
    /// The text as given.
    pub text: String,
}

impl fmt::Display for ParseVersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a PyTorch version; write it like 2.11", self.text)
    }
}

impl std::error::Error for ParseVersionError {}

impl FromStr for TorchVersion {
    type Err = ParseVersionError;

    /// Reads `2.11`, `2.11.0` or `2.11.0+cu130`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseVersionError { text: text.to_owned() };
        let mut parts = text.trim().split(['.', '+', 'a', 'r']);
        let mut number = || parts.next().and_then(|p| p.parse().ok()).ok_or_else(fail);
        Ok(Self { major: number()?, minor: number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_torch_prints_them() {
        assert_eq!("2.11.0+cu130".parse(), Ok(TorchVersion::new(2, 11)));
        assert_eq!("2.6".parse(), Ok(TorchVersion::new(2, 6)));
        assert!("two".parse::<TorchVersion>().is_err());
        assert!("2".parse::<TorchVersion>().is_err());
        assert!(TorchVersion::new(2, 11).at_least_2(9));
        assert!(!TorchVersion::new(2, 8).at_least_2(9));
    }
}
