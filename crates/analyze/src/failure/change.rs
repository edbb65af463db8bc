//! Programs changed in one respect, to see what a change of the code would do.

use rustc_hash::FxHashSet;
use vramwise_replay::{Op, Program, ReleaseScope};

/// Frees these allocations right before operation `before`, and not where they were freed.
pub(super) fn released(program: &Program, slots: &FxHashSet<u32>, before: usize) -> Program {
    let mut ops = Vec::with_capacity(program.ops.len() + slots.len());
    let mut events = Vec::with_capacity(ops.capacity());
    let mut early: Vec<u32> = slots.iter().copied().collect();
    early.sort_unstable();
    for (i, op) in program.ops.iter().enumerate() {
        let event = program.events[i];
        if i == before {
            for slot in &early {
                ops.push(Op::Free { slot: *slot });
                events.push(event);
            }
        }
        let freed = match op {
            Op::Free { slot } | Op::FreePending { slot } | Op::Complete { slot } => {
                i >= before && slots.contains(slot)
            }
            _ => false,
        };
        if !freed {
            ops.push(*op);
            events.push(event);
        }
    }
    Program { ops, events, ..program.clone() }
}

/// Takes these allocations from a pool of their own (`torch.cuda.MemPool`).
pub(super) fn apart(program: &Program, requests: &FxHashSet<usize>) -> Program {
    let mut changed = program.clone();
    let own = changed.pools;
    changed.pools += 1;
    for (i, op) in changed.ops.iter_mut().enumerate() {
        if let Op::Malloc { pool, .. } = op
            && requests.contains(&i)
        {
            *pool = own;
        }
    }
    changed
}

/// Takes every allocation from the default pool.
pub(super) fn merged(program: &Program) -> Program {
    let mut changed = program.clone();
    for op in &mut changed.ops {
        if let Op::Malloc { pool, .. } | Op::Failed { pool, .. } = op {
            *pool = 0;
        }
    }
    for scope in &mut changed.scopes {
        *scope = ReleaseScope { default: true, private: Vec::new() };
    }
    changed.pools = 1;
    changed.no_split.clear();
    changed
}

/// No block waits for another stream: what is freed is free at once.
pub(super) fn completed(program: &Program) -> Program {
    let mut ops = Vec::with_capacity(program.ops.len());
    let mut events = Vec::with_capacity(program.ops.len());
    for (op, event) in program.ops.iter().zip(&program.events) {
        match op {
            Op::FreePending { slot } => ops.push(Op::Free { slot: *slot }),
            Op::Complete { .. } => continue,
            _ => ops.push(*op),
        }
        events.push(*event);
    }
    Program { ops, events, ..program.clone() }
}

/// The allocations that are held after `until` operations: (slot, operation), by operation. Those that
/// wait for other streams are not among them.
pub(super) fn held(program: &Program, until: usize) -> Vec<(u32, usize)> {
    let mut by_slot: Vec<Option<usize>> = vec![None; program.slots as usize];
    for (i, op) in program.ops.iter().take(until).enumerate() {
        match op {
            Op::Malloc { slot, .. } => by_slot[*slot as usize] = Some(i),
            Op::Free { slot } | Op::FreePending { slot } | Op::Complete { slot } => {
                by_slot[*slot as usize] = None;
            }
            _ => {}
        }
    }
    let mut held: Vec<(u32, usize)> =
        (0u32..).zip(by_slot).filter_map(|(slot, op)| Some((slot, op?))).collect();
    held.sort_unstable_by_key(|(_, op)| *op);
    held
}
