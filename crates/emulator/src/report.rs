//! What the emulator says: `device.<pid>.json` in the rehearsal's folder, written at exit and, while there is
//! activity, about once a second.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::config;
use crate::machine::{self, Machine};

extern "C" fn on_exit() {
    if let Some(mut machine) = machine::if_used() {
        write(&mut machine);
    }
}

/// Set in a child that was forked after CUDA had started: CUDA cannot be used there, and what the machine holds is the
/// parent's, which reports it.
static INHERITED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    if machine::started() {
        INHERITED.store(true, Ordering::Relaxed);
    }
}

/// The report is written when the process ends.
pub(crate) fn at_exit() {
    // SAFETY: registers functions without captures that live as long as the process's code; the second one only
    // touches atomics.
    unsafe {
        libc::atexit(on_exit);
        libc::pthread_atfork(None, None, Some(in_child));
    }
}

/// Writes the report: to a temporary file first, so that a reader never sees half of one.
pub(crate) fn write(machine: &mut Machine) {
    machine.values.flush();
    if INHERITED.load(Ordering::Relaxed) {
        return;
    }
    let Some(folder) = config::folder() else { return };
    let pid = std::process::id();
    let devices: Vec<_> = machine
        .devices
        .iter()
        .map(|d| {
            json!({
                "total_bytes": d.total,
                "context_bytes": d.context.bytes(),
                "used_bytes": d.context.bytes() + d.memory.used(),
                "peak_bytes": d.memory.peak(),
            })
        })
        .collect();
    let calls = machine.calls;
    let values = &machine.values;
    let report = json!({
        "schema": 1,
        "pid": pid,
        "command": std::env::args().collect::<Vec<_>>(),
        "devices": devices,
        "calls": {"malloc": calls.malloc, "free": calls.free, "map": calls.map, "unmap": calls.unmap},
        "unknown_calls": machine.unknown_calls,
        "convolutions": crate::cudnn::report(),
        "communicators": machine.communicators,
        "backed": machine.is_backed(),
        "values": {
            "answered": values.answered,
            "measured": values.measured,
            "unknown": values.unknown,
            "large": values.large,
            "mismatches": values.mismatches,
            "breaks": values.breaks,
            "unread": values.unread(),
            "details": values.details,
        },
        "notes": machine.notes.iter().chain(&values.complaints).collect::<Vec<_>>(),
        "objects": objects(),
        "clock_ns": machine.clock_ns,
    });
    let path = folder.join(format!("device.{pid}.json"));
    let temporary = folder.join(format!("device.{pid}.json.tmp"));
    let written = std::fs::write(&temporary, report.to_string());
    if written.is_ok() {
        let _ = std::fs::rename(&temporary, &path);
    }
}

/// Where the system, PyTorch and NVIDIA's packages have their objects.
const KNOWN_PLACES: [&str; 4] = ["/usr/lib/", "/lib/", "/torch/lib/", "/nvidia/"];
/// How NVIDIA's own libraries begin, which other packages bring copies of, and how ours do.
const KNOWN_NAMES: [&str; 5] = ["libcu", "libnv", "libnpp", "libnccl", "libvramwise_"];

/// Shared objects of the program's own: those that are known are emulated, or stand beside what is.
fn objects() -> BTreeSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter(|line| line.contains(" r-xp ")).filter_map(path_of);
    paths.filter(|path| is_own_object(path)).map(str::to_owned).collect()
}

/// The path at the end of a line of `maps`.
fn path_of(line: &str) -> Option<&str> {
    line.get(line.find('/')?..)
}

fn is_own_object(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or("");
    let known = KNOWN_PLACES[..2].iter().any(|place| path.starts_with(place))
        || KNOWN_PLACES[2..].iter().any(|place| path.contains(place))
        || KNOWN_NAMES.iter().any(|start| name.starts_with(start));
    name.contains(".so") && !name.ends_with(" (deleted)") && !known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_of_the_program_s_own_are_told() {
        let line = "7f00-7f01 r-xp 00000000 08:01 1   /venv/site-packages/mine/_C.so";
        assert_eq!(path_of(line), Some("/venv/site-packages/mine/_C.so"));
        assert_eq!(path_of("7f00-7f01 r-xp 00000000 00:00 0   [vdso]"), None);
        assert!(is_own_object("/venv/site-packages/mine/_C.cpython-311-x86_64-linux-gnu.so"));
        for known in [
            "/usr/lib/x86_64-linux-gnu/libm.so.6",
            "/venv/site-packages/torch/lib/libtorch_cuda.so",
            "/venv/site-packages/nvidia/cu13/lib/libcudart.so.13",
            "/venv/site-packages/torchvision.libs/libnvjpeg.36e11081.so.13",
            "/build/libvramwise_emulator.so",
            "/venv/bin/python3.11",
            "/tmp/gone.so (deleted)",
        ] {
            assert!(!is_own_object(known), "{known}");
        }
    }
}
