//! The report of `vramwise inspect --json`; its keys are a promise to scripts.

use serde::Serialize;
use vramwise_analyze::peak::{
    Amount, At, CategoryShare, DeviceInspection, Evidence, FreeMemory, Inspection, Memory, Peak,
    PinnedAt, When,
};
use vramwise_types::TorchVersion;

use crate::stacks::SampledStacks;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    pub(super) file: String,
    /// The version whose rules were applied.
    pub(super) torch_version: String,
    pub(super) devices: Vec<Device>,
    pub(super) warnings: Vec<Warned>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Warned {
    pub(super) code: &'static str,
    pub(super) message: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Device {
    pub(super) device: u32,
    pub(super) events: usize,
    /// `replay`, `history` or `state`.
    pub(super) evidence: &'static str,
    /// Why there is no replay.
    pub(super) evidence_reason: Option<String>,
    pub(super) peaks: Option<PeaksReport>,
    pub(super) oom: Vec<Oom>,
    pub(super) has_stacks: bool,
    /// Where only some steps were recorded with stacks, which; `null` where all are alike.
    pub(super) sampled_stacks: Option<SampledStacks>,
    pub(super) memory: MemoryReport,
    pub(super) pinned: Vec<PinnedReport>,
    pub(super) timeline: Vec<ColumnReport>,
    pub(super) assumptions: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PeaksReport {
    pub(super) allocated: PeakReport,
    pub(super) reserved: PeakReport,
    pub(super) active: PeakReport,
    pub(super) requested: PeakReport,
    /// Why they cannot all be right, where the file contradicts itself.
    pub(super) impossible: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PeakReport {
    pub(super) bytes: u64,
    /// Whether it is exact; else a lower bound.
    pub(super) exact: bool,
    #[serde(flatten)]
    pub(super) when: WhenReport,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct WhenReport {
    pub(super) event: Option<usize>,
    pub(super) since_start_us: Option<u64>,
    /// Annotations that were open, the outermost first.
    pub(super) within: Vec<String>,
    /// The annotation that had ended last, with how often it had.
    pub(super) after: Option<After>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct After {
    pub(super) name: String,
    pub(super) times: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Oom {
    pub(super) event: usize,
    pub(super) size_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MemoryReport {
    /// `peak`, `end` or `event`.
    pub(super) at: &'static str,
    #[serde(flatten)]
    pub(super) when: WhenReport,
    pub(super) exact: bool,
    pub(super) reserved_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) allocated_blocks: u64,
    pub(super) requested_bytes: u64,
    pub(super) rounding_bytes: u64,
    pub(super) pending_free_bytes: u64,
    pub(super) pending_free_blocks: u64,
    pub(super) without_stack_bytes: u64,
    pub(super) without_stack_blocks: u64,
    pub(super) before_recording_bytes: u64,
    pub(super) before_recording_blocks: u64,
    pub(super) by: &'static str,
    /// Groups there are; `groups` has the first `--top` of them.
    pub(super) groups_total: usize,
    pub(super) groups: Vec<GroupReport>,
    /// What the allocated blocks are for, most bytes first; all of them.
    pub(super) categories: Vec<CategoryReport>,
    pub(super) free: Option<FreeReport>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct GroupReport {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) requested_bytes: u64,
    pub(super) blocks: u64,
    pub(super) percent: f64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct CategoryReport {
    pub(super) category: String,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) percent: f64,
    /// By the rule that decided.
    pub(super) rules: Vec<RuleReport>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RuleReport {
    pub(super) rule: String,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FreeReport {
    /// Free bytes in segments that something uses.
    pub(super) split_bytes: u64,
    /// Bytes of segments that nothing uses.
    pub(super) cached_bytes: u64,
    pub(super) largest_block_bytes: u64,
    pub(super) private_pool_bytes: u64,
    pub(super) pools: Vec<PoolReport>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PoolReport {
    pub(super) pool_id: (u64, u64),
    pub(super) small: bool,
    pub(super) stream: u64,
    pub(super) segments: u64,
    pub(super) reserved_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) pending_free_bytes: u64,
    pub(super) split_bytes: u64,
    pub(super) cached_bytes: u64,
    pub(super) largest_block_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PinnedReport {
    /// `peak`, `event`, `out of memory` or `end`.
    pub(super) at: &'static str,
    #[serde(flatten)]
    pub(super) when: WhenReport,
    pub(super) free_bytes: u64,
    pub(super) pins_total: usize,
    pub(super) pins: Vec<PinReport>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PinReport {
    pub(super) name: String,
    pub(super) segments: u64,
    pub(super) segment_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) held_bytes: u64,
    pub(super) blocks: u64,
    pub(super) held_by_others_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ColumnReport {
    pub(super) first_event: usize,
    pub(super) allocated_bytes: u64,
    pub(super) reserved_bytes: u64,
}

impl Report {
    pub(super) fn new(
        file: &str,
        version: TorchVersion,
        by: &'static str,
        inspection: &Inspection,
        top: usize,
    ) -> Self {
        let warned =
            inspection.warnings.iter().map(|w| Warned { code: w.code, message: w.message.clone() });
        Self {
            schema: 1,
            file: file.to_owned(),
            torch_version: version.to_string(),
            devices: inspection.devices.iter().map(|d| device(d, by, top)).collect(),
            warnings: warned.collect(),
        }
    }
}

fn device(d: &DeviceInspection, by: &'static str, top: usize) -> Device {
    let (evidence, evidence_reason) = match &d.evidence {
        Evidence::Replay => ("replay", None),
        Evidence::History(why) => ("history", Some(why.clone())),
        Evidence::State => ("state", None),
    };
    let column = |c: &vramwise_analyze::peak::Column| ColumnReport {
        first_event: c.first_event,
        allocated_bytes: c.allocated,
        reserved_bytes: c.reserved,
    };
    Device {
        device: d.device,
        events: d.events,
        evidence,
        evidence_reason,
        peaks: d.peaks.as_ref().map(|p| PeaksReport {
            allocated: peak(&p.allocated),
            reserved: peak(&p.reserved),
            active: peak(&p.active),
            requested: peak(&p.requested),
            impossible: p.impossible.clone(),
        }),
        oom: d.ooms.iter().map(|(event, size)| Oom { event: *event, size_bytes: *size }).collect(),
        has_stacks: d.has_stacks,
        sampled_stacks: d.sampled.as_ref().map(SampledStacks::new),
        memory: memory(&d.memory, by, top),
        pinned: d.pinned.iter().map(|p| pinned(p, top)).collect(),
        timeline: d.timeline.iter().map(column).collect(),
        assumptions: d.assumptions.clone(),
    }
}

fn peak(peak: &Peak) -> PeakReport {
    PeakReport { bytes: peak.bytes, exact: peak.exact, when: when(&peak.when) }
}

fn when(when: &When) -> WhenReport {
    let after = when.phase.after.as_ref();
    WhenReport {
        event: when.event,
        since_start_us: when.since_start_us,
        within: when.phase.within.clone(),
        after: after.map(|(name, times)| After { name: name.clone(), times: *times }),
    }
}

fn memory(memory: &Memory, by: &'static str, top: usize) -> MemoryReport {
    let total = memory.allocated.bytes;
    let groups = memory.groups.iter().take(top).map(|g| GroupReport {
        name: g.label.clone(),
        bytes: g.bytes,
        requested_bytes: g.requested,
        blocks: g.blocks,
        percent: percent(g.bytes, total),
    });
    MemoryReport {
        at: match memory.at {
            At::Peak => "peak",
            At::End => "end",
            At::Event(_) => "event",
        },
        when: when(&memory.when),
        exact: memory.exact,
        reserved_bytes: memory.reserved,
        allocated_bytes: total,
        allocated_blocks: memory.allocated.blocks,
        requested_bytes: memory.requested,
        rounding_bytes: total.saturating_sub(memory.requested),
        pending_free_bytes: memory.pending.bytes,
        pending_free_blocks: memory.pending.blocks,
        without_stack_bytes: memory.without_stack.bytes,
        without_stack_blocks: memory.without_stack.blocks,
        before_recording_bytes: memory.before_recording.bytes,
        before_recording_blocks: memory.before_recording.blocks,
        by,
        groups_total: memory.groups.len(),
        groups: groups.collect(),
        categories: memory.categories.iter().map(|c| category(c, total)).collect(),
        free: memory.free.as_ref().map(free),
    }
}

fn category(share: &CategoryShare, total: u64) -> CategoryReport {
    let rule = |(rule, amount): &(String, Amount)| RuleReport {
        rule: rule.clone(),
        bytes: amount.bytes,
        blocks: amount.blocks,
    };
    CategoryReport {
        category: share.category.clone(),
        bytes: share.total.bytes,
        blocks: share.total.blocks,
        percent: percent(share.total.bytes, total),
        rules: share.rules.iter().map(rule).collect(),
    }
}

/// A share in percent with one decimal.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    (part as f64 / whole as f64 * 1000.0).round() / 10.0
}

fn free(free: &FreeMemory) -> FreeReport {
    let private = free.pools.iter().filter(|p| p.pool != (0, 0)).map(|p| p.reserved);
    let pools = free.pools.iter().map(|p| PoolReport {
        pool_id: p.pool,
        small: p.small,
        stream: p.stream,
        segments: p.segments,
        reserved_bytes: p.reserved,
        allocated_bytes: p.allocated,
        pending_free_bytes: p.pending,
        split_bytes: p.split,
        cached_bytes: p.cached,
        largest_block_bytes: p.largest,
    });
    FreeReport {
        split_bytes: free.split,
        cached_bytes: free.cached,
        largest_block_bytes: free.largest,
        private_pool_bytes: private.fold(0, u64::saturating_add),
        pools: pools.collect(),
    }
}

fn pinned(pinned: &PinnedAt, top: usize) -> PinnedReport {
    let pins = pinned.pins.iter().take(top).map(|p| PinReport {
        name: p.label.clone(),
        segments: p.segments,
        segment_bytes: p.segment_bytes,
        free_bytes: p.free_bytes,
        held_bytes: p.held_bytes,
        blocks: p.blocks,
        held_by_others_bytes: p.others_bytes,
    });
    PinnedReport {
        at: pinned.moment,
        when: when(&pinned.when),
        free_bytes: pinned.pins.iter().map(|p| p.free_bytes).fold(0, u64::saturating_add),
        pins_total: pinned.pins.len(),
        pins: pins.collect(),
    }
}
