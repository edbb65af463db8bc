//! Where the memory of the last misses came from: new, or recycled.

/// Pages of the last misses, older ones counting less.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    created: u64,
    recycled: u64,
    /// All that ever were recycled.
    ever: u64,
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
        self.ever += u64::from(pages);
        self.fade(held);
    }

    /// What came before counts half once all comes to what is held.
    fn fade(&mut self, held: u64) {
        if self.created + self.recycled > held {
            self.created /= 2;
            self.recycled /= 2;
        }
    }

    /// Whether at most half of what is `held` was ever recycled: the program still grows into its memory.
    pub(crate) fn is_young(&self, held: u64) -> bool {
        self.ever * 2 <= held
    }

    /// Whether more than a tenth was recycled: sizes change then.
    pub(crate) fn is_varied(&self) -> bool {
        self.recycled * 10 > self.created + self.recycled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recycled_once_is_not_forgotten() {
        let mut lately = Lately::default();
        lately.recycle(50, 100);
        assert!(lately.is_young(100));
        lately.recycle(1, 100);
        assert!(!lately.is_young(100) && lately.is_young(200));
        lately.create(400, 500);
        assert!(!lately.is_young(100));
    }

    #[test]
    fn growth_after_recycling_is_uniform_again() {
        let mut lately = Lately::default();
        assert!(!lately.is_varied());
        for _ in 0..20 {
            lately.create(8, 200);
        }
        assert!(!lately.is_varied());
        lately.recycle(24, 200);
        assert!(lately.is_varied());
        for _ in 0..40 {
            lately.create(8, 200);
        }
        assert!(!lately.is_varied());
    }
}
