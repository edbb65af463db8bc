//! What the order of one stretch of releases says about pools (specification §16.3, step 4).
//!
//! A call returns all that is free in the pools it covers, each pool in one go: the default pool large
//! before small, a private one small before large, each half ascending. So in one stretch every pool
//! comes once.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::layout::{Release, pair};

/// Longest stretch that is compared pair by pair.
const LONG: usize = 400;

/// Relations of segments beyond being in different pools.
#[derive(Debug, Default)]
pub(super) struct Ties {
    /// Together only in the default pool: large went before small.
    pub(super) only_default: FxHashSet<(u32, u32)>,
    /// Together only in a private pool: small went before large.
    pub(super) only_private: FxHashSet<(u32, u32)>,
    /// Together only in a pool whose blocks are never split.
    pub(super) only_whole: FxHashSet<(u32, u32)>,
    /// How often two segments went one after the other without a contradiction.
    pub(super) together: BTreeMap<(u32, u32), u32>,
}

/// Notes what a stretch says.
pub(super) fn note(released: &[Release], different: &mut FxHashSet<(u32, u32)>, ties: &mut Ties) {
    if released.len() <= LONG {
        orders(released, different, ties);
        // What lies between two segments of one pool is of that pool too.
        for _ in 0..2 {
            between(released.iter().map(|r| r.segment), different);
            between(released.iter().rev().map(|r| r.segment), different);
        }
    }
    for two in released.windows(2) {
        let both = pair(two[0].segment, two[1].segment);
        if both.0 != both.1 && !different.contains(&both) {
            *ties.together.entry(both).or_default() += 1;
        }
    }
}

fn orders(released: &[Release], different: &mut FxHashSet<(u32, u32)>, ties: &mut Ties) {
    for (i, first) in released.iter().enumerate() {
        for then in &released[i + 1..] {
            let both = pair(first.segment, then.segment);
            if both.0 == both.1 {
                continue;
            }
            match (first.small, then.small) {
                (true, false) => {
                    ties.only_private.insert(both);
                }
                (false, true) => {
                    ties.only_default.insert(both);
                }
                _ if out_of_order(first, then) => {
                    different.insert(both);
                }
                _ => {}
            }
        }
    }
}

fn out_of_order(first: &Release, then: &Release) -> bool {
    match (first.key.0, then.key.0) {
        (false, false) => first.key > then.key,
        (true, false) => true,
        // Free expandable blocks go in the order of their sizes before the unmapping, not after.
        (_, true) => false,
    }
}

fn between(order: impl Iterator<Item = u32>, different: &mut FxHashSet<(u32, u32)>) {
    let order: Vec<u32> = order.collect();
    for (i, a) in order.iter().enumerate() {
        let mut parted = false;
        for b in order[i + 1..].iter().filter(|b| *b != a) {
            if parted {
                different.insert(pair(*a, *b));
            } else {
                parted = different.contains(&pair(*a, *b));
            }
        }
    }
}
