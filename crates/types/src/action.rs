//! The actions of PyTorch's memory history.

use std::fmt;

/// What one entry of a memory history says happened (`device_traces[d][i]["action"]`).
///
/// The names are PyTorch's own; [`Action::Other`] stands for an action that this program does not know
/// (another producer, or a later version), which readers keep and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Action {
    /// A block was handed out; the size is the requested one.
    Alloc,
    /// The program gave a block back.
    FreeRequested,
    /// A block became reusable (at once, or when other streams were done with it).
    FreeCompleted,
    /// A segment was taken from the driver (`cudaMalloc`).
    SegmentAlloc,
    /// A segment was returned to the driver (`cudaFree`).
    SegmentFree,
    /// Memory was mapped into an expandable segment.
    SegmentMap,
    /// Memory was unmapped from an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// An `OutOfMemoryError` was about to be raised; the size is the rounded one.
    Oom,
    /// An annotation inside the history (PyTorch 2.4 `user_defined`, 2026 `annotate`).
    UserDefined,
    /// Old histories (and hand-made ones) say `free` where newer ones say `free_requested` and
    /// `free_completed`.
    Free,
    /// Unknown action.
    Other,
}

impl Action {
    /// All known actions with their names in files.
    pub const NAMES: [(Action, &'static str); 12] = [
        (Action::Alloc, "alloc"),
        (Action::FreeRequested, "free_requested"),
        (Action::FreeCompleted, "free_completed"),
        (Action::SegmentAlloc, "segment_alloc"),
        (Action::SegmentFree, "segment_free"),
        (Action::SegmentMap, "segment_map"),
        (Action::SegmentUnmap, "segment_unmap"),
        (Action::Snapshot, "snapshot"),
        (Action::Oom, "oom"),
        (Action::UserDefined, "user_defined"),
        (Action::Free, "free"),
        (Action::Other, "other"),
    ];

    /// The name that PyTorch writes.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The action of that name, [`Action::Other`] for one that is not known.
    pub fn from_name(name: &str) -> Self {
        match name {
            "annotate" => Action::UserDefined,
            _ => Self::NAMES.iter().find(|(_, n)| *n == name).map_or(Action::Other, |(a, _)| *a),
        }
    }

    /// Whether memory went back to the driver: `segment_free` or `segment_unmap`.
    pub fn is_release(self) -> bool {
        matches!(self, Action::SegmentFree | Action::SegmentUnmap)
    }

    /// Whether memory came from the driver: `segment_alloc` or `segment_map`.
    pub fn is_growth(self) -> bool {
        matches!(self, Action::SegmentAlloc | Action::SegmentMap)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_action() {
        for (i, (action, name)) in Action::NAMES.iter().enumerate() {
            assert_eq!(*action as usize, i);
            assert_eq!(Action::from_name(name), *action);
        }
        assert_eq!(Action::from_name("segment_teleport"), Action::Other);
    }
}
