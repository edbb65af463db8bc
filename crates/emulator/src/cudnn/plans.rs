//! Which workspace a plan has.
//!
//! PyTorch takes cuDNN's proposals in order and runs the first that works, or, with `benchmark`, makes plans of all,
//! tries them and keeps the fastest. On every convolution that was measured the first proposal worked. So where the
//! table knows a graph, its plans need not be made: the first has the recorded workspace, and where more are asked for,
//! the kept one and the largest follow.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use vramwise_workspaces::keys::{self, Choice};
use vramwise_workspaces::{Graph, Table, Tracker, estimate};

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

    /// A plan is to be finalised; `engine` is its proposal's. `choice` says what the settings leave out, given whether
    /// the computation is in single precision.
    pub(super) fn decide(
        &mut self,
        plan: u64,
        engine: i64,
        choice: impl Fn(bool) -> Option<Choice>,
        table: Option<&Table>,
    ) -> (Verdict, Option<Seen>) {
        let Some(graph) = self.tracker.graph(plan) else { return (Verdict::Ask, None) };
        let key = Arc::as_ptr(&graph) as usize;
        let mut seen = None;
        let round = self.rounds.entry(key).or_insert_with(|| {
            let (answer, measured) = look_up(&graph, engine, choice, table);
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
            // After the first: the kept one, if it is another, then the largest; the rest fit into that.
            Answer::Known { first, benchmark: Some((kept, largest)) } => {
                let rest = [kept, largest];
                let rest = if kept == first { &rest[1..] } else { &rest[..] };
                Some(rest.get(place - 1).copied().unwrap_or(0))
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

    /// Whether several plans were made of a plan's graph.
    pub(super) fn is_benchmark(&self, plan: u64) -> bool {
        let Some(graph) = self.tracker.graph(plan) else { return false };
        self.rounds.get(&(Arc::as_ptr(&graph) as usize)).is_some_and(|r| r.count > 1)
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

/// The table's answer for a graph, and whether it counts as measured.
///
/// Where the settings cannot be told, the engine of the first proposal says which of them fit: without a device cuDNN
/// may propose another one first, and then the usual settings are assumed, and the answer is not called measured.
fn look_up(
    graph: &Graph,
    engine: i64,
    choice: impl Fn(bool) -> Option<Choice>,
    table: Option<&Table>,
) -> (Answer, bool) {
    let of = |choice| match table?.get(&keys::plan(choice, &graph.signature))? {
        [engine, workspace] => Some((*engine, *workspace)),
        _ => None,
    };
    let single = graph.convolution.as_ref().is_none_or(|c| c.data_type == 0);
    let told = choice(single);
    let certain = match told {
        Some(choice) => of(choice),
        None => {
            Choice::ALL.into_iter().filter_map(of).find(|(e, _)| i64::try_from(*e) == Ok(engine))
        }
    };
    let usual = of(Choice::First);
    // What was measured under other settings is no help: those leave other proposals out.
    let likely = if told.is_none() { certain.or(usual) } else { certain };
    let Some((_, first)) = likely else {
        let estimate =
            table.and_then(|t| estimate::workspace(t, told.unwrap_or(Choice::First), graph));
        let answer =
            estimate.map_or(Answer::Unknown, |first| Answer::Known { first, benchmark: None });
        return (answer, false);
    };
    let benchmark = match table.and_then(|t| t.get(&keys::benchmark(&graph.signature))) {
        Some([kept, largest]) if certain == usual => Some((*kept, *largest)),
        _ => None,
    };
    (Answer::Known { first, benchmark }, certain.is_some())
}

fn operations(graph: &Graph) -> u64 {
    let Some(c) = &graph.convolution else { return 0 };
    let product =
        |numbers: &[i64]| numbers.iter().fold(1u64, |a, n| a.saturating_mul(n.unsigned_abs()));
    // All three directions multiply every output by every weight of its filter.
    product(&c.y).saturating_mul(product(&c.w[1..])).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use vramwise_workspaces::{Builder, Facts, Value, attribute, kind};

    use super::*;

    const GRAPH: u64 = 100;

    /// A graph with one operation of no tensors, and its signature.
    fn plans() -> (Plans, String) {
        let mut plans = Plans::default();
        plans.tracker.create(1, kind::FORWARD);
        plans.tracker.set(1, 700, Value::Real(vec![1.0]));
        plans.tracker.finalize(1);
        plans.tracker.create(GRAPH, kind::GRAPH);
        plans.tracker.set_descriptors(GRAPH, attribute::GRAPH_OPERATIONS, &[1]);
        plans.tracker.finalize(GRAPH);
        plans.tracker.create(50, kind::ENGINE_CONFIG);
        plans.tracker.derive(50, GRAPH);
        let signature = plans.tracker.graph(GRAPH).unwrap().signature.clone();
        (plans, signature)
    }

    fn plan(plans: &mut Plans, address: u64) {
        plans.tracker.create(address, kind::PLAN);
        plans.tracker.set_descriptors(address, attribute::PLAN_CONFIG, &[50]);
    }

    fn table(entries: &[(String, Vec<u64>)]) -> Table {
        let mut builder = Builder::default();
        for (key, numbers) in entries {
            builder.insert(key, numbers.clone());
        }
        Table::from_bytes(&builder.to_bytes(&Facts::default()).unwrap()).unwrap()
    }

    fn usual(_single: bool) -> Option<Choice> {
        Some(Choice::First)
    }

    #[test]
    fn a_known_graph_is_not_asked_about() {
        let (mut plans, signature) = plans();
        let table = table(&[(keys::plan(Choice::First, &signature), vec![62, 4096])]);
        plan(&mut plans, 200);
        let (verdict, seen) = plans.decide(200, 7, usual, Some(&table));
        assert_eq!((verdict, seen.map(|s| s.measured)), (Verdict::Taken, Some(true)));
        assert_eq!(plans.workspace(200), Some(4096));
        // A second plan was not measured: the real library is asked.
        plan(&mut plans, 201);
        assert_eq!(plans.decide(201, 7, usual, Some(&table)), (Verdict::Ask, None));
        assert_eq!(plans.workspace(201), None);
    }

    #[test]
    fn an_unknown_graph_is_left_to_the_library_and_counted_once() {
        let (mut plans, _) = plans();
        plan(&mut plans, 200);
        let (verdict, seen) = plans.decide(200, 7, usual, None);
        assert_eq!((verdict, seen.map(|s| s.measured)), (Verdict::Ask, Some(false)));
        plan(&mut plans, 201);
        assert_eq!(plans.decide(201, 8, usual, None), (Verdict::Ask, None));
    }

    #[test]
    fn a_benchmark_meets_the_kept_plan_and_the_largest() {
        let (mut plans, signature) = plans();
        let table = table(&[
            (keys::plan(Choice::First, &signature), vec![62, 10]),
            (keys::benchmark(&signature), vec![5, 90]),
        ]);
        for address in 200..204 {
            plan(&mut plans, address);
            assert_eq!(plans.decide(address, 7, usual, Some(&table)).0, Verdict::Taken);
        }
        assert_eq!(
            (200..204).map(|p| plans.workspace(p).unwrap()).collect::<Vec<_>>(),
            [10, 5, 90, 0]
        );
        assert!(plans.is_benchmark(203));
        // The kept plan is the fastest.
        assert!((200..204).filter(|p| *p != 201).all(|p| plans.duration(p) > plans.duration(201)));
    }

    #[test]
    fn other_settings_have_their_own_answers() {
        let (mut plans, signature) = plans();
        let table = table(&[
            (keys::plan(Choice::First, &signature), vec![62, 10]),
            (keys::plan(Choice::Deterministic, &signature), vec![30, 20]),
        ]);
        plan(&mut plans, 200);
        plans.decide(200, 7, |_| Some(Choice::Deterministic), Some(&table));
        assert_eq!(plans.workspace(200), Some(20));
    }

    #[test]
    fn settings_that_cannot_be_told_are_guessed_from_the_engine() {
        for (engine, workspace, measured) in [(30, 20, true), (62, 10, true), (7, 10, false)] {
            let (mut plans, signature) = plans();
            let table = table(&[
                (keys::plan(Choice::First, &signature), vec![62, 10]),
                (keys::plan(Choice::Deterministic, &signature), vec![30, 20]),
            ]);
            plan(&mut plans, 200);
            let (_, seen) = plans.decide(200, engine, |_| None, Some(&table));
            assert_eq!((plans.workspace(200), seen.unwrap().measured), (Some(workspace), measured));
        }
    }
}
