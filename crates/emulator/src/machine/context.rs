//! What a CUDA context takes of the card, and when it grows: the driver loads modules at their first use.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Config;

/// Whether any context was made in this process, or in the one that it was forked from.
static STARTED: AtomicBool = AtomicBool::new(false);

/// As [`STARTED`] says.
pub(crate) fn started() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// The moments that a device profile has a figure for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The context is made.
    Init,
    /// The first kernel (or allocation by PyTorch) loads its module.
    FirstKernel,
    /// The first matrix product loads cuBLAS's.
    FirstProduct,
    /// The first convolution loads cuDNN's.
    FirstConvolution,
    /// The first factorisation loads cuSOLVER's.
    FirstFactorisation,
    /// Streams beside the default one.
    SideStream,
}

/// Names of the profile's steps, in its order, with what brings them about.
const STEPS: [(&str, Step); 6] = [
    ("after init", Step::Init),
    ("first tensor", Step::FirstKernel),
    ("matmul fp32", Step::FirstProduct),
    ("conv2d", Step::FirstConvolution),
    ("linalg", Step::FirstFactorisation),
    ("side stream matmul", Step::SideStream),
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    bytes: u64,
    /// What each step adds when it is reached.
    growth: [u64; STEPS.len()],
    reached: [bool; STEPS.len()],
}

impl Context {
    pub(crate) fn new(config: &Config) -> Self {
        let mut context = Self::default();
        if let Some(bytes) = config.context_bytes {
            context.growth[0] = bytes;
            return context;
        }
        let mut before = 0;
        for (name, device, reserved) in &config.profile.context_steps {
            let own = device.saturating_sub(*reserved);
            // Steps without a trigger of their own belong to the one before them.
            let step = STEPS.iter().rposition(|(n, _)| n == name);
            if let Some(i) = step {
                context.growth[i] = own.saturating_sub(before);
                before = before.max(own);
            }
        }
        context
    }

    /// Bytes that the context takes now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes note of a step; whether the context grew.
    pub(crate) fn reach(&mut self, step: Step) -> bool {
        STARTED.store(true, Ordering::Relaxed);
        let Some(i) = STEPS.iter().position(|(_, s)| *s == step) else { return false };
        if std::mem::replace(&mut self.reached[i], true) {
            return false;
        }
        self.bytes += self.growth[i];
        true
    }
}
