//! The arithmetic of one error: who holds what on the card.

use vramwise_types::{GIB, MIB};

use super::amount::Amount;
use super::event::Numbers;

/// Bytes by holder, as far as the numbers of an error tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) tried: Option<u64>,
    pub(super) total: Option<u64>,
    pub(super) free: Option<u64>,
    pub(super) allocated: Option<u64>,
    /// Reserved by PyTorch and not allocated.
    pub(super) cached: Option<u64>,
    pub(super) reserved: Option<u64>,
    pub(super) private: u64,
    pub(super) allowed: Option<u64>,
    /// What this process holds, PyTorch or not.
    pub(super) own: Option<u64>,
    /// This process was recognised among those listed as others.
    pub(super) own_listed_as_other: Option<u64>,
    /// Memory of other processes, where it follows from the list.
    pub(super) others: Option<u64>,
    /// On the card, neither free nor reserved by PyTorch in this process.
    pub(super) outside: Option<u64>,
    /// How far sums of these may be off.
    pub(super) slop: u64,
}

/// What a context and its libraries may hold: a fixed part and one that grows with the card
/// (workspaces, communication buffers). Above it somebody else must hold memory.
pub(super) fn context_most(total: u64) -> u64 {
    600 * MIB + total / 100 * 3
}

impl Account {
    pub(super) fn of(n: &Numbers) -> Self {
        let bytes = |a: Option<Amount>| a.map(|a| a.bytes);
        let slop = [n.tried, n.total, n.free, n.allocated, n.reserved, n.reserved_unallocated]
            .iter()
            .flatten()
            .fold(0_u64, |sum, a| sum.saturating_add(a.slop));
        let mut out = Self {
            tried: bytes(n.tried),
            total: bytes(n.total),
            free: bytes(n.free),
            allocated: bytes(n.allocated),
            cached: bytes(n.cached()),
            reserved: bytes(n.reserved_or_sum()),
            private: bytes(n.private_pools).unwrap_or(0),
            allowed: bytes(n.allowed),
            slop,
            ..Self::default()
        };
        out.outside = match (out.total, out.free, out.reserved) {
            (Some(t), Some(f), Some(r)) => t.checked_sub(f.saturating_add(r)),
            _ => None,
        };
        out.processes(n);
        out
    }

    fn processes(&mut self, n: &Numbers) {
        let listed: Vec<u64> = n.processes.iter().filter_map(|p| p.used.map(|u| u.bytes)).collect();
        let unknown = listed.len() < n.processes.len();
        let sum = listed.iter().fold(0_u64, |s, b| s.saturating_add(*b));
        let reserved = self.reserved.unwrap_or(0);
        // "0 bytes" means that the driver could not tell.
        self.own =
            n.process_in_use.map(|a| a.bytes).filter(|b| *b > 0 && *b + GIB / 50 >= reserved);
        if self.own.is_some() {
            self.others = (!unknown).then_some(sum);
            return;
        }
        // No sentence about this process: it may be one of those listed. It holds at least what
        // PyTorch reserves, and not much more.
        let most =
            reserved.saturating_add(context_most(self.total.unwrap_or(0))).saturating_add(GIB);
        // Another process cannot hold what the card has no room for beside PyTorch's part.
        let total =
            self.total.map(|total| total.saturating_add(self.slop).saturating_add(GIB / 50));
        let must_be_own =
            |b: u64| total.is_some_and(|total| b <= total && b.saturating_add(reserved) > total);
        let own = listed
            .iter()
            .copied()
            .filter(|b| {
                reserved > 0 && *b + GIB / 50 >= reserved && (*b <= most || must_be_own(*b))
            })
            .min_by_key(|b| b.abs_diff(reserved));
        if let Some(own) = own {
            self.own = Some(own);
            self.own_listed_as_other = Some(own);
            self.others = (!unknown).then(|| sum - own);
        } else if !listed.is_empty() && !unknown && reserved == 0 {
            self.others = Some(sum);
        }
    }

    /// Memory of other processes: listed, or what the card lacks beyond this process and a generous
    /// context.
    pub(super) fn others_estimate(&self) -> Option<u64> {
        if let (Some(total), Some(free), Some(own)) = (self.total, self.free, self.own) {
            return total.checked_sub(free.saturating_add(own));
        }
        let (outside, total) = (self.outside?, self.total?);
        Some(outside.saturating_sub(context_most(total)))
    }

    /// What this process holds outside PyTorch.
    pub(super) fn own_outside_pytorch(&self) -> Option<u64> {
        self.own?.checked_sub(self.reserved?)
    }

    /// Free on the card and cached by PyTorch together: the most that any allocator setting could
    /// give. Nothing where the text does not say how much is free.
    pub(super) fn slack(&self) -> Option<u64> {
        Some(self.free?.saturating_add(self.cached?))
    }

    /// By how much the request exceeds the slack.
    pub(super) fn shortfall(&self) -> Option<u64> {
        self.tried?.checked_sub(self.slack()?).filter(|s| *s > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::ProcessUse;
    use super::*;

    fn gib(hundredths: u64) -> Option<Amount> {
        Some(Amount { bytes: GIB * hundredths / 100, slop: GIB / 200 })
    }

    #[test]
    fn what_is_neither_free_nor_reserved_is_outside() {
        let n = Numbers {
            total: gib(1076),
            free: gib(3),
            allocated: gib(242),
            reserved: gib(275),
            ..Numbers::default()
        };
        let a = Account::of(&n);
        assert_eq!(a.outside.map(|b| b * 100 / GIB), Some(798));
        assert!(a.others_estimate().unwrap() > 6 * GIB);
    }

    #[test]
    fn a_process_in_a_container_is_recognised_by_its_size() {
        let listed = |hundredths| ProcessUse { pid: Some(1), used: gib(hundredths) };
        let n = Numbers {
            total: gib(2167),
            free: gib(25),
            allocated: gib(2008),
            reserved_unallocated: gib(6),
            processes: vec![listed(34), listed(2107)],
            ..Numbers::default()
        };
        let a = Account::of(&n);
        assert_eq!(a.own_listed_as_other, gib(2107).map(|a| a.bytes));
        assert_eq!(a.others, gib(34).map(|a| a.bytes));
    }

    #[test]
    fn zero_bytes_of_a_process_mean_unknown() {
        let n = Numbers {
            allocated: gib(1902),
            reserved_unallocated: gib(132),
            process_in_use: gib(0),
            ..Numbers::default()
        };
        assert_eq!(Account::of(&n).own, None);
    }
}
