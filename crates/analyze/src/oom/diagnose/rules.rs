//! The rules for the caching allocator's error, in the order in which they are asked. Each looks at
//! the numbers for one cause, and is silent if they do not show it.

use vramwise_types::{GIB, Human, MIB};

use super::super::account::context_most;
use super::super::cause::Cause;
use super::super::event::Kind;
use super::super::knowledge as known;
use super::{Case, Diagnosis};

/// Cached bytes up to this part of the reserved ones are ordinary leftovers of rounding and small
/// blocks.
const LEFTOVERS: f64 = 0.05;
/// Of the cached bytes this part can be put to use at best.
const USABLE: f64 = 0.9;
/// Single allocations that Intel's drivers grant.
const XPU_SINGLE: u64 = 4 * GIB;

/// For a request that is printed as 2^63 bytes or more, or as less than none.
pub(super) fn beyond_numbers() -> Diagnosis {
    Diagnosis::new(
        Cause::AbsurdRequest,
        0.97,
        "the request is printed as a number that no size is (2^63 bytes or more, or less than none)",
    )
    .because("no setting, batch size or card helps; look for a negative size, a product of dimensions that should not be multiplied, or an index that overflowed")
}

pub(super) fn absurd(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    Cause::is_absurd(tried, case.account.total).then(|| {
        Diagnosis::new(Cause::AbsurdRequest, 0.97, format!("{} in one tensor", Human(tried)))
            .because("no setting, batch size or card helps; look for a product of dimensions that should not be multiplied, or an index that overflowed")
    })
}

pub(super) fn memory_limit(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    let allowed = a.allowed?;
    let reserved = a.reserved.unwrap_or(0);
    let total = a.total.unwrap_or(u64::MAX);
    // A limit of the whole card (or an absurd one) limits nothing.
    if allowed >= total || reserved.saturating_add(tried) <= allowed {
        return None;
    }
    let enough_free = a.free.is_some_and(|f| f >= tried);
    let limit = Diagnosis::new(
        Cause::MemoryLimit,
        if enough_free { 0.95 } else { 0.75 },
        format!(
            "{} reserved + {} asked for = {} is more than the {} that this process is allowed",
            Human(reserved),
            Human(tried),
            Human(reserved.saturating_add(tried)),
            Human(allowed)
        ),
    );
    let limit = match a.free {
        Some(free) if enough_free => {
            limit.because(format!("{} is free on the card all the same", Human(free)))
        }
        Some(free) => limit.because(format!(
            "only {} is free on the card, so lifting the limit alone would not do",
            Human(free)
        )),
        None => limit,
    };
    Some(limit.fact(known::FRACTION))
}

/// More than the card has cannot lie on the card. Where it does lie is known only where the driver's way
/// of moving allocations into system memory shows elsewhere in the text.
pub(super) fn more_than_card(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    let (total, held) = (a.total?, a.reserved.max(a.allocated)?);
    if held <= total.saturating_add(total / 50) {
        return None;
    }
    let excess = format!(
        "PyTorch holds {}, {} more than the {} that the card has",
        Human(held),
        Human(held - total),
        Human(total)
    );
    let needed = format!(
        "with the request, {} would be needed: no allocator setting can help",
        Human(held.saturating_add(tried))
    );
    let sign = if case.around.wsl {
        Some("the log is of WSL2, whose driver moves allocations into system memory")
    } else if case.around.windows {
        Some("the log is of Windows, whose driver moves allocations into system memory")
    } else if !a_sentinel_free(case) {
        Some(
            "the driver prints 2^64 bytes for a process, as under Windows and WSL2, where it moves allocations into system memory",
        )
    } else {
        None
    };
    Some(match sign {
        Some(sign) => Diagnosis::new(Cause::SystemMemorySpill, 0.85, excess)
            .because(sign)
            .because(needed)
            .fact(known::SPILL),
        None => [
            "moved into system memory by the driver (Windows, WSL2): the task manager's 'shared GPU memory' is then large, the run was slow before it failed, and nothing was free",
            "managed memory (cudaMallocManaged, an integrated GPU, a Grace superchip): the program or its library then chose it, and nvidia-smi shows less than PyTorch",
            "a total that is not the card's (a MIG slice, a virtual GPU, another device): nvidia-smi -L and torch.cuda.get_device_properties(0).total_memory then differ",
            "figures of two processes or cards in one text: each process's own log then agrees with itself",
        ]
        .into_iter()
        .fold(
            Diagnosis::new(Cause::MoreThanCard, 0.5, excess)
                .because(needed)
                .because("nothing in the text tells where the rest lies; what can be, and what tells it apart:"),
            Diagnosis::because,
        )
        .fact(known::SPILL),
    })
}

pub(super) fn larger_than_card(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let total = case.account.total?;
    if tried <= total {
        return None;
    }
    let found = Diagnosis::new(
        Cause::RequestLargerThanCard,
        0.97,
        format!("{} was asked for at once; the card has {} in all", Human(tried), Human(total)),
    )
    .because("even an empty card would refuse: no allocator setting can help");
    Some(match case.event.kind {
        Kind::Hip if tried < 2 * total && case.account.allocated == Some(0) => {
            Diagnosis { confidence: 0.8, ..found }.fact(known::APU_MEMORY)
        }
        _ => found,
    })
}

pub(super) fn single_allocation(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    if case.event.kind != Kind::Xpu || tried < XPU_SINGLE {
        return None;
    }
    let total = a.total?;
    let held = a.reserved.unwrap_or(0);
    let room = a.free.unwrap_or_else(|| total.saturating_sub(held));
    (room >= tried).then(|| {
        Diagnosis::new(
            Cause::SingleAllocationLimit,
            if held == 0 { 0.8 } else { 0.6 },
            format!(
                "{} was asked for at once, {} of {} is held by PyTorch",
                Human(tried),
                Human(held),
                Human(total)
            ),
        )
        .fact(known::XPU_SINGLE)
    })
}

pub(super) fn refused_although_free(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    let total = a.total?;
    let free = match a.free {
        Some(free) => free,
        // Without the figure: what PyTorch does not hold, a generous context aside.
        None => total.saturating_sub(a.reserved?).saturating_sub(context_most(total)),
    };
    // The driver cannot give out the very last of what it reports.
    let margin = a.slop.max(total / 50).max(64 * MIB);
    if free < tried.saturating_add(margin) {
        return None;
    }
    let found = Diagnosis::new(
        Cause::RefusedAlthoughFree,
        if a.free.is_some() { 0.6 } else { 0.4 },
        match a.free {
            Some(_) => format!("{} is reported free, {} was asked for", Human(free), Human(tried)),
            None => format!("PyTorch holds {} of {}, and {} was asked for", Human(a.reserved.unwrap_or(0)), Human(total), Human(tried)),
        },
    )
    .because("the figures are read after the failure: another process may have freed memory in between, or something that the figures do not show limits this process (a container, a virtual GPU, address space, system memory under WSL2)");
    let found = if case.around.vgpu {
        found.because(
            "the log speaks of a virtual GPU or a MIG slice, whose share of the card is smaller",
        )
    } else {
        found
    };
    Some(if case.around.wsl || case.around.windows || !a_sentinel_free(case) {
        found.fact(known::SPILL)
    } else {
        found
    })
}

fn a_sentinel_free(case: &Case<'_>) -> bool {
    case.event.numbers.impossible.is_empty()
}

/// Without the figure of what is free, only the card's size can prove that the request does not fit.
pub(super) fn free_not_told(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    let (None, Some(total), Some(allocated), Some(reserved), Some(cached)) =
        (a.free, a.total, a.allocated, a.reserved, a.cached)
    else {
        return None;
    };
    let needed = allocated.saturating_add(tried);
    let sum = format!(
        "{} live + {} asked for = {}, the card has {}",
        Human(allocated),
        Human(tried),
        Human(needed),
        Human(total)
    );
    let found = if needed > total.saturating_add(a.slop) {
        Diagnosis::new(Cause::TrueCapacity, 0.95, sum)
            .because("even with every cached byte won back the card is too small: no allocator setting can help")
    } else {
        Diagnosis::new(Cause::TrueCapacity, 0.5, sum)
            .because(format!(
                "the text does not say how much of the card is free: at most the {} that PyTorch does not reserve, less what the context, libraries and other programs hold",
                Human(total.saturating_sub(reserved))
            ))
            .because(format!(
                "fragmentation is not excluded: {} is cached by PyTorch and unused",
                Human(cached)
            ))
    };
    Some(shape_of_request(case, found, tried, allocated, total))
}

pub(super) fn fragmentation(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    let (cached, reserved) = (a.cached?, a.reserved?);
    let lacking = tried.saturating_sub(a.free.unwrap_or(0));
    let part = cached as f64 / (reserved.max(1)) as f64;
    let needed = lacking as f64 / (cached.max(1)) as f64;
    if part < LEFTOVERS || needed > USABLE || cached == 0 {
        return None;
    }
    let free = a.free.unwrap_or(0);
    let confidence = match needed {
        n if n <= 0.5 => 0.85,
        n if n <= 0.8 => 0.75,
        _ => 0.6,
    };
    Some(
        Diagnosis::new(
            Cause::Fragmentation,
            confidence,
            if a.free.is_some() {
                format!(
                    "{} free + {} cached by PyTorch and unused = {}, more than the {} asked for",
                    Human(free), Human(cached), Human(free.saturating_add(cached)), Human(tried)
                )
            } else {
                format!(
                    "{} cached by PyTorch and unused is more than the {} asked for; the text does not say how much of the card is free",
                    Human(cached), Human(tried)
                )
            },
        )
        .because(format!(
            "{:.0} % of what PyTorch reserves is unused, and it remained after PyTorch had given back every wholly free segment: it lies between live blocks",
            part * 100.0
        ))
        .fact(known::CACHE_IS_FLUSHED),
    )
}

pub(super) fn private_pools(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    let slack = a.slack()?;
    let with = slack.saturating_add(a.private);
    (a.private > 0 && with >= tried && slack < tried && a.private >= 64 * MIB).then(|| {
        Diagnosis::new(
            Cause::PrivatePools,
            0.65,
            format!(
                "{} free + {} cached = {} is less than the {} asked for; with the {} that lies unused in private pools it would be enough",
                Human(a.free.unwrap_or(0)), Human(a.cached.unwrap_or(0)), Human(slack), Human(tried), Human(a.private)
            ),
        )
        .fact(known::PRIVATE_POOLS)
    })
}

pub(super) fn capacity(case: &Case<'_>, tried: u64) -> Option<Diagnosis> {
    let a = &case.account;
    let total = a.total?;
    let (Some(slack), Some(allocated)) = (a.slack(), a.allocated) else {
        // A text that was cut off: the free memory alone may tell.
        let free = a.free?;
        return (free < tried).then(|| {
            Diagnosis::new(
                Cause::Unknown,
                0.5,
                format!("{} was asked for, {} of {} is free; the text is cut off before it says what PyTorch holds", Human(tried), Human(free), Human(total)),
            )
            .because("either the card is too small or the cache is fragmented: the rest of the text would tell")
        });
    };
    let found = match a.shortfall() {
        Some(short) => Diagnosis::new(
            Cause::TrueCapacity,
            if short > a.slop { 0.95 } else { 0.8 },
            format!(
                "no allocator setting can help: slack is {}, the request {}",
                Human(slack),
                Human(tried)
            ),
        )
        .because(format!(
            "slack = {} free + {} cached by PyTorch and unused; {} is missing",
            Human(a.free.unwrap_or(0)),
            Human(slack - a.free.unwrap_or(0)),
            Human(short)
        )),
        None if a.free.is_some_and(|free| free > total / 20) => Diagnosis::new(
            Cause::TrueCapacity,
            0.7,
            format!(
                "the request is larger than what is free: {} live + {} asked for = {}, the card has {} for everything",
                Human(allocated),
                Human(tried),
                Human(allocated.saturating_add(tried)),
                Human(total)
            ),
        )
        .because(format!(
            "with nearly all of the {} cached won back it would just fit; pieces that make up {:.1} % of what PyTorch reserves are ordinary leftovers",
            Human(a.cached.unwrap_or(0)),
            a.cached.unwrap_or(0) as f64 / a.reserved.unwrap_or(0).max(1) as f64 * 100.0
        )),
        None => Diagnosis::new(
            Cause::TrueCapacity,
            0.85,
            format!(
                "the card is full of live memory; the {} free and the {} cached ({:.1} % of what PyTorch reserves) are ordinary leftovers, and winning them back would postpone the error, not avoid it",
                Human(a.free.unwrap_or(0)),
                Human(a.cached.unwrap_or(0)),
                a.cached.unwrap_or(0) as f64 / a.reserved.unwrap_or(0).max(1) as f64 * 100.0
            ),
        ),
    };
    Some(shape_of_request(case, found, tried, allocated, total))
}

/// What the size of the request says.
fn shape_of_request(
    case: &Case<'_>,
    found: Diagnosis,
    tried: u64,
    allocated: u64,
    total: u64,
) -> Diagnosis {
    let found = if tried > total / 3 {
        found.because(format!(
            "this one request is {:.0} % of the whole card",
            tried as f64 / total.max(1) as f64 * 100.0
        ))
    } else {
        found
    };
    let found = match (case.account.outside, case.account.free) {
        (Some(outside), Some(free)) => found.because(format!(
            "{} total = {} live + {} cached + {} free + {} outside PyTorch (context, libraries, other programs)",
            Human(total),
            Human(allocated),
            Human(case.account.cached.unwrap_or(0)),
            Human(free),
            Human(outside)
        )),
        _ => found,
    };
    let copy = allocated > GIB && tried.abs_diff(allocated) <= allocated / 50;
    let found = if copy {
        found.because("the request is as large as everything that is live: something is being copied whole (a cast, a clone, a gather)")
    } else {
        found
    };
    match case.phase {
        Some((phase, word)) => found
            .because(format!("it happened during {} ('{word}' in the traceback)", phase.words())),
        None => found,
    }
}
