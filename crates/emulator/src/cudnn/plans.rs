//! Which workspace a plan has.
//!
//! PyTorch takes cuDNN's proposals in order and runs the first that works, or, with `benchmark`, makes plans of all,
//! tries them and keeps the fastest. On every convolution that was measured the first proposal worked. So where the
//! table knows a graph, its plans need not be made: the first has the recorded workspace, and where more are asked for,
//! the kept one and the largest follow.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use vramwise_workspaces::{Direction, Graph, Table, Tracker, keys};

/// Virtual speed of a convolution, operations a nanosecond.
const FLOP_PER_NS: u64 = 400_000;
/// The plans that a benchmark does not keep take this many times as long.
const SLOWER: u64 = 4;

/// What is known of a graph's plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Workspaces: of the first proposal; of the plan that a benchmark keeps and the largest, if that was measured.
    Known { first: u64, benchmark: Option<(u64, u64)> },
    /// The real library is asked.
    Unknown,
}

struct Round {
    graph: Arc<Graph>,
    answer: Answer,
    /// Plans so far.
    count: usize,
}

struct Plan {
    round: usize,
    place: usize,
    workspace: Option<u64>,
}

/// What becomes of a plan that is to be finalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is taken for finalised; the real library is not asked.
    Taken,
    /// The real library decides.
    Ask,
}

#[derive(Default)]
pub(super) struct Plans {
    pub(super) tracker: Tracker,
    /// By the address of the graph, which the round keeps alive.
    rounds: FxHashMap<usize, Round>,
    plans: FxHashMap<u64, Plan>,
    /// The configuration of each plan that is being described.
    configs: FxHashMap<u64, u64>,
}

/// A convolution whose plans begin: whether the table knew it, and what it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) measured: bool,
    pub(super) graph: Arc<str>,
}

impl Plans {
    pub(super) fn config_of_plan(&mut self, plan: u64, config: u64) {
        self.configs.insert(plan, config);
    }

    /// The configuration of a plan; 0 if none was given.
    pub(super) fn config(&self, plan: u64) -> u64 {
        self.configs.get(&plan).copied().unwrap_or(0)
    }

    /// A plan is to be finalised; `engine` is its proposal's.
    pub(super) fn decide(
        &mut self,
        plan: u64,
        engine: i64,
        table: Option<&Table>,
    ) -> (Verdict, Option<Seen>) {
        let Some(graph) = self.tracker.graph(plan) else { return (Verdict::Ask, None) };
        let key = Arc::as_ptr(&graph) as usize;
        let mut seen = None;
        let round = self.rounds.entry(key).or_insert_with(|| {
            let (answer, measured) = look_up(&graph, engine, table);
            if graph.has_convolution {
                let graph = Arc::from(graph.signature.as_str());
                seen = Some(Seen { measured, graph });
            }
            Round { graph, answer, count: 0 }
        });
        let place = round.count;
        let workspace = match round.answer {
            Answer::Unknown => None,
            Answer::Known { first, .. } if place == 0 => Some(first),
            Answer::Known { benchmark: None, .. } => None,
            Answer::Known { first, benchmark: Some((kept, largest)) } => {
                Some(match place - usize::from(kept != first) {
                    0 if kept != first => kept,
                    1 if kept == first => largest,
                    1 => largest,
                    _ => 0,
                })
            }
        };
        if workspace.is_some() {
            round.count += 1;
            self.plans.insert(plan, Plan { round: key, place, workspace });
            (Verdict::Taken, seen)
        } else {
            (Verdict::Ask, seen)
        }
    }

    /// The real library has finalised a plan.
    pub(super) fn finalized(&mut self, plan: u64) {
        let Some(graph) = self.tracker.graph(plan) else { return };
        let key = Arc::as_ptr(&graph) as usize;
        if let Some(round) = self.rounds.get_mut(&key) {
            self.plans.insert(plan, Plan { round: key, place: round.count, workspace: None });
            round.count += 1;
        }
    }

    /// The workspace that a plan has here instead of the real library's.
    pub(super) fn workspace(&self, plan: u64) -> Option<u64> {
        self.plans.get(&plan)?.workspace
    }

    /// Virtual nanoseconds of one execution.
    pub(super) fn duration(&self, plan: u64) -> u64 {
        let Some(plan) = self.plans.get(&plan) else { return 0 };
        let Some(round) = self.rounds.get(&plan.round) else { return 0 };
        let ns = operations(&round.graph) / FLOP_PER_NS + 1000;
        let kept = match round.answer {
            Answer::Known { first, benchmark: Some((kept, _)) } => usize::from(kept != first),
            _ => 0,
        };
        if round.count > 1 && plan.place != kept { ns * SLOWER } else { ns }
    }

    pub(super) fn destroyed(&mut self, address: u64) {
        self.tracker.destroy(address);
        self.plans.remove(&address);
        self.configs.remove(&address);
    }
}

/// The table's answer for a graph, and whether it counts as measured: it does not where another proposal is tried first
/// than on the card, because the program's settings may have ruled that one out.
fn look_up(graph: &Graph, engine: i64, table: Option<&Table>) -> (Answer, bool) {
    let Some(pairs) = table.and_then(|t| t.get(&keys::plan(&graph.signature))) else {
        return (Answer::Unknown, false);
    };
    let pairs = pairs.as_chunks::<2>().0;
    let Some([_, usual]) = pairs.first() else { return (Answer::Unknown, false) };
    let matching = pairs.iter().find(|[e, _]| i64::try_from(*e) == Ok(engine));
    let first = matching.map_or(*usual, |[_, workspace]| *workspace);
    let benchmark = match table.and_then(|t| t.get(&keys::benchmark(&graph.signature))) {
        Some([kept, largest]) => Some((*kept, *largest)),
        _ => None,
    };
    (Answer::Known { first, benchmark }, matching.is_some())
}

fn operations(graph: &Graph) -> u64 {
    let Some(c) = &graph.convolution else { return 0 };
    let product =
        |numbers: &[i64]| numbers.iter().fold(1u64, |a, n| a.saturating_mul((*n).unsigned_abs()));
    // All three directions multiply every output by every weight of its filter.
    match c.direction {
        Direction::Forward | Direction::Data | Direction::Filter => {
            product(&c.y).saturating_mul(product(&c.w[1..])).saturating_mul(2)
        }
    }
}
