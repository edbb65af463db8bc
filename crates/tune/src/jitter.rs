//! Variations of a program: its own steps in another order, some left out, some twice.
//!
//! A recording is one draw of what the program does. Steps are found in the history itself: places that
//! no short-lived allocation crosses cut it into pieces, and a piece that neither allocates nor frees
//! anything which outlives it can stand anywhere a piece of that kind stood. Drawing these pieces anew,
//! with replacement, varies order and sizes without inventing any (a bootstrap of the steps).

use std::sync::Arc;

use vramwise_replay::{Op, Program};

use crate::case::Case;

/// Allocations that live at most this share of the program (1 / n) are short-lived.
const SHORT_LIVED: usize = 4;
/// Pieces shorter than this share of the program (1 / n) are joined with their neighbour.
const PIECES_MAX: usize = 64;

/// Finds what can be moved, or `None` where the history shows no repeating steps.
pub(crate) fn variations(case: &Case, count: u32, seed: u64) -> Option<Vec<Case>> {
    let pieces = pieces(&case.program);
    let movable: Vec<usize> = (0..pieces.len()).filter(|i| pieces[*i].movable).collect();
    if movable.len() < 2 {
        return None;
    }
    let mut random = Random(seed ^ 0x6a09_e667_f3bc_c909);
    let mut cases = Vec::with_capacity(count as usize);
    for n in 0..count {
        let mut order = Vec::with_capacity(pieces.len());
        for (i, piece) in pieces.iter().enumerate() {
            order.push(if piece.movable { movable[random.below(movable.len())] } else { i });
        }
        let picked = order.iter().map(|i| (pieces[*i].start, pieces[*i].end));
        cases.push(Case {
            name: format!("{} (variation {})", case.name, n + 1),
            program: assemble(&case.program, picked),
            calls: Arc::clone(&case.calls),
        });
    }
    Some(cases)
}

/// splitmix64: the same seed gives the same variations everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap_or(0)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Piece {
    start: usize,
    end: usize,
    /// Allocates and frees only what does not outlive it.
    movable: bool,
}

/// When each slot was allocated and given back for good.
fn lifetimes(program: &Program) -> Vec<(usize, usize)> {
    let end = program.ops.len();
    let mut lives = vec![(0, end); program.slots as usize];
    for (i, op) in program.ops.iter().enumerate() {
        match *op {
            Op::Malloc { slot, .. } => lives[slot as usize].0 = i,
            Op::Free { slot } | Op::Complete { slot } => lives[slot as usize].1 = i,
            Op::Failed { .. } | Op::FreePending { .. } | Op::Release { .. } => {}
        }
    }
    lives
}

fn pieces(program: &Program) -> Vec<Piece> {
    let (ops, lives) = (&program.ops, lifetimes(program));
    let short = ops.len() / SHORT_LIVED;
    // how many short-lived allocations are alive across the gap before operation i
    let mut crossing = vec![0i64; ops.len() + 1];
    for &(from, to) in lives.iter().filter(|(from, to)| to - from <= short) {
        crossing[from + 1] += 1;
        crossing[(to + 1).min(ops.len())] -= 1;
    }
    let least = (ops.len() / PIECES_MAX).max(1);
    let (mut open, mut start, mut found) = (0, program.preamble, Vec::new());
    for i in program.preamble..=ops.len() {
        open += if i > program.preamble { crossing[i] } else { crossing[..=i].iter().sum() };
        let last = i == ops.len();
        if (open == 0 && i - start >= least) || last && i > start {
            found.push((start, i));
            start = i;
        }
    }
    let inside = |(start, end): (usize, usize)| {
        let own = |slot: u32| {
            let (from, to) = lives[slot as usize];
            from >= start && to < end
        };
        ops[start..end].iter().all(|op| match *op {
            Op::Malloc { slot, .. }
            | Op::Free { slot }
            | Op::FreePending { slot }
            | Op::Complete { slot } => own(slot),
            Op::Failed { .. } | Op::Release { .. } => true,
        })
    };
    found
        .into_iter()
        .map(|(start, end)| Piece { start, end, movable: inside((start, end)) })
        .collect()
}

/// The program made of these ranges of operations; allocations of a repeated range get names of their own.
fn assemble(program: &Program, picked: impl Iterator<Item = (usize, usize)>) -> Program {
    let mut made = Program {
        ops: program.ops[..program.preamble].to_vec(),
        events: program.events[..program.preamble].to_vec(),
        ..program.clone()
    };
    let mut names: Vec<u32> = (0..program.slots).collect();
    for (start, end) in picked {
        for i in start..end {
            let mut op = program.ops[i];
            if let Op::Malloc { slot, .. } = &mut op {
                names[*slot as usize] = made.slots;
                *slot = made.slots;
                made.slots += 1;
            } else if let Op::Free { slot } | Op::FreePending { slot } | Op::Complete { slot } =
                &mut op
            {
                *slot = names[*slot as usize];
            }
            made.ops.push(op);
            made.events.push(program.events[i]);
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A long-lived allocation, then `steps` steps that allocate and free.
    fn program(steps: u32) -> Program {
        let mut program = Program { streams: vec![0], pools: 1, ..Program::default() };
        let mut push = |op| {
            program.events.push(program.ops.len() as u32);
            program.ops.push(op);
        };
        let malloc = |size, slot| Op::Malloc { size, stream: 0, pool: 0, slot };
        push(malloc(1 << 30, 0));
        for step in 0..steps {
            let slot = 1 + 2 * step;
            push(malloc(1 << 20, slot));
            push(malloc(u64::from(step + 1) << 20, slot + 1));
            push(Op::Free { slot });
            push(Op::Free { slot: slot + 1 });
        }
        program.slots = 1 + 2 * steps;
        program
    }

    fn case(steps: u32) -> Case {
        Case { name: "x".to_owned(), program: program(steps), calls: Arc::from([]) }
    }

    #[test]
    fn steps_are_drawn_anew_and_balance_every_allocation() {
        let case = case(12);
        let variations = variations(&case, 5, 7).expect("twelve steps repeat");
        assert_eq!(variations.len(), 5);
        assert!(variations.iter().any(|v| v.program.ops != case.program.ops));
        for v in &variations {
            let mut live = std::collections::BTreeSet::new();
            for op in &v.program.ops {
                match op {
                    Op::Malloc { slot, .. } => {
                        assert!(live.insert(*slot), "{slot} allocated twice")
                    }
                    Op::Free { slot } => assert!(live.remove(slot), "{slot} freed unallocated"),
                    _ => {}
                }
            }
            assert_eq!(live.len(), 1, "only the long-lived allocation stays");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_variations() {
        let ops = |seed| {
            let made = variations(&case(12), 3, seed).expect("steps repeat");
            made.into_iter().map(|v| v.program.ops).collect::<Vec<_>>()
        };
        assert_eq!(ops(1), ops(1));
        assert_ne!(ops(1), ops(2));
    }

    #[test]
    fn a_program_without_steps_has_no_variations() {
        assert!(variations(&case(0), 3, 1).is_none());
    }
}
