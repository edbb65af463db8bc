//! What the emulator says: `device.<pid>.json` in the rehearsal's folder, written at exit and, while there is
//! activity, about once a second.

use serde_json::json;

use crate::config;
use crate::machine::{self, Machine};

extern "C" fn on_exit() {
    if let Some(mut machine) = machine::if_used() {
        write(&mut machine);
    }
}

/// The report is written when the process ends.
pub(crate) fn at_exit() {
    // SAFETY: registers a function without captures that lives as long as the process's code.
    unsafe { libc::atexit(on_exit) };
}

/// Writes the report: to a temporary file first, so that a reader never sees half of one.
pub(crate) fn write(machine: &mut Machine) {
    machine.values.flush();
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
        "values": {
            "answered": values.answered,
            "unknown": values.unknown,
            "large": values.large,
            "mismatches": values.mismatches,
            "details": values.details,
        },
        "notes": machine.notes.iter().chain(&values.complaints).collect::<Vec<_>>(),
        "clock_ns": machine.clock_ns,
    });
    let path = folder.join(format!("device.{pid}.json"));
    let temporary = folder.join(format!("device.{pid}.json.tmp"));
    let written = std::fs::write(&temporary, report.to_string());
    if written.is_ok() {
        let _ = std::fs::rename(&temporary, &path);
    }
}
