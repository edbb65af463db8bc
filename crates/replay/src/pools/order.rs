//! Where one release call ends and the next begins (specification §5.6).

/// The order inside one call: default large, default small, then per private pool small, large.
#[derive(Clone, Debug, Default)]
pub(super) struct CallOrder {
    last: Option<(u32, bool)>,
    /// Private pools of the current call.
    pools: Vec<u32>,
}

impl CallOrder {
    /// Adds a part; says whether it begins a new call.
    pub(super) fn push(&mut self, pool: u32, small: bool) -> bool {
        let fits = match (self.last, pool) {
            (None, _) => false,
            (Some((0, was_small)), 0) => !was_small && small,
            (Some(_), 0) => false,
            (Some((last, was_small)), _) if last == pool => was_small && !small,
            (Some(_), _) => !self.pools.contains(&pool),
        };
        if !fits {
            self.pools.clear();
        }
        if pool != 0 {
            self.pools.push(pool);
        }
        self.last = Some((pool, small));
        !fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_releases_default_large_then_small_then_private_small_then_large() {
        let mut order = CallOrder::default();
        let parts = [(0, false), (0, true), (2, true), (2, false), (1, false)];
        let new: Vec<bool> = parts.iter().map(|(p, s)| order.push(*p, *s)).collect();
        assert_eq!(new, [true, false, false, false, false]);
        assert!(order.push(2, true), "a pool comes once in a call");
        assert!(order.push(0, false));
        assert!(order.push(0, false), "default large again is another call");
    }
}
