//! Whether a wheel holds what it must, and no more.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{python_env, shell};

/// Most bytes that a wheel may have. A figure to notice growth by, not a limit of anything.
const LARGEST: u64 = 64 << 20;

/// Files that every wheel has, whatever stands before them.
const REQUIRED: &[&str] = &[
    "vramwise/__init__.py",
    "vramwise/_native.abi3.so",
    "vramwise/_native.pyi",
    "vramwise/py.typed",
    ".data/scripts/vramwise",
    ".dist-info/licenses/LICENSE-MIT",
    ".dist-info/licenses/LICENSE-APACHE",
    ".dist-info/entry_points.txt",
];

/// Further ones where the emulated device exists.
const REQUIRED_ON_LINUX: &[&str] =
    &["vramwise/lib/libvramwise_emulator.so", "vramwise/lib/libvramwise_nvrtc.so"];

/// Endings of what has no business in a wheel.
const FOREIGN: &[&str] = &[".pyc", ".rs", ".orig", ".log", ".pickle"];

/// Prints one line for each file, then the entry points.
const LIST: &str = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for info in wheel.infolist():
        print('file', info.file_size, info.filename)
    for info in wheel.infolist():
        if info.filename.endswith('.dist-info/entry_points.txt'):
            for line in wheel.read(info).decode().splitlines():
                if '=' in line:
                    print('entry', 0, line)
";

/// Fails if something is missing, strange or too large.
pub(super) fn check(wheel: &Path) -> Result<()> {
    let python = python_env::system_python()?;
    let listed = shell::output(shell::command(python, &["-c", LIST]).arg(wheel))?;
    let mut files = BTreeMap::new();
    let mut entries = Vec::new();
    for line in listed.lines() {
        let mut words = line.splitn(3, ' ');
        let (kind, size) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let rest = words.next().unwrap_or("");
        match kind {
            "file" => _ = files.insert(rest, size.parse::<u64>().context("a size is a number")?),
            _ => entries.push(rest),
        }
    }
    let linux: &[&str] = if cfg!(target_os = "linux") { REQUIRED_ON_LINUX } else { &[] };
    for required in REQUIRED.iter().chain(linux) {
        ensure!(files.keys().any(|f| f.ends_with(required)), "the wheel lacks {required}");
    }
    for (name, size) in &files {
        ensure!(!FOREIGN.iter().any(|ending| name.ends_with(ending)), "{name} is in the wheel");
        ensure!(*size > 0 || name.ends_with("py.typed"), "{name} is empty");
    }
    for entry in &entries {
        resolves(entry, &files)?;
    }
    let size = std::fs::metadata(wheel)?.len();
    ensure!(size <= LARGEST, "the wheel has {size} bytes, more than {LARGEST}");
    shell::say(&format!("the wheel has {} files and {} KiB", files.len(), size >> 10));
    Ok(())
}

/// An entry point that names a module which is not there breaks every program that asks for such entry
/// points: pytest, and torch itself.
fn resolves(entry: &str, files: &BTreeMap<&str, u64>) -> Result<()> {
    let (_, object) = entry.split_once('=').context("an entry point has a value")?;
    let module = object.trim().split(':').next().unwrap_or("").replace('.', "/");
    let candidates = [format!("{module}.py"), format!("{module}/__init__.py")];
    if !candidates.iter().any(|name| files.contains_key(name.as_str())) {
        bail!("the entry point `{entry}` names a module that is not in the wheel");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_point_must_name_a_module_that_is_there() {
        let files = BTreeMap::from([
            ("vramwise/pytest_plugin.py", 1),
            ("vramwise/allocator/__init__.py", 1),
        ]);
        assert!(resolves("vramwise = vramwise.pytest_plugin", &files).is_ok());
        assert!(resolves("vramwise=vramwise.allocator:load", &files).is_ok());
        assert!(resolves("vramwise=vramwise.allocator.autoload:autoload", &files).is_err());
    }
}
