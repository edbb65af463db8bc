//! Rules that users write for their own programs.

/// A rule; everything that it names must hold. The first of several rules that holds decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomRule {
    /// The category that it puts blocks into; any name.
    pub category: String,
    /// A part of some frame, written `file:line function`.
    pub frame: Option<String>,
    /// A part of the name of an annotation that was open when the block was allocated.
    pub annotation: Option<String>,
    /// Sizes.
    pub size: SizeRange,
}

/// Requested bytes from one size to another, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeRange {
    /// At least so many.
    pub least: Option<u64>,
    /// At most so many.
    pub most: Option<u64>,
}

impl SizeRange {
    pub(super) fn contains(self, bytes: u64) -> bool {
        self.least.is_none_or(|least| bytes >= least) && self.most.is_none_or(|most| bytes <= most)
    }
}

impl CustomRule {
    /// Whether it says anything about stacks or annotations.
    pub(super) fn holds<'a>(
        &self,
        bytes: u64,
        mut frames: impl Iterator<Item = &'a str>,
        mut annotations: impl Iterator<Item = &'a str>,
    ) -> bool {
        self.size.contains(bytes)
            && self.frame.as_ref().is_none_or(|part| frames.any(|f| f.contains(part.as_str())))
            && self
                .annotation
                .as_ref()
                .is_none_or(|part| annotations.any(|a| a.contains(part.as_str())))
    }

    /// The rule in words.
    pub(super) fn words(&self) -> String {
        let mut words = Vec::new();
        if let Some(frame) = &self.frame {
            words.push(format!("frame has \"{frame}\""));
        }
        if let Some(annotation) = &self.annotation {
            words.push(format!("annotation has \"{annotation}\""));
        }
        if let Some(least) = self.size.least {
            words.push(format!("at least {least} bytes"));
        }
        if let Some(most) = self.size.most {
            words.push(format!("at most {most} bytes"));
        }
        format!("your rule: {}", words.join(", "))
    }
}
