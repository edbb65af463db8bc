//! What blocks are for: parameters, gradients, optimizer state, activations, temporaries, workspaces.
//!
//! A snapshot does not say. It is inferred from the stack that allocated a block, from what the
//! annotations of optimizers say, and from when the block was freed; rules of the user come before all
//! of that. The rule that decided is kept with each answer, and what no rule covers is `unknown`.

mod custom;
mod infer;

pub use custom::{CustomRule, SizeRange};
pub(super) use infer::Classifier;

/// The categories that are inferred; the user's rules may name others.
pub const CATEGORIES: [&str; 7] = [
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "temporaries",
    "workspaces",
    "unknown",
];

/// A category and the rule that decided for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Decision {
    /// The category.
    pub(crate) category: String,
    /// Why, in a few words.
    pub(crate) rule: String,
}

impl Decision {
    pub(super) fn new(category: &str, rule: &str) -> Self {
        Self { category: category.to_owned(), rule: rule.to_owned() }
    }
}

#[cfg(test)]
mod tests;
