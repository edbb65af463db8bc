//! The rules for memory of the card that PyTorch's allocator does not hold: of other processes, and of
//! this one.

use vramwise_types::{GIB, Human, MIB};

use super::super::account::context_most;
use super::super::cause::Cause;
use super::super::knowledge as known;
use super::{Case, Diagnosis};

pub(super) fn other_process(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    let (total, others) = (a.total?, a.others_estimate()?);
    let cached = a.cached.unwrap_or(0);
    // Without any process a request of this size has to fit; beyond that the card is at fault as
    // well.
    let missing = tried.saturating_sub(a.free.unwrap_or(0)).saturating_sub(cached);
    let large = others >= GIB.max(total / 10) && others > cached / 2 * 3;
    let decisive = a.others.is_some_and(|o| o >= missing && missing > 0 && o >= 256 * MIB)
        && cached < missing.max(tried);
    if others < missing || !(large || decisive) {
        return None;
    }
    let found = Diagnosis::new(
        Cause::OtherProcess,
        match (a.own, a.others) {
            (Some(_), _) => 0.9,
            (None, Some(_)) => 0.8,
            (None, None) => 0.7,
        },
        match (a.own, a.reserved) {
            (Some(own), _) => format!(
                "{} total - {} free - {} of this process = {} held by other processes",
                Human(total), Human(a.free.unwrap_or(0)), Human(own), Human(others)
            ),
            (None, reserved) => format!(
                "{} total - {} free - {} reserved by PyTorch = {}; a context explains up to {}, the other {} is somebody else's",
                Human(total), Human(a.free.unwrap_or(0)), Human(reserved.unwrap_or(0)), Human(a.outside.unwrap_or(0)),
                Human(context_most(total)), Human(others)
            ),
        },
    )
    .because(if missing > 0 {
        format!("the request lacks {}; without the other processes it would fit", Human(missing))
    } else {
        "what is left of the card is too little for the driver to give out; without the other processes the request would fit".to_owned()
    });
    let found = if case.around.data_parallel {
        found.because("DataParallel gathers on the first device; its other replicas' memory is this process's own and not meant here")
    } else {
        found
    };
    let found = if a.own.is_none() && a.others.is_none() {
        found.because("the text does not say what this process holds in all: memory of this process outside PyTorch's allocator (another library, NCCL, an extension) would look the same; nvidia-smi tells the two apart")
    } else {
        found
    };
    Some(found.fact(known::CONTEXT).fact(known::NVIDIA_SMI))
}

/// This process holds much more than PyTorch reserves and a context needs, and without that the
/// request would fit.
pub(super) fn own_outside(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    let (total, own, outside) = (a.total?, a.own?, a.own_outside_pytorch()?);
    let beyond = outside.saturating_sub(context_most(total));
    let cached = a.cached.unwrap_or(0);
    let missing = tried.saturating_sub(a.free.unwrap_or(0)).saturating_sub(cached);
    // No process can hold more than the card has: the figure is then something else.
    if beyond < GIB.max(total / 10)
        || beyond <= cached / 2 * 3
        || beyond < missing
        || own > total.saturating_add(a.slop)
    {
        return None;
    }
    Some(
        Diagnosis::new(
            Cause::OwnOutsidePytorch,
            0.9,
            format!(
                "{} of this process - {} reserved by PyTorch = {} outside its allocator; a context explains up to {}",
                Human(own), Human(a.reserved.unwrap_or(0)), Human(outside), Human(context_most(total))
            ),
        )
        .because(if missing > 0 {
            format!("the request lacks {}; without the other {} it would fit", Human(missing), Human(beyond))
        } else {
            format!("without the other {} the request would fit", Human(beyond))
        })
        .fact(known::DIRECT_USERS),
    )
}
