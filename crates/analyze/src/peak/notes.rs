//! What is said about figures that do not come from a replay.

use vramwise_replay::Recording;
use vramwise_types::Human;

use super::Peaks;

/// Why there is no replay.
pub(super) fn why_no_replay(recording: Option<&Recording>) -> String {
    let Some(recording) = recording else {
        return "the recording began in mid-run, or its ring buffer wrapped".to_owned();
    };
    if let Some(why) = &recording.impossible {
        return format!("no run of PyTorch's allocator can have written it: {why}");
    }
    if recording.requests_only {
        return "it was recorded under vramwise's allocator, whose blocks no replay of PyTorch's has".to_owned();
    }
    if let Some(divergence) = &recording.first_divergence {
        return format!("the replay parts from the recording at event {}", divergence.event);
    }
    match &recording.final_difference {
        Some(difference) => format!("the replay ends in another state: {difference}"),
        None => "the limit under which requests failed is not known well enough to replay them (--capacity)"
            .to_owned(),
    }
}

/// Bytes from here on are more than any card has: the largest of 2026 have less than a third.
const NO_CARD: u64 = 1 << 40;

/// Why peaks cannot all be right, where they cannot.
pub(super) fn contradiction(peaks: &Peaks) -> Option<String> {
    let reserved = peaks.reserved.bytes;
    // No block is smaller than what was requested of it.
    let active = peaks.active.bytes.max(peaks.requested.bytes);
    if active > reserved {
        return Some(format!(
            "{} were in use at once, and never more than {} reserved, which is impossible: segments or \
             frees are missing in the history, or another program than PyTorch wrote it",
            Human(active),
            Human(reserved)
        ));
    }
    (reserved >= NO_CARD).then(|| {
        format!(
            "{} were reserved, which is more than any card has: the sizes in the file are wrong",
            Human(reserved)
        )
    })
}

/// What a history alone does not tell.
pub(super) fn what_history_lacks(empty: bool, missing_frees: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if !empty {
        notes.push(
            "peaks before the recording began are not known; blocks from that time are counted where \
             the history frees them or the final state shows them, and have no stack unless they are \
             still there"
                .to_owned(),
        );
    }
    if missing_frees > 0 {
        notes.push(format!(
            "at least {missing_frees} frees are missing in the history, so that figures may also be too high"
        ));
    }
    notes.push(
        "allocated and active bytes are lower bounds: a history has requested sizes, which are rounded \
         up here as the settings say, but a block can be larger than that"
            .to_owned(),
    );
    notes.push("free memory inside the segments is known at the end only (--at end)".to_owned());
    notes
}
