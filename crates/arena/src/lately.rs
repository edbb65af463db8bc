//! Where the memory of the last misses came from: new, or recycled.

/// Pages of the last misses, older ones counting less.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    created: u64,
    recycled: u64,
}

impl Lately {
    /// Pages were created or recycled. What came before counts half once they come to what is held.
    pub(crate) fn note(&mut self, created: u32, recycled: u32, held: u64) {
        self.created += u64::from(created);
        self.recycled += u64::from(recycled);
        if self.created + self.recycled > held {
            self.created /= 2;
            self.recycled /= 2;
        }
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
    fn growth_after_recycling_is_uniform_again() {
        let mut lately = Lately::default();
        assert!(!lately.is_varied());
        for _ in 0..20 {
            lately.note(8, 0, 200);
        }
        assert!(!lately.is_varied());
        lately.note(0, 24, 200);
        assert!(lately.is_varied());
        for _ in 0..40 {
            lately.note(8, 0, 200);
        }
        assert!(!lately.is_varied());
    }
}
