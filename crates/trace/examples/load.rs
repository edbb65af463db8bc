//! Loads a snapshot, finds the peak of requested bytes, and says how long it took.

use std::time::Instant;

use vramwise_trace::{ReadOptions, read_path};
use vramwise_types::Action;

#[expect(clippy::print_stdout, reason = "an example reports to the terminal")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let snapshot = match read_path(&path, &ReadOptions::default()) {
            Ok(snapshot) => snapshot,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        let read = start.elapsed();
        let mut peak = 0;
        for device in &snapshot.devices {
            let mut live = 0i64;
            for (action, size) in device.events.action.iter().zip(&device.events.size) {
                match action {
                    Action::Alloc => live += *size as i64,
                    Action::FreeRequested => live -= *size as i64,
                    _ => {}
                }
                peak = peak.max(live);
            }
        }
        let events: usize = snapshot.devices.iter().map(|d| d.events.len()).sum();
        let segments: usize = snapshot.devices.iter().map(|d| d.segments.len()).sum();
        println!(
            "{path}: {events} events, {segments} segments, {} stacks, peak {peak}, {:?}, read {read:?}, all {:?}",
            snapshot.stacks.len(),
            snapshot.version_guess,
            start.elapsed()
        );
        println!("{:?}", snapshot.unknown_keys);
        println!("{:?}", snapshot.warnings);
    }
    Ok(())
}
