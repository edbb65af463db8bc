//! Advice where the card is too small: less to hold, less at once, more cards, or a larger one.

use vramwise_types::{GIB, Human, MIB};

use super::super::account::context_most;
use super::super::knowledge as known;
use super::super::phase::Phase;
use super::Adviser;

impl Adviser<'_> {
    fn short(&self) -> String {
        match self.case.account.shortfall() {
            Some(short) => format!("{} is missing", Human(short)),
            None => match (self.case.account.free, self.case.account.tried) {
                (Some(free), Some(tried)) if free < tried => {
                    format!("{} was asked for where {} is free", Human(tried), Human(free))
                }
                _ => "the card is full of live memory".to_owned(),
            },
        }
    }

    pub(super) fn capacity(&mut self) {
        self.by_phase();
        let small = self.case.account.tried.is_some_and(|t| t < 512 * MIB);
        let training = !matches!(self.phase(), Some(Phase::Inference | Phase::Loading));
        if training && !self.techniques.batch_of_one && self.phase() != Some(Phase::Optimizer) {
            self.add(
                "make the batch (or the sequence) smaller; accumulate gradients if the size matters",
                format!("activations grow with it, and {}", self.short()),
            );
        }
        if training && !self.techniques.checkpointing && self.phase() != Some(Phase::Optimizer) {
            self.add(
                "checkpoint activations (torch.utils.checkpoint, use_reentrant=False)",
                format!("{} ({})", known::CHECKPOINTING.says, known::CHECKPOINTING.source),
            );
        }
        if training && !self.techniques.autocast {
            self.add(
                "train in bfloat16 (torch.autocast)",
                "activations take half the bytes; parameters and optimizer states stay as they are"
                    .to_owned(),
            );
        }
        if !training && !self.techniques.quantised {
            self.add(
                "load the weights in a smaller type (bfloat16, 8 or 4 bits)",
                "weights are what is live while a model is loaded or serves".to_owned(),
            );
        }
        if !self.techniques.sharding {
            self.add(
                "spread the model over several cards (FSDP, tensor parallel), or offload parts to the host",
                "each card then holds a part of parameters, gradients and optimizer states".to_owned(),
            );
        }
        self.larger_card();
        if small && self.oldest.is_none_or(|v| v.major >= 2) {
            self.add(
                "record a snapshot (torch.cuda.memory._record_memory_history, then _dump_snapshot) and open it with 'vramwise inspect'",
                "the request that failed is small: it shows who came last, not who holds the memory".to_owned(),
            );
        }
    }

    fn by_phase(&mut self) {
        match self.phase() {
            Some(Phase::Loss) => self.add(
                "compute the loss in chunks, or with a fused linear cross-entropy",
                "the logits hold a value for every token and every word, and the loss needs them in float32 once more".to_owned(),
            ),
            Some(Phase::Optimizer) => self.optimizer(),
            Some(Phase::Inference) => self.add(
                "shorten the context or the number of parallel requests",
                "the key-value cache grows with both".to_owned(),
            ),
            _ => {}
        }
    }

    pub(super) fn optimizer(&mut self) {
        self.add(
            "use the optimizer with foreach=False or fused=True",
            format!("{} ({})", known::ADAM_STATES.says, known::ADAM_STATES.source),
        );
        if !self.techniques.small_optimizer {
            self.add(
                "use an 8-bit or factored optimizer, or shard its states (ZeRO, FSDP)",
                "Adam's two states take 8 bytes for each parameter in float32".to_owned(),
            );
        }
    }

    /// The smallest usual card that would have held it.
    pub(super) fn larger_card(&mut self) {
        let a = &self.case.account;
        let (Some(total), Some(tried)) = (a.total, a.tried) else { return };
        let Some(held) = a.reserved.max(a.allocated) else { return };
        let live = a.allocated.unwrap_or(held).min(held);
        // What lies outside PyTorch is measured where the text has all figures of the card.
        let (beside, words) = match a.outside {
            Some(outside) => (outside, ""),
            None => (context_most(total), "up to "),
        };
        let need = live.saturating_add(tried).saturating_add(beside);
        // A card reports some per cent less than its name says.
        let sizes = [4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 141, 192, 288];
        let usable = |size: u64| size / 100 * 97;
        if let Some(size) =
            sizes.iter().map(|g| g * GIB).find(|s| usable(*s) > need && usable(*s) > total)
            && need > total
        {
            self.add(
                format!("take a card of {} or more", Human(size)),
                format!(
                    "{} live + {} asked for + {words}{} outside PyTorch = {}; what the program asks for after that is not known",
                    Human(live), Human(tried), Human(beside), Human(need)
                ),
            );
        }
    }
}
