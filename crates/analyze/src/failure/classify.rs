//! The cause, by arithmetic first and by replay where arithmetic leaves it open.

use std::fmt::Write as _;

use vramwise_model::settings::Config;
use vramwise_replay::Program;
use vramwise_types::Human;

use super::change;
use super::trial::Bench;
use super::{Account, Cause, Limit, PinnedSegment};

/// What the cause is decided on.
pub(super) struct Case<'a> {
    pub(super) bench: Bench<'a>,
    pub(super) program: &'a Program,
    pub(super) config: &'a Config,
    pub(super) limit: Limit,
    pub(super) account: Account,
    pub(super) recorded: bool,
    pub(super) pinned: &'a [PinnedSegment],
}

/// A cause with its reasons.
pub(super) struct Verdict {
    pub(super) cause: Cause,
    pub(super) confidence: f64,
    pub(super) why: Vec<String>,
    pub(super) contributing: Vec<(Cause, u64)>,
    /// Whether no allocator setting can help, whatever the limit was.
    pub(super) hopeless: bool,
}

/// Card bytes that the context, libraries and other small things take without being another process.
const CONTEXT: u64 = 2 << 30;

impl Case<'_> {
    /// Whether the driver had room, so that only a limit can have refused.
    fn card_had_room(&self) -> bool {
        self.account.device_free.is_some_and(|free| free >= self.account.segment)
    }

    /// Bytes of the card that neither PyTorch holds nor the driver has free.
    fn held_by_others(&self) -> Option<u64> {
        let (total, free) = (self.bench.total?, self.account.device_free?);
        total.checked_sub(free)?.checked_sub(self.account.reserved)
    }

    pub(super) fn verdict(&self) -> Verdict {
        let (a, limit) = (&self.account, self.limit);
        let needed = a.needed();
        let mut verdict = Verdict {
            cause: Cause::TrueCapacity,
            confidence: 0.95,
            why: self.numbers(),
            contributing: Vec::new(),
            hopeless: needed > limit.high,
        };
        if verdict.hopeless {
            verdict.why.push(format!(
                "no allocator setting can help: {} live + {} asked for = {} is {} more than {}{}",
                Human(a.requested),
                Human(a.asked),
                Human(needed),
                Human(needed - limit.high),
                Human(limit.high),
                if limit.given { "" } else { ", which no limit of this recording exceeds" },
            ));
            verdict.cause = self.capacity_cause();
            if verdict.cause == Cause::AbsurdRequest {
                verdict.why.push(super::unproved::ABSURD.to_owned());
            }
        } else if let Some((cause, bytes)) = self.proved_cause(&mut verdict.why) {
            verdict.cause = cause;
            // Less than what is missing can decide only together with how blocks happen to lie.
            verdict.confidence = if bytes >= self.missing() { 0.95 } else { 0.8 };
        } else if self.recorded && limit.given && self.refused_within_limit() {
            verdict.cause = Cause::RefusedAlthoughFree;
            verdict.confidence = 0.7;
            verdict.why.push(format!(
                "{} reserved + {} asked of the driver is within the {} given, and {} was free on the \
                 card: the model would have allocated it, so that either the limit was another one or \
                 the allocator is at fault",
                Human(a.reserved),
                Human(a.segment),
                Human(limit.low),
                Human(a.device_free.unwrap_or(0))
            ));
        } else if needed <= limit.low {
            verdict.cause = Cause::Fragmentation;
            verdict.why.push(format!(
                "{} live + {} asked for = {} would fit into {}; {} of what is held is free, but in \
                 pieces of at most {} where the request may go",
                Human(a.requested),
                Human(a.asked),
                Human(needed),
                Human(limit.low),
                Human(a.free()),
                Human(a.largest_own)
            ));
        } else {
            verdict.cause = self.capacity_cause();
            verdict.confidence = 0.75;
            verdict.why.push(format!(
                "{} live + {} asked for = {} does not fit into {}, the least that the limit can have \
                 been; it can have been up to {}, and from {} on fragmentation is to blame (say which \
                 with --capacity)",
                Human(a.requested),
                Human(a.asked),
                Human(needed),
                Human(limit.low),
                Human(limit.high),
                Human(needed)
            ));
        }
        self.fragments(&mut verdict);
        verdict
    }

    /// The first reason: where the bytes were.
    fn numbers(&self) -> Vec<String> {
        let a = &self.account;
        let mut why = vec![format!(
            "when the request came, {} was allocated ({} requested), {} reserved; {} was asked of the \
             driver for a request of {}",
            Human(a.allocated),
            Human(a.requested),
            Human(a.reserved),
            Human(a.segment),
            Human(a.asked)
        )];
        if let Some(free) = a.device_free.filter(|_| self.recorded) {
            why.push(if self.card_had_room() {
                format!(
                    "{} was free on the card, more than was asked: a limit on the process refused, \
                     not the card",
                    Human(free)
                )
            } else {
                format!("the driver had {} free, less than was asked", Human(free))
            });
        }
        why
    }

    /// The cause where live bytes and request do not fit.
    fn capacity_cause(&self) -> Cause {
        let a = &self.account;
        let others = self.held_by_others().filter(|o| *o > CONTEXT && !self.card_had_room());
        if Cause::is_absurd(a.asked, self.bench.total) {
            return Cause::AbsurdRequest;
        }
        if a.asked > self.limit.high {
            return Cause::RequestLargerThanCard;
        }
        let alone = self.bench.total.is_some_and(|t| a.needed() <= t.saturating_sub(CONTEXT));
        if others.is_some() && alone {
            return Cause::OtherProcess;
        }
        if self.recorded && self.card_had_room() {
            return Cause::MemoryLimit;
        }
        Cause::TrueCapacity
    }

    /// A cause that a replay without it takes away.
    fn proved_cause(&self, why: &mut Vec<String>) -> Option<(Cause, u64)> {
        let a = &self.account;
        let limit = Some(self.limit.low);
        if a.free_private > 0 {
            let merged = change::merged(self.program);
            let trial = self.bench.run(&merged, self.config, limit);
            if trial.passes {
                why.push(format!(
                    "{} is free in private pools, where this request may not go; with one pool for \
                     all, {}",
                    Human(a.free_private),
                    trial.says()
                ));
                return Some((Cause::PrivatePools, a.free_private));
            }
        }
        if a.pending > 0 {
            let completed = change::completed(self.program);
            let trial = self.bench.run(&completed, self.config, limit);
            if trial.passes {
                why.push(format!(
                    "{} was given back but waits for other streams; if nothing waited, {}",
                    Human(a.pending),
                    trial.says()
                ));
                return Some((Cause::PendingFree, a.pending));
            }
        }
        None
    }

    fn refused_within_limit(&self) -> bool {
        let a = &self.account;
        a.reserved.saturating_add(a.segment) <= self.limit.low && self.card_had_room()
    }

    /// Bytes that would have to come free for the driver to serve the request.
    fn missing(&self) -> u64 {
        let a = &self.account;
        a.reserved.saturating_add(a.segment).saturating_sub(self.limit.low)
    }

    /// What fragmentation is good for, whether it is the cause or not.
    fn fragments(&self, verdict: &mut Verdict) {
        let stuck: u64 = self.pinned.iter().map(|s| s.free).sum();
        if stuck == 0 {
            return;
        }
        let held: u64 = self.pinned.iter().map(|s| s.size - s.free).sum();
        let is_cause = verdict.cause == Cause::Fragmentation;
        let mut line = format!(
            "fragmentation: {} in {} segments is free but stays, held by {} in {} blocks",
            Human(stuck),
            self.pinned.len(),
            Human(held),
            self.pinned.iter().map(|s| s.blocks.len()).sum::<usize>()
        );
        if let Some(place) = self.pinned.first().and_then(|s| s.blocks.first()).map(|b| &b.place) {
            let _ = write!(line, " (most of it allocated at {place})");
        }
        if !is_cause {
            verdict.contributing.push((Cause::Fragmentation, stuck));
            let (missing, low) = (self.missing(), self.limit.low);
            let without = self.account.needed().saturating_sub(low);
            if without > 0 {
                let _ = write!(
                    line,
                    "; {} is missing under {}, and without any of it {} still would be: it is a part \
                     of it and not the cause",
                    Human(missing),
                    Human(low),
                    Human(without)
                );
            }
        }
        verdict.why.push(line);
    }
}
