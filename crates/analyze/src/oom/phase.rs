//! What the program was doing when memory ran out, from the lines around the error.

use super::joiner::Log;
use super::lines::{compact, tag};
use super::pattern::find;

/// What the program was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The model was being loaded or moved to the device.
    Loading,
    /// The forward pass.
    Forward,
    /// The logits and the loss.
    Loss,
    /// The backward pass.
    Backward,
    /// The optimizer's step.
    Optimizer,
    /// Generation or serving.
    Inference,
}

impl Phase {
    /// In a sentence: "during …".
    pub const fn words(self) -> &'static str {
        match self {
            Phase::Loading => "loading the model",
            Phase::Forward => "the forward pass",
            Phase::Loss => "computing the loss",
            Phase::Backward => "the backward pass",
            Phase::Optimizer => "the optimizer's step",
            Phase::Inference => "inference",
        }
    }
}

/// Frames and words that tell the phase; the innermost frame stands last in a traceback, so the
/// nearest line above the error wins.
const PHASE_WORDS: &[(&str, Phase)] = &[
    ("_foreach_", Phase::Optimizer),
    ("exp_avg", Phase::Optimizer),
    ("optimizer.step", Phase::Optimizer),
    ("torch/optim/", Phase::Optimizer),
    ("label_smoothing", Phase::Loss),
    ("cross_entropy", Phase::Loss),
    ("logits", Phase::Loss),
    ("log_softmax", Phase::Loss),
    ("loss.backward", Phase::Backward),
    ("autograd/__init__", Phase::Backward),
    ("_engine_run_backward", Phase::Backward),
    (".backward(", Phase::Backward),
    ("load_state_dict", Phase::Loading),
    ("t.cuda(device", Phase::Loading),
    ("from_pretrained", Phase::Loading),
    ("convert(t)", Phase::Loading),
    (".to(device", Phase::Loading),
    ("load_weights", Phase::Loading),
    ("generate(", Phase::Inference),
    ("past_key_value", Phase::Inference),
    ("scaled_dot_product", Phase::Forward),
    ("in forward", Phase::Forward),
    ("self.forward", Phase::Forward),
    ("_call_impl", Phase::Forward),
];

/// Lines above an error that belong to its traceback.
const TRACEBACK: usize = 60;

/// What the lines in front of an event (by index) say of the phase, with the word that said it.
pub(super) fn phase_before(log: &Log<'_>, index: usize) -> Option<(Phase, &'static str)> {
    let own = tag(log.lines.get(index)?.text).0;
    for i in (index.saturating_sub(TRACEBACK)..index).rev() {
        let (other, body) = tag(log.lines[i].text);
        if other != own {
            continue;
        }
        if body.starts_with("Traceback") {
            return None;
        }
        if let Some((word, phase)) = PHASE_WORDS.iter().find(|(word, _)| body.contains(word)) {
            return Some((*phase, word));
        }
    }
    None
}

/// Whether the lines behind an event say that another exception came while it was handled.
pub(super) fn retried_after(log: &Log<'_>, index: usize) -> bool {
    let behind = log.lines.iter().skip(index + 1).take(40);
    behind
        .take_while(|l| !l.text.contains("Traceback"))
        .any(|l| l.text.contains("During handling of the above exception"))
}

/// Techniques that save memory and that the lines around an event show at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Techniques {
    pub(super) checkpointing: bool,
    pub(super) autocast: bool,
    pub(super) sharding: bool,
    pub(super) small_optimizer: bool,
    pub(super) quantised: bool,
    pub(super) batch_of_one: bool,
}

/// Looks at the lines around an event.
pub(super) fn techniques_near(log: &Log<'_>, index: usize) -> Techniques {
    let from = index.saturating_sub(400);
    let to = (index + 40).min(log.lines.len());
    let mut out = Techniques::default();
    for line in &log.lines[from..to] {
        let text = compact(line.text);
        let has = |word: &str| find(&text, word, 0).is_some();
        out.checkpointing |= has("utils/checkpoint.py")
            || has("utils\\checkpoint.py")
            || has("gradient_checkpointing=true");
        out.autocast |= has("autocast_mode") || has("bf16=true") || has("fp16=true");
        out.sharding |= has("fully_sharded") || has("fsdp") || has("deepspeed/");
        out.small_optimizer |=
            has("adamw8bit") || has("adamw_8bit") || has("adamw_bnb_8bit") || has("adafactor");
        out.quantised |= has("load_in_4bit") || has("load_in_8bit") || has("bitsandbytes");
        out.batch_of_one |= batch_size(&text) == Some(1);
    }
    out
}

/// The batch size that compact text names.
fn batch_size(text: &[u8]) -> Option<u64> {
    let at = find(text, "batch_size", 0).or_else(|| find(text, "batchsize", 0))?;
    let rest = &text[at..];
    let digits_at =
        rest.iter().position(u8::is_ascii_digit).filter(|p| *p <= "batch_size".len() + 3)?;
    let (value, _) = super::amount::integer(&rest[digits_at..])?;
    value
}
