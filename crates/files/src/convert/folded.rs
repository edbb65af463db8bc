//! Folded stacks, the input of flame graph programs: `main;step;forward 1048576`, outermost first.

use std::collections::BTreeMap;

use vramwise_replay::{Cuts, VerifyOptions};
use vramwise_trace::{BlockState, Snapshot, StackId};

/// Folded stacks and what they are of.
#[derive(Clone, Debug)]
pub struct Folded {
    /// One line a stack, sorted.
    pub text: String,
    /// Sum of the lines' bytes.
    pub bytes: u64,
    /// Whether the blocks' sizes are known to the byte.
    pub exact: bool,
}

/// The stacks of the blocks that the program held behind event `event` of a device, with their bytes;
/// at the end, where there is none.
///
/// # Errors
/// Why the state is not known, in half a sentence.
///
/// # Panics
/// If there is no such device.
pub fn folded(
    snapshot: &Snapshot,
    number: u32,
    event: Option<usize>,
    options: &VerifyOptions,
) -> Result<Folded, String> {
    let device = &snapshot.devices[number as usize];
    let cuts = Cuts::new(device, options);
    let end = device.events.len();
    let at = event.map_or(end, |event| cuts.begin_after(event.saturating_add(1).min(end)));
    let cut = cuts.state_before(at)?;
    let mut sums: BTreeMap<StackId, u64> = BTreeMap::new();
    for block in cut.state.blocks.iter().filter(|b| b.state == BlockState::ActiveAllocated) {
        let sum = sums.entry(block.stack).or_default();
        *sum = sum.saturating_add(block.size);
    }
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, bytes) in sums {
        let sum = lines.entry(line(snapshot, stack)).or_default();
        *sum = sum.saturating_add(bytes);
    }
    let bytes = lines.values().copied().fold(0, u64::saturating_add);
    let text = lines.iter().map(|(stack, bytes)| format!("{stack} {bytes}\n")).collect();
    Ok(Folded { text, bytes, exact: cut.exact })
}

fn line(snapshot: &Snapshot, stack: StackId) -> String {
    let frames = snapshot.stacks.stack(stack);
    if frames.is_empty() {
        return "(no stack recorded)".to_owned();
    }
    let frame = |id: &vramwise_trace::FrameId| {
        let frame = snapshot.stacks.frame(*id);
        let path = snapshot.strings.get(frame.filename);
        let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
        let name = snapshot.strings.get(frame.name);
        let text = match (file, frame.line) {
            ("" | "??", _) => name.to_owned(),
            (file, 0) => format!("{name} ({file})"),
            (file, line) => format!("{name} ({file}:{line})"),
        };
        // The signs that separate frames, and a line's end, cannot be in a frame.
        text.chars().map(|c| if c.is_control() || c == ';' { '_' } else { c }).collect::<String>()
    };
    frames.iter().rev().map(frame).collect::<Vec<_>>().join(";")
}
