//! Where the memory of the last misses came from: new, or recycled.

/// Pages of the last misses, older ones counting less.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    created: u64,
    recycled: u64,
}

impl Lately {
    /// Pages were created; `held` are held with them.
    pub(crate) fn create(&mut self, pages: u32, held: u64) {
        self.created += u64::from(pages);
        self.fade(held);
    }

    /// Pages were recycled.
    pub(crate) fn recycle(&mut self, pages: u32, held: u64) {
        self.recycled += u64::from(pages);
        self.fade(held);
    }

    /// What came before counts half once all comes to what is held.
    fn fade(&mut self, held: u64) {
        if self.created + self.recycled > held {
            self.created /= 2;
            self.recycled /= 2;
        }
    }

    /// Whether more than this share was recycled: sizes change then.
    pub(crate) fn is_varied(&self, above: f64) -> bool {
        self.recycled as f64 > (self.created + self.recycled) as f64 * above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_after_recycling_is_uniform_again() {
        let mut lately = Lately::default();
        assert!(!lately.is_varied(0.1));
        for _ in 0..20 {
            lately.create(8, 200);
        }
        assert!(!lately.is_varied(0.1));
        lately.recycle(24, 200);
        assert!(lately.is_varied(0.1));
        for _ in 0..40 {
            lately.create(8, 200);
        }
        assert!(!lately.is_varied(0.1));
    }
}
