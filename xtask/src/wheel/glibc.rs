//! Whether the files in a wheel run on the systems that its name promises: what maturin looks at is the extension module
//! alone.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Fails if one of `files` needs a newer C library than a wheel of this name promises (`…-manylinux_2_34_x86_64.whl`).
pub(super) fn check(wheel: &Path, files: &[PathBuf]) -> Result<()> {
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    let Some(promised) = promised(&name) else { return Ok(()) };
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let needed = needed(&bytes);
        ensure!(
            needed <= promised,
            "{} needs glibc 2.{needed}, the wheel is for 2.{promised}: build it on an older system",
            file.display()
        );
    }
    Ok(())
}

/// The minor version in the name of a wheel, the oldest where it has several.
fn promised(name: &str) -> Option<u32> {
    name.match_indices("manylinux_2_")
        .filter_map(|(at, tag)| number(&name.as_bytes()[at + tag.len()..]))
        .min()
}

/// The newest `GLIBC_2.x` that an object asks for.
fn needed(bytes: &[u8]) -> u32 {
    const SYMBOLS: &[u8] = b"GLIBC_2.";
    let found = bytes.windows(SYMBOLS.len()).enumerate().filter(|(_, window)| *window == SYMBOLS);
    found.filter_map(|(at, _)| number(&bytes[at + SYMBOLS.len()..])).max().unwrap_or(0)
}

fn number(bytes: &[u8]) -> Option<u32> {
    let digits: Vec<u8> = bytes.iter().copied().take_while(u8::is_ascii_digit).collect();
    String::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_promises_the_oldest_of_its_names() {
        let name = "vramwise-0.1.0-cp310-abi3-manylinux_2_17_x86_64.manylinux_2_34_x86_64.whl";
        assert_eq!(promised(name), Some(17));
        assert_eq!(promised("vramwise-0.1.0-cp310-abi3-linux_x86_64.whl"), None);
    }

    #[test]
    fn an_object_needs_the_newest_that_it_names() {
        assert_eq!(needed(b"\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0"), 34);
        assert_eq!(needed(b"nothing"), 0);
    }
}
