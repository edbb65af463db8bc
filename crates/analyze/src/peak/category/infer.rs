//! The rules themselves, in the order in which they are asked.

use rustc_hash::FxHashMap;
use vramwise_trace::{BlockState, DeviceTrace, Snapshot, StackId};
use vramwise_types::Action;

use super::{CustomRule, Decision};
use crate::peak::fold;
use crate::peak::phase::Phases;
use crate::peak::state::Piece;

/// What a stack says, once for each.
#[derive(Clone, Copy, Debug, Default)]
struct Traits {
    workspace: bool,
    optimizer: bool,
    creation: bool,
    backward: bool,
    accumulates: bool,
    forward: bool,
    any: bool,
}

/// Decides for the blocks of one device.
pub(crate) struct Classifier<'a> {
    snapshot: &'a Snapshot,
    device: &'a DeviceTrace,
    custom: &'a [CustomRule],
    phases: Phases<'a>,
    /// Steps of optimizers: (first event, event after the last), ascending.
    steps: Vec<(usize, usize)>,
    /// First event of the first forward pass: modules are built and moved before it.
    forward: usize,
    has_stacks: bool,
    traits: FxHashMap<StackId, Traits>,
    /// For the blocks asked about, by their event: the event that freed them.
    freed: FxHashMap<usize, usize>,
    /// Requested sizes that parameters have.
    parameter_sizes: rustc_hash::FxHashSet<u64>,
}

/// Events between allocation and free up to which a block is a temporary one.
const SHORT: usize = 24;

/// Bytes that PyTorch allocates as workspaces of cuBLAS and cuBLASLt: on Hopper, on other cards, and for
/// cuBLASLt.
const WORKSPACES: [u64; 3] = [32 << 20, 8_519_680, 1 << 20];
/// Events that a block must be old to be taken for a workspace: those are made early and kept.
const WORKSPACE_AGE: usize = 200;

impl<'a> Classifier<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        number: u32,
        device: &'a DeviceTrace,
        custom: &'a [CustomRule],
    ) -> Self {
        let events = &device.events;
        let steps = optimizer_steps(snapshot, number, device);
        Self {
            snapshot,
            device,
            custom,
            phases: Phases::new(snapshot, number),
            forward: steps.first().map_or(0, |step| first_forward(device, step.0)),
            steps,
            has_stacks: events.stack.iter().any(|s| *s != StackId::NONE),
            traits: FxHashMap::default(),
            freed: FxHashMap::default(),
            parameter_sizes: rustc_hash::FxHashSet::default(),
        }
    }

    /// Gets ready for the blocks of one moment.
    pub(crate) fn look_at(&mut self, blocks: &[Piece]) {
        let events = &self.device.events;
        let mut wanted: FxHashMap<u64, usize> = FxHashMap::default();
        let used = blocks.iter().filter(|b| b.state != BlockState::Inactive);
        for (addr, event) in used.filter_map(|b| Some((b.addr, b.event?))) {
            wanted.insert(addr, event);
        }
        let first = wanted.values().copied().min().unwrap_or(events.len());
        self.freed.clear();
        for i in first..events.len() {
            if wanted.is_empty() {
                break;
            }
            let frees = matches!(
                events.action[i],
                Action::FreeRequested | Action::Free | Action::FreeCompleted
            );
            if frees && let Some(event) = wanted.get(&events.addr[i]).copied().filter(|e| *e < i) {
                wanted.remove(&events.addr[i]);
                self.freed.insert(event, i);
            }
        }
        self.parameter_sizes = blocks
            .iter()
            .filter(|b| b.state != BlockState::Inactive && self.outlasts_all(b))
            .map(|b| b.requested)
            .collect();
    }

    /// Whether a block was there before the first step of an optimizer and after the last.
    fn outlasts_all(&self, block: &Piece) -> bool {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else {
            return false;
        };
        let until = block.event.and_then(|e| self.freed.get(&e).copied());
        let early = block.event.map_or(block.before, |e| e < first.0.min(self.forward));
        early && until.is_none_or(|f| f >= last.1)
    }

    /// What a block is for.
    pub(crate) fn decide(&mut self, block: &Piece) -> Decision {
        if let Some(decision) = self.by_user(block) {
            return decision;
        }
        let traits = self.traits_of(block.stack);
        if traits.workspace {
            return Decision::new("workspaces", "a frame names a library's workspace");
        }
        if block.before {
            return Decision::new("unknown", "it was there before the recording began");
        }
        let Some(event) = block.event else {
            return Decision::new("unknown", "the history does not have its allocation");
        };
        let freed = self.freed.get(&event).copied();
        let length = freed.map(|f| f - event);
        let is_last = self.device.events.len() - event <= WORKSPACE_AGE;
        if freed.is_none() && !is_last && WORKSPACES.contains(&block.requested) && !traits.creation
        {
            return Decision::new(
                "workspaces",
                "as large as a workspace of cuBLAS, and never freed",
            );
        }
        if let Some(step) = self.step_at(event).or(traits.optimizer.then_some((event, event + 1))) {
            let stays =
                freed.is_none_or(|f| self.next_step(step.1).is_some_and(|next| f >= next.0));
            return if stays && length.is_none_or(|l| l > SHORT) {
                Decision::new(
                    "optimizer state",
                    "made in the optimizer's step and still there after it",
                )
            } else {
                Decision::new("temporaries", "made in the optimizer's step and freed with it")
            };
        }
        let next = self.next_step(event);
        let crosses = next.is_some_and(|next| freed.is_none_or(|f| f >= next.0));
        if traits.creation && length.is_none_or(|l| l > SHORT) {
            return Decision::new("parameters", "made where a module is built, loaded or moved");
        }
        if traits.accumulates {
            return Decision::new("gradients", "its stack accumulates gradients");
        }
        if traits.forward && !traits.backward {
            return match length {
                Some(length) if length <= SHORT => {
                    Decision::new("temporaries", "made in a forward pass and freed soon after")
                }
                _ => Decision::new("activations", "made in a forward pass and kept"),
            };
        }
        // The thread of the backward pass has no Python frames.
        if traits.backward || self.has_stacks && !traits.any {
            return match (crosses, length) {
                (true, _) => {
                    Decision::new("gradients", "made in the backward pass, there for the optimizer")
                }
                (false, None) => Decision::new("unknown", "made in the backward pass, never freed"),
                (false, Some(_)) => {
                    Decision::new("temporaries", "made in the backward pass and freed in it")
                }
            };
        }
        if traits.any {
            return Decision::new("unknown", "made by lines that no rule knows");
        }
        self.by_lifetime(block, freed, crosses)
    }

    /// Without stacks: from when it came and went.
    fn by_lifetime(&self, block: &Piece, freed: Option<usize>, crosses: bool) -> Decision {
        let Some(event) = block.event.filter(|_| !self.steps.is_empty()) else {
            return Decision::new("unknown", "neither stacks nor an optimizer's annotations");
        };
        if self.outlasts_all(block) {
            return Decision::new(
                "parameters",
                "there before the optimizer's first step and after its last",
            );
        }
        let second = self.next_step(event).and_then(|next| self.next_step(next.1));
        let one = crosses && second.is_none_or(|second| freed.is_some_and(|f| f < second.0));
        if one && self.parameter_sizes.contains(&block.requested) {
            return Decision::new(
                "gradients",
                "as large as a parameter, there for one optimizer's step",
            );
        }
        match freed {
            Some(freed) if freed - event <= SHORT => {
                Decision::new("temporaries", "freed soon after")
            }
            Some(_) if !crosses => {
                Decision::new("activations", "made and freed between two steps of the optimizer")
            }
            _ => Decision::new("unknown", "its lifetime fits no rule"),
        }
    }

    fn by_user(&self, block: &Piece) -> Option<Decision> {
        if self.custom.is_empty() {
            return None;
        }
        let text = |id| self.snapshot.strings.get(id);
        let frames: Vec<String> = self
            .snapshot
            .stacks
            .stack(block.stack)
            .iter()
            .map(|id| self.snapshot.stacks.frame(*id))
            .map(|f| format!("{}:{} {}", text(f.filename), f.line, text(f.name)))
            .collect();
        let needs_phase = self.custom.iter().any(|r| r.annotation.is_some());
        let time = block.event.and_then(|e| self.device.events.time_us.get(e)).copied();
        let phase = time.filter(|t| needs_phase && *t > 0).map(|t| self.phases.at(t));
        let within: Vec<String> = phase.map(|p| p.within).unwrap_or_default();
        let holds = |rule: &&CustomRule| {
            let frames = frames.iter().map(String::as_str);
            rule.holds(block.requested, frames, within.iter().map(String::as_str))
        };
        let rule = self.custom.iter().find(holds)?;
        Some(Decision { category: rule.category.clone(), rule: rule.words() })
    }

    fn step_at(&self, event: usize) -> Option<(usize, usize)> {
        let after = self.steps.partition_point(|step| step.0 <= event);
        self.steps.get(after.checked_sub(1)?).copied().filter(|step| event < step.1)
    }

    /// The first step of an optimizer that begins at an event or later.
    fn next_step(&self, event: usize) -> Option<(usize, usize)> {
        self.steps.get(self.steps.partition_point(|step| step.0 < event)).copied()
    }

    fn traits_of(&mut self, stack: StackId) -> Traits {
        if stack == StackId::NONE {
            return Traits::default();
        }
        if let Some(known) = self.traits.get(&stack) {
            return *known;
        }
        let found = traits(self.snapshot, stack);
        self.traits.insert(stack, found);
        found
    }
}

/// Functions in which modules are built, loaded or moved.
const CREATION: [&str; 9] = [
    "_apply",
    "__init__",
    "from_pretrained",
    "load_state_dict",
    "_load_from_state_dict",
    "_load_pretrained_model",
    "reset_parameters",
    "to_empty",
    "_init_weights",
];

fn traits(snapshot: &Snapshot, stack: StackId) -> Traits {
    let text = |id| snapshot.strings.get(id);
    let mut found = Traits::default();
    for id in snapshot.stacks.stack(stack) {
        let frame = snapshot.stacks.frame(*id);
        let (file, name) = (text(frame.filename), text(frame.name));
        found.workspace |= name.contains("orkspace");
        let in_optimizer = file.contains("torch/optim/") || file.contains("torch\\optim\\");
        found.optimizer |= in_optimizer && name != "zero_grad";
        found.accumulates |= name.contains("AccumulateGrad");
        found.backward |= name.contains("torch::autograd::Engine")
            || name.contains("torch::autograd::generated::") && name.contains("Backward")
            || name == "_engine_run_backward"
            || name == "backward"
                && fold::is_python(file)
                && !file.contains("torch/autograd/function");
        if fold::is_python(file) {
            found.any = true;
            let module = file.contains("torch/nn/") || file.contains("torch\\nn\\");
            found.creation |= CREATION.contains(&name);
            found.forward |= name == "forward" || module && name == "_call_impl";
        }
    }
    found.forward &= !found.optimizer;
    found.creation &= !found.forward && !found.backward && !found.optimizer;
    found
}

/// The first allocation of those that are freed before the optimizer's first step and not at once: what
/// building a module needs meanwhile is freed at once, and activations are not.
fn first_forward(device: &DeviceTrace, until: usize) -> usize {
    let events = &device.events;
    let mut live: FxHashMap<u64, usize> = FxHashMap::default();
    let mut first = until;
    for i in 0..until.min(events.len()) {
        match events.action[i] {
            Action::Alloc => {
                live.insert(events.addr[i], i);
            }
            Action::FreeRequested | Action::Free | Action::FreeCompleted => {
                if let Some(from) = live.remove(&events.addr[i]).filter(|from| i - from > SHORT) {
                    first = first.min(from);
                }
            }
            _ => {}
        }
    }
    first
}

/// When optimizers took their steps, by the annotations that PyTorch makes for them.
fn optimizer_steps(snapshot: &Snapshot, number: u32, device: &DeviceTrace) -> Vec<(usize, usize)> {
    let times = &device.events.time_us;
    let ours = snapshot.annotations.iter().filter(|a| a.device.is_none_or(|d| d == number));
    let mut marks: Vec<(u64, bool)> = ours
        .filter(|a| snapshot.strings.get(a.name).starts_with("Optimizer.step"))
        .map(|a| (a.time_us, a.is_start))
        .collect();
    marks.sort_unstable();
    let mut steps = Vec::new();
    let mut start = None;
    for (time, is_start) in marks {
        // Times rise with the events, but for those that several threads wrote at once.
        let at = times.partition_point(|t| *t < time);
        if is_start {
            start = Some(at);
        } else if let Some(from) = start.take() {
            steps.push((from, at.max(from)));
        }
    }
    steps
}
