//! cuDNN without a device.
//!
//! Descriptors are the real library's own: calls that describe something are passed on to it, with its documented
//! means of working without a device (a description of the device in place of a library handle). What needs a device is
//! answered here: handles are numbers, computations do nothing, and the sizes that cuDNN would have asked for come from
//! a table that was measured on a real card, or, for what follows from shapes alone, from sums.
//!
//! - [`backend`]: operation graphs, heuristics and plans
//! - [`plans`]: which workspace a plan has, without any C in it
//! - [`sizes`]: the table, and the count of what it knew
//! - [`norm`], [`rnn`], [`dropout`]: sizes that are asked for with a handle
//! - [`settings`]: what PyTorch was told about choosing
//! - [`real`]: the real library

mod backend;
mod dropout;
mod norm;
mod plans;
mod real;
mod rnn;
mod settings;
mod sizes;

pub(crate) use sizes::report;

use crate::abi::put;
use crate::machine::{self, Step};
use crate::runtime::KERNEL_NS;
use crate::stub;

/// `CUDNN_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 3000;

static STREAMS: std::sync::Mutex<Option<rustc_hash::FxHashMap<usize, usize>>> =
    std::sync::Mutex::new(None);

fn streams(act: impl FnOnce(&mut rustc_hash::FxHashMap<usize, usize>)) {
    act(STREAMS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert_default());
}

#[unsafe(no_mangle)]
extern "C" fn cudnnCreate(to: *mut usize) -> i32 {
    let device = machine::current_device();
    machine::lock().reach(device, Step::Init);
    put(to, stub::new_handle());
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudnnDestroy(handle: usize) -> i32 {
    streams(|s| {
        s.remove(&handle);
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetStream(handle: usize, stream: usize) -> i32 {
    streams(|s| {
        s.insert(handle, stream);
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetStream(handle: usize, to: *mut usize) -> i32 {
    streams(|s| put(to, s.get(&handle).copied().unwrap_or(0)));
    0
}

/// Whether sizes were measured on this card.
pub(crate) fn is_measured_card() -> bool {
    sizes::table().is_some()
}

/// A computation of `ns` virtual nanoseconds.
fn compute(ns: u64) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    machine.reach(device, Step::FirstKernel);
    machine.reach(device, Step::FirstConvolution);
    machine.kernel(ns + KERNEL_NS);
    0
}

/// Computations of the older interface. All arguments are left alone.
macro_rules! exported {
    ($name:ident, compute) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> i32 {
            compute(0)
        }
    };
    ($name:ident, unsupported) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> i32 {
            sizes::unsupported(stringify!($name))
        }
    };
}

exported!(cudnnBatchNormalizationForwardTrainingEx, compute);
exported!(cudnnBatchNormalizationForwardTraining, compute);
exported!(cudnnBatchNormalizationForwardInference, compute);
exported!(cudnnBatchNormalizationBackwardEx, compute);
exported!(cudnnBatchNormalizationBackward, compute);
exported!(cudnnCTCLoss, compute);
exported!(cudnnCTCLoss_v8, compute);
exported!(cudnnPoolingForward, compute);
exported!(cudnnPoolingBackward, compute);
exported!(cudnnActivationForward, compute);
exported!(cudnnActivationBackward, compute);
exported!(cudnnSoftmaxForward, compute);
exported!(cudnnSoftmaxBackward, compute);
exported!(cudnnAddTensor, compute);
exported!(cudnnTransformTensor, compute);
exported!(cudnnRNNForward, compute);
exported!(cudnnRNNBackwardData_v8, compute);
exported!(cudnnRNNBackwardWeights_v8, compute);
exported!(cudnnSpatialTfGridGeneratorForward, compute);
exported!(cudnnSpatialTfGridGeneratorBackward, compute);
exported!(cudnnSpatialTfSamplerForward, compute);
exported!(cudnnSpatialTfSamplerBackward, compute);
exported!(cudnnConvolutionForward, compute);
exported!(cudnnConvolutionBiasActivationForward, compute);
exported!(cudnnConvolutionBackwardData, compute);
exported!(cudnnConvolutionBackwardFilter, compute);
// PyTorch asks these only where its use of the newer interface is switched off.
exported!(cudnnFindConvolutionForwardAlgorithmEx, unsupported);
exported!(cudnnFindConvolutionBackwardDataAlgorithmEx, unsupported);
exported!(cudnnFindConvolutionBackwardFilterAlgorithmEx, unsupported);
exported!(cudnnGetConvolutionForwardAlgorithm_v7, unsupported);
exported!(cudnnGetConvolutionBackwardDataAlgorithm_v7, unsupported);
exported!(cudnnGetConvolutionBackwardFilterAlgorithm_v7, unsupported);
exported!(cudnnGetConvolutionForwardWorkspaceSize, unsupported);
exported!(cudnnGetConvolutionBackwardDataWorkspaceSize, unsupported);
exported!(cudnnGetConvolutionBackwardFilterWorkspaceSize, unsupported);
