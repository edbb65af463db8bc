//! Where the figures of a device come from: a replay, or the history alone.

use std::collections::BTreeMap;

use super::alone::Alone;
use super::curve::{Column, Curve};
use super::replayed::Replayed;
use super::state::State;

/// Where figures come from.
pub(super) enum Source<'a> {
    Replay(Box<Replayed<'a>>),
    Alone(Box<Alone<'a>>),
}

/// A moment to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// A step of the source's curve.
    Step(usize),
    /// The snapshot's own state.
    End,
    /// Before everything.
    Start,
}

impl Source<'_> {
    pub(super) fn curve(&self) -> (&Curve, &[Column]) {
        match self {
            Source::Replay(r) => (&r.curve, &r.timeline),
            Source::Alone(a) => (&a.curve, &a.timeline),
        }
    }

    pub(super) fn event_of(&self, step: usize) -> usize {
        match self {
            Source::Replay(r) => r.event_of(step),
            Source::Alone(_) => step.saturating_sub(1),
        }
    }

    pub(super) fn moment_at(&self, event: usize) -> Moment {
        match self {
            Source::Replay(r) => r.op_at(event).map_or(Moment::Start, Moment::Step),
            Source::Alone(_) => Moment::Step(event + 1),
        }
    }

    /// The states after these steps.
    pub(super) fn states(&self, steps: &[usize]) -> BTreeMap<usize, State> {
        match self {
            Source::Replay(r) => r.states(steps.iter().copied()),
            Source::Alone(a) => steps.iter().map(|s| (*s, a.state_after(*s))).collect(),
        }
    }
}
