//! The caching allocator's own error, every age and every fork (specification §10).

use vramwise_types::TorchVersion;

use super::{Piece, Seen, device, read_pieces, store};
use crate::oom::event::{Age, Hint, Kind, Numbers, ProcessUse};
use crate::oom::joiner::Reading;
use crate::oom::pattern::{Outcome, Value, find, match_at};

/// The words between the device's name and the size.
pub(in crate::oom) const ANCHOR: &str = "outofmemory";
const TRIED: &str = "triedtoallocate";

/// What one error says.
#[derive(Clone, Debug, Default)]
pub(in crate::oom) struct Caching {
    pub(in crate::oom) numbers: Numbers,
    pub(in crate::oom) beyond_one_exabyte: bool,
    pub(in crate::oom) hint: Option<Hint>,
    pub(in crate::oom) marks: Marks,
    /// Nothing after "Tried to allocate" could be read.
    pub(in crate::oom) bare: bool,
}

/// Peculiarities of the text that tell its age.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::oom) struct Marks {
    sentence: bool,
    capacty: bool,
    cached: bool,
    reserved: bool,
    split_hint: bool,
    split_hint_new: bool,
    expandable_hint: bool,
    unified_name: bool,
    new_url: bool,
}

/// Device names as the forks print them in front of "out of memory".
const DEVICES: [(&str, Kind); 14] = [
    ("cuda", Kind::Cuda),
    ("hip", Kind::Hip),
    ("xpu", Kind::Xpu),
    ("npu", Kind::Npu),
    ("mlu", Kind::OtherAccelerator),
    ("musa", Kind::OtherAccelerator),
    ("dcu", Kind::OtherAccelerator),
    ("gcu", Kind::OtherAccelerator),
    ("maca", Kind::OtherAccelerator),
    ("sdaa", Kind::OtherAccelerator),
    ("hpu", Kind::OtherAccelerator),
    ("privateuseone", Kind::OtherAccelerator),
    ("mtia", Kind::OtherAccelerator),
    ("gpu", Kind::Cuda),
];

/// Where the device's name begins that stands directly before position `at`, and whose it is.
pub(in crate::oom) fn device_before(text: &[u8], at: usize) -> Option<(usize, Kind)> {
    DEVICES
        .iter()
        .filter(|(name, _)| text[..at].ends_with(name.as_bytes()))
        .map(|(name, kind)| (at - name.len(), *kind))
        .next()
}

/// Whether the text behind "out of memory" (position `at`) begins with "Tried to allocate", or with
/// as much of it as there is text.
pub(in crate::oom) fn tried_follows(text: &[u8], at: usize) -> bool {
    let behind = &text[at..];
    let skip = behind
        .iter()
        .take_while(|b| matches!(b, b'.' | b',' | b':' | b'!' | b';' | b'#' | b'>' | b'"'))
        .count();
    let rest = &behind[skip..];
    skip <= 4
        && (rest.starts_with(TRIED.as_bytes())
            || (rest.len() >= 3 && TRIED.as_bytes().starts_with(rest)))
}

/// Reads the error from the device's name on.
pub(in crate::oom) fn read(text: &[u8]) -> Reading<Caching> {
    let mut out = Caching::default();
    let device = DEVICES.iter().find(|(name, _)| text.starts_with(name.as_bytes()));
    let at = device.map_or(0, |(name, _)| name.len());
    let behind = match match_at(ANCHOR, &text[at..]) {
        Outcome::Full(_, used) => at + used,
        Outcome::Partial => return Reading { value: out, reach: text.len(), open: true },
        Outcome::No => return Reading { value: out, reach: 0, open: false },
    };
    let tried_at =
        behind + text[behind..].iter().take_while(|b| !b.is_ascii_alphanumeric()).count();
    let head = [("triedtoallocatemorethan1ebmemory", true), ("triedtoallocate{s}", false)];
    let mut from = None;
    for (pattern, exabyte) in head {
        match match_at(pattern, &text[tried_at..]) {
            Outcome::Full(values, used) => {
                out.beyond_one_exabyte = exabyte;
                let n = &mut out.numbers;
                store(&mut n.tried, &mut n.impossible, "tried", values.first());
                from = Some(tried_at + used);
                break;
            }
            Outcome::Partial => {
                out.bare = true;
                return Reading { value: out, reach: text.len(), open: true };
            }
            Outcome::No => {}
        }
    }
    let Some(from) = from else {
        out.bare = true;
        return Reading { value: out, reach: behind, open: false };
    };
    let (numbers, mut reading) = read_body(text, from, out.numbers.clone());
    out.numbers = numbers;
    let marks = mark(&text[..reading.reach]);
    out.hint = match (marks.expandable_hint, marks.split_hint || marks.split_hint_new) {
        (true, _) => Some(Hint::ExpandableSegments),
        (false, true) => Some(Hint::MaxSplitSize),
        (false, false) => None,
    };
    // The address at the end of the newer hint, or the variable's name of the older one, is the
    // last word.
    let tail = &text[..reading.reach];
    if [
        "environment-variables",
        "pytorch-cuda-alloc-conf",
        "managementandpytorch_cuda_alloc_conf",
        "unoccupiedcachedmemory",
    ]
    .iter()
    .any(|last| find(tail, last, from).is_some())
    {
        reading.open = false;
    }
    out.marks = marks;
    Reading { value: out, reach: reading.reach, open: reading.open }
}

/// Reads the rest of an error whose beginning is missing.
pub(in crate::oom) fn read_rest(text: &[u8]) -> Reading<Caching> {
    let mut out = Caching::default();
    let (numbers, reading) = read_body(text, 0, Numbers::default());
    out.numbers = numbers;
    out.marks = mark(&text[..reading.reach.min(text.len())]);
    Reading { value: out, reach: reading.reach, open: reading.open }
}

/// Where the rest of an error may begin whose beginning is missing.
pub(in crate::oom) const REST_ANCHORS: [&str; 2] =
    ["includingnon-pytorchmemory,thisprocesshas", "oftheallocatedmemory"];

/// Reads pieces; a fork may print figures of its own between semicolons, which are stepped over.
fn read_body(text: &[u8], from: usize, numbers: Numbers) -> (Numbers, Reading<()>) {
    let mut seen = Seen::default();
    let (mut numbers, mut reading) = read_pieces(text, PIECES, &mut seen, numbers, from);
    for _ in 0..8 {
        let at = reading.reach;
        if reading.open || text.get(at) != Some(&b';') {
            break;
        }
        let Outcome::Full(_, used) = match_at("{s}", &text[at + 1..]) else { break };
        let rest = &text[at + 1 + used..];
        let label = rest.iter().take(40).take_while(|b| b.is_ascii_alphabetic()).count();
        if label == 0 || !matches!(rest.get(label), Some(b';' | b')')) {
            break;
        }
        (numbers, reading) = read_pieces(text, PIECES, &mut seen, numbers, at + 1 + used + label);
    }
    (numbers, reading)
}

fn mark(text: &[u8]) -> Marks {
    let has = |words| find(text, words, 0).is_some();
    Marks {
        sentence: has("hasatotalcapac"),
        capacty: has("totalcapactyof"),
        cached: has("cached)") || has("cached;"),
        reserved: has("reservedintotal"),
        split_hint: has("ifreservedmemoryis"),
        split_hint_new: has("trysettingmax_split_size_mb") && has("unallocated"),
        expandable_hint: has("alloc_conf=expandable_segments"),
        unified_name: has("settingpytorch_alloc_conf="),
        new_url: has("docs.pytorch.org"),
    }
}

/// The releases that print this text.
pub(in crate::oom) fn age(kind: Kind, caching: &Caching) -> Option<Age> {
    let m = caching.marks;
    let range = |from: (u16, u16), to: Option<(u16, u16)>| {
        let version = |(major, minor)| TorchVersion::new(major, minor);
        Some(Age { from: version(from), to: to.map(version) })
    };
    if caching.beyond_one_exabyte {
        return range((1, 5), None);
    }
    if matches!(kind, Kind::Npu | Kind::OtherAccelerator) {
        return None;
    }
    if m.sentence {
        return match m {
            _ if m.capacty || m.split_hint_new => range((2, 1), Some((2, 1))),
            _ if m.unified_name && m.expandable_hint => range((2, 9), Some((2, 10))),
            _ if m.new_url => range((2, 11), None),
            _ if m.expandable_hint => range((2, 2), Some((2, 8))),
            _ if kind == Kind::Xpu => range((2, 3), None),
            _ => range((2, 2), None),
        };
    }
    match m {
        _ if m.cached => range((0, 4), Some((1, 3))),
        _ if m.reserved && m.split_hint => range((1, 10), Some((2, 0))),
        _ if m.reserved && kind == Kind::Xpu => range((1, 10), Some((2, 1))),
        _ if m.reserved => range((1, 4), Some((2, 0))),
        _ => None,
    }
}

/// The range of releases, narrowed by the exception's name in front of the text.
pub(in crate::oom) fn narrowed(age: Age, before: &[u8]) -> Age {
    let bounds = if before.ends_with(b"torch.cuda.outofmemoryerror:") {
        (TorchVersion::new(1, 13), Some(TorchVersion::new(2, 4)))
    } else if before.ends_with(b"torch.outofmemoryerror:") {
        (TorchVersion::new(2, 5), None)
    } else {
        return age;
    };
    let from = age.from.max(bounds.0);
    let to = match (age.to, bounds.1) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    // A fork may print an old text under a new name; then the text tells nothing.
    if to.is_some_and(|to| to < from) { age } else { Age { from, to } }
}

macro_rules! put {
    ($field:ident) => {
        |n, v| store(&mut n.$field, &mut n.impossible, stringify!($field), v.first())
    };
}

fn none(_: &mut Numbers, _: &[Value]) {}

fn process(n: &mut Numbers, v: &[Value]) {
    let pid = match v.first() {
        Some(Value::Int(pid)) => Some(*pid),
        _ => None,
    };
    let mut used = None;
    store(&mut used, &mut n.impossible, "process", v.get(1));
    n.processes.push(ProcessUse { pid, used });
}

/// All pieces of all ages. Longer beginnings stand before shorter ones where one begins like
/// another.
const PIECES: &[Piece] = &[
    // From 2.1 on: sentences.
    Piece { pattern: "gpu{i}hasatotalcapacityof{s}ofwhich{s}isfree", apply: capacity },
    Piece { pattern: "gpu{i}hasatotalcapactyof{s}ofwhich{s}isfree", apply: capacity },
    Piece { pattern: "gpu{i}hasatotalcapacityof{s}", apply: capacity },
    Piece { pattern: "gpu{i}hasatotalcapactyof{s}", apply: capacity },
    Piece { pattern: "ofwhich{s}isfree", apply: put!(free) },
    Piece { pattern: "process{i}has{s}memoryinuse", apply: process },
    Piece {
        pattern: "includingnon-pytorchmemory,thisprocesshas{s}memoryinuse",
        apply: put!(process_in_use),
    },
    Piece { pattern: "thisprocesshas{s}memoryinuse", apply: put!(process_in_use) },
    Piece { pattern: "{s}allowed", apply: put!(allowed) },
    Piece { pattern: "oftheallocatedmemory{s}isallocatedbypytorch", apply: put!(allocated) },
    Piece {
        pattern: "with{s}allocatedinprivatepools(e.g.,cudagraphs)",
        apply: put!(private_pools),
    },
    Piece { pattern: "and{s}isreservedbypytorchbutunallocated", apply: put!(reserved_unallocated) },
    // Up to 2.0 and in the forks: one bracket.
    Piece { pattern: "gpu{i};", apply: gpu },
    Piece { pattern: "npu{i};", apply: gpu },
    Piece { pattern: "mlu{i};", apply: gpu },
    Piece { pattern: "musa{i};", apply: gpu },
    Piece { pattern: "xpu{i};", apply: gpu },
    Piece { pattern: "{s}totalcapacity", apply: put!(total) },
    Piece { pattern: "{s}alreadyallocated", apply: put!(allocated) },
    Piece { pattern: "{s}currentactive", apply: put!(active) },
    Piece { pattern: "{s}free", apply: put!(free) },
    Piece { pattern: "{s}cached", apply: put!(reserved_unallocated) },
    Piece { pattern: "{s}inactive", apply: none },
    Piece { pattern: "{s}reservedintotalbypytorch", apply: put!(reserved) },
    // The hints; their words are looked at in `mark`.
    Piece { pattern: "ifreservedmemoryis", apply: none },
    Piece {
        pattern: "allocatedmemorytrysettingmax_split_size_mbtoavoidfragmentation",
        apply: none,
    },
    Piece {
        pattern: "ifreservedbutunallocatedmemoryislargetrysettingmax_split_size_mbtoavoidfragmentation",
        apply: none,
    },
    Piece {
        pattern: "ifreservedbutunallocatedmemoryislargetrysettingpytorch_cuda_alloc_conf=expandable_segments:truetoavoidfragmentation",
        apply: none,
    },
    Piece {
        pattern: "ifreservedbutunallocatedmemoryislargetrysettingpytorch_hip_alloc_conf=expandable_segments:truetoavoidfragmentation",
        apply: none,
    },
    Piece {
        pattern: "ifreservedbutunallocatedmemoryislargetrysettingpytorch_npu_alloc_conf=expandable_segments:truetoavoidfragmentation",
        apply: none,
    },
    Piece {
        pattern: "ifreservedbutunallocatedmemoryislargetrysettingpytorch_alloc_conf=expandable_segments:truetoavoidfragmentation",
        apply: none,
    },
    Piece { pattern: "seedocumentationformemorymanagementandpytorch_cuda_alloc_conf", apply: none },
    Piece { pattern: "seedocumentationformemorymanagementandpytorch_npu_alloc_conf", apply: none },
    Piece { pattern: "seedocumentationformemorymanagement", apply: none },
    Piece {
        pattern: "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables",
        apply: none,
    },
    Piece {
        pattern: "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
        apply: none,
    },
    Piece { pattern: "pleaseuseempty_cachetoreleaseallunoccupiedcachedmemory", apply: none },
    Piece { pattern: "mallocat/", apply: none },
];

fn gpu(n: &mut Numbers, v: &[Value]) {
    n.gpu = device(v.first());
}

fn capacity(n: &mut Numbers, v: &[Value]) {
    n.gpu = device(v.first());
    store(&mut n.total, &mut n.impossible, "total", v.get(1));
    store(&mut n.free, &mut n.impossible, "free", v.get(2));
}
