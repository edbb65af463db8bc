//! Variations of a program: its own steps in another order, some left out, some twice.
//!
//! A recording is one draw of what the program does. Steps are found in the history itself: where few
//! short-lived allocations are alive (the end of a training step, the gap between two requests), it is cut
//! into pieces. A piece that neither allocates nor frees anything long-lived can stand anywhere a piece of
//! that kind stood. Drawing these pieces anew, with replacement, varies order and sizes without inventing
//! any (a bootstrap of the steps). What a piece hands over to the next (a batch that is replaced only when
//! the next one is there) is freed where the next piece frees what it was handed.

use std::collections::VecDeque;
use std::sync::Arc;

use vramwise_replay::{Op, Program};

use crate::case::Case;

/// Allocations that live at most this share of the program (1 / n) are short-lived.
const SHORT_LIVED: usize = 4;
/// Pieces shorter than this share of the program (1 / n) are joined with their neighbour.
const PIECES_MAX: usize = 64;
/// A cut may cross the fewest allocations anywhere and this share (1 / n) of the most.
const CROSSING: i64 = 50;

/// Finds what can be moved, or `None` where the history shows no repeating steps.
pub(crate) fn variations(case: &Case, count: u32, seed: u64) -> Option<Vec<Case>> {
    let pieces = pieces(&case.program);
    let movable: Vec<usize> = (0..pieces.len()).filter(|i| pieces[*i].movable).collect();
    if movable.len() < 2 {
        return None;
    }
    let mut random = Random(seed ^ 0x6a09_e667_f3bc_c909);
    let mut cases = Vec::new();
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
            capacity: case.capacity,
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
    /// Allocates and frees nothing long-lived.
    movable: bool,
}

/// When a slot was allocated and given back for good.
#[derive(Clone, Copy)]
struct Life {
    from: usize,
    to: usize,
    short: bool,
}

fn lives(program: &Program) -> Vec<Life> {
    let end = program.ops.len();
    let mut lives = vec![Life { from: 0, to: end, short: false }; program.slots as usize];
    for (i, op) in program.ops.iter().enumerate() {
        match *op {
            Op::Malloc { slot, .. } => lives[slot as usize].from = i,
            Op::Free { slot } | Op::Complete { slot } => lives[slot as usize].to = i,
            Op::Failed { .. } | Op::FreePending { .. } | Op::Release { .. } => {}
        }
    }
    for life in &mut lives {
        let freed = life.to < end && life.from >= program.preamble;
        life.short = freed && life.to - life.from <= end / SHORT_LIVED;
    }
    lives
}

/// For every place between two operations, the short-lived allocations alive across it.
fn crossings(program: &Program, lives: &[Life]) -> Vec<i64> {
    let mut crossing = vec![0i64; program.ops.len() + 1];
    for life in lives.iter().filter(|life| life.short) {
        crossing[life.from + 1] += 1;
        crossing[life.to + 1] -= 1;
    }
    let mut alive = 0;
    for count in &mut crossing {
        alive += *count;
        *count = alive;
    }
    crossing
}

fn pieces(program: &Program) -> Vec<Piece> {
    let (ops, lives) = (&program.ops, lives(program));
    let crossing = crossings(program, &lives);
    let inner = &crossing[ops.len() / 10..=ops.len() - ops.len() / 10];
    let fewest = inner.iter().min().copied().unwrap_or(0);
    let few = fewest + inner.iter().max().copied().unwrap_or(0) / CROSSING;
    let least = (ops.len() / PIECES_MAX).max(1);
    let (mut start, mut found) = (program.preamble, Vec::new());
    for i in program.preamble + 1..=ops.len() {
        let quiet =
            crossing[i] <= few && crossing.get(i + 1).is_none_or(|next| *next > crossing[i]);
        if quiet && i - start >= least || i == ops.len() {
            found.push((start, i));
            start = i;
        }
    }
    let movable = |(start, end): (usize, usize)| {
        ops[start..end].iter().all(|op| match *op {
            Op::Malloc { slot, .. }
            | Op::Free { slot }
            | Op::FreePending { slot }
            | Op::Complete { slot } => lives[slot as usize].short,
            Op::Failed { .. } | Op::Release { .. } => true,
        })
    };
    let piece =
        |range: (usize, usize)| Piece { start: range.0, end: range.1, movable: movable(range) };
    found.into_iter().map(piece).collect()
}

/// An allocation that a piece leaves to the next one.
#[derive(Clone, Copy)]
struct Handed {
    slot: u32,
    /// Whether it is freed already and only waits for other streams.
    pending: bool,
}

impl Handed {
    fn end(self) -> Op {
        if self.pending { Op::Complete { slot: self.slot } } else { Op::Free { slot: self.slot } }
    }
}

/// The program made of these ranges of operations; allocations of a repeated range get names of their own.
fn assemble(program: &Program, picked: impl Iterator<Item = (usize, usize)>) -> Program {
    let lives = lives(program);
    let mut made = Program {
        ops: program.ops[..program.preamble].to_vec(),
        events: program.events[..program.preamble].to_vec(),
        ..program.clone()
    };
    let mut names: Vec<u32> = (0..program.slots).collect();
    // what the pieces before left to be freed, oldest first
    let mut handed: VecDeque<Handed> = VecDeque::new();
    for (start, end) in picked {
        let mut own: VecDeque<Handed> = VecDeque::new();
        let inherited = handed.len();
        let mut taken = 0;
        for i in start..end {
            let mut op = program.ops[i];
            match &mut op {
                Op::Malloc { slot, .. } => {
                    let life = lives[*slot as usize];
                    names[*slot as usize] = made.slots;
                    *slot = made.slots;
                    made.slots += 1;
                    if life.short && life.to >= end {
                        own.push_back(Handed { slot: *slot, pending: false });
                    }
                }
                Op::Free { slot } | Op::FreePending { slot } | Op::Complete { slot } => {
                    let life = lives[*slot as usize];
                    if life.short && life.from < start {
                        // A completion of something handed over is taken for its whole free.
                        if matches!(program.ops[i], Op::FreePending { .. }) || taken == inherited {
                            continue;
                        }
                        let Some(first) = handed.pop_front() else { continue };
                        taken += 1;
                        op = first.end();
                    } else {
                        *slot = names[*slot as usize];
                        if matches!(program.ops[i], Op::FreePending { .. })
                            && let Some(mine) = own.iter_mut().find(|h| h.slot == *slot)
                        {
                            mine.pending = true;
                        }
                    }
                }
                Op::Failed { .. } | Op::Release { .. } => {}
            }
            made.ops.push(op);
            made.events.push(program.events[i]);
        }
        // what this piece had no use for ends with it
        for left in handed.drain(..(inherited - taken).min(handed.len())) {
            made.ops.push(left.end());
            made.events.push(program.events[end - 1]);
        }
        handed.append(&mut own);
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
        Case { name: "x".to_owned(), program: program(steps), calls: Arc::from([]), capacity: None }
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
                        assert!(live.insert(*slot), "{slot} allocated twice");
                    }
                    Op::Free { slot } => assert!(live.remove(slot), "{slot} freed unallocated"),
                    _ => {}
                }
            }
            assert_eq!(live.len(), 1, "only the long-lived allocation stays");
        }
    }

    #[test]
    fn a_batch_that_lives_into_the_next_step_is_freed_there() {
        let mut program = Program { streams: vec![0], pools: 1, ..Program::default() };
        let malloc = |size, slot| Op::Malloc { size, stream: 0, pool: 0, slot };
        for step in 0..20u32 {
            program.ops.push(malloc(u64::from(step + 1) << 20, 2 * step));
            if step > 0 {
                program.ops.push(Op::Free { slot: 2 * (step - 1) });
            }
            program.ops.push(malloc(4 << 20, 2 * step + 1));
            program.ops.push(Op::Free { slot: 2 * step + 1 });
        }
        program.events = (0..program.ops.len() as u32).collect();
        program.slots = 40;
        let case = Case { name: "x".to_owned(), program, calls: Arc::from([]), capacity: None };
        let variations = variations(&case, 4, 3).expect("twenty steps repeat");
        for v in &variations {
            let mut live = std::collections::BTreeSet::new();
            let mut most = 0;
            for op in &v.program.ops {
                match op {
                    Op::Malloc { slot, .. } => assert!(live.insert(*slot)),
                    Op::Free { slot } => assert!(live.remove(slot)),
                    _ => {}
                }
                most = most.max(live.len());
            }
            assert!(most <= 3, "{most} allocations at once");
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
