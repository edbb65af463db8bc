//! Who holds the allocated memory: blocks by stack, place, stream, pool or size.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use vramwise_trace::{Snapshot, StackId};
use vramwise_types::Human;

use super::fold::{self, Place};
use super::state::Piece;

/// How blocks are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The user's line.
    Stack,
    /// The user's file and function.
    Module,
    /// The stream that the blocks belong to.
    Stream,
    /// Pool, and its small or large half.
    Pool,
    /// Power of two of the block's size.
    Size,
    /// What it is for, as far as that can be inferred.
    Category,
    /// The annotations that were open when it was allocated.
    Phase,
}

/// Blocks of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub label: String,
    /// Bytes of its blocks.
    pub bytes: u64,
    /// Requested bytes of its blocks.
    pub requested: u64,
    /// Its blocks.
    pub blocks: u64,
}

/// Names the groups of blocks; remembers the names of stacks.
pub(crate) struct Namer<'a> {
    snapshot: &'a Snapshot,
    by: By,
    frames: usize,
    names: FxHashMap<StackId, String>,
}

impl<'a> Namer<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, by: By, frames: usize) -> Self {
        Self { snapshot, by, frames, names: FxHashMap::default() }
    }

    /// The name of a stack.
    pub(crate) fn stack(&mut self, stack: StackId) -> String {
        let (snapshot, by, frames) = (self.snapshot, self.by, self.frames);
        let name = || stack_name(&fold::place(snapshot, stack, frames), by);
        self.names.entry(stack).or_insert_with(name).clone()
    }

    pub(crate) fn name(&mut self, piece: &Piece) -> String {
        match self.by {
            By::Stack | By::Module => self.stack(piece.stack),
            By::Stream if piece.stream == 0 => "default stream".to_owned(),
            By::Stream => format!("stream {:#x}", piece.stream),
            By::Pool => match piece.pool {
                Some((id, small)) => {
                    format!("{}, {}", pool_name(id), if small { "small" } else { "large" })
                }
                None => "(pool not known)".to_owned(),
            },
            By::Size => size_class(piece.size),
            // Named by those who know the device: see `inspect::Grouper`.
            By::Category | By::Phase => String::new(),
        }
    }
}

/// A pool's name.
pub(crate) fn pool_name(id: (u64, u64)) -> String {
    if id == (0, 0) {
        "default pool".to_owned()
    } else {
        format!("private pool ({}, {})", id.0, id.1)
    }
}

fn size_class(size: u64) -> String {
    let low = 1u64 << size.max(1).ilog2();
    match low.checked_mul(2) {
        Some(high) => format!("{} to {}", Human(low), Human(high)),
        None => format!("{} or more", Human(low)),
    }
}

fn stack_name(place: &Place, by: By) -> String {
    let line = |(file, line, function): &(String, u32, String)| match by {
        By::Module => format!("{file} {function}"),
        _ => format!("{file}:{line} {function}"),
    };
    match place {
        Place::User(frames) => frames.iter().map(line).collect::<Vec<_>>().join(" < "),
        Place::Library(file, at, function) => {
            format!("(library) {}", line(&(file.clone(), *at, function.clone())))
        }
        Place::Backward(node) => format!("(backward pass) {node}"),
        Place::Native => "(C++ only, no Python line)".to_owned(),
        Place::Unknown => "(no stack recorded)".to_owned(),
    }
}

/// What [`By::Stack`] calls a stack that is told apart by `frames` of the user's own frames.
pub fn place_name(snapshot: &Snapshot, stack: StackId, frames: usize) -> String {
    stack_name(&fold::place(snapshot, stack, frames), By::Stack)
}

/// The groups of these blocks, the most bytes first, then by name.
pub(crate) fn groups<'b>(
    blocks: impl Iterator<Item = &'b Piece>,
    namer: &mut Namer<'_>,
) -> Vec<Group> {
    groups_by(blocks, |block| namer.name(block))
}

/// The groups of these blocks under names of any kind.
pub(crate) fn groups_by<'b>(
    blocks: impl Iterator<Item = &'b Piece>,
    mut name: impl FnMut(&Piece) -> String,
) -> Vec<Group> {
    let mut sums: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    for block in blocks {
        let sum = sums.entry(name(block)).or_default();
        sum.0 = sum.0.saturating_add(block.size);
        sum.1 = sum.1.saturating_add(block.requested);
        sum.2 += 1;
    }
    let group = |(label, (bytes, requested, blocks))| Group { label, bytes, requested, blocks };
    let mut groups: Vec<Group> = sums.into_iter().map(group).collect();
    groups.sort_by_key(|g| std::cmp::Reverse(g.bytes));
    groups
}
