//! Batch normalisation and CTC: sizes that are asked for with a handle.

use std::ffi::c_void;

use vramwise_workspaces::keys::{self, BatchNorm, Tensor};
use vramwise_workspaces::{batch_norm, ctc};

use super::real::real;
use super::sizes;
use crate::abi::put;

type Pointer = *mut c_void;

/// What a tensor descriptor was told, as cuDNN gives it back; empty for null.
pub(super) fn tensor(descriptor: Pointer) -> Tensor {
    let (mut data_type, mut rank) = (0i32, 0i32);
    let (mut dimensions, mut strides) = ([0i32; 8], [0i32; 8]);
    if descriptor.is_null() {
        return Tensor::default();
    }
    let status = real!(c"cudnnGetTensorNdDescriptor"(
        descriptor => Pointer, 8 => i32, &raw mut data_type => *mut i32, &raw mut rank => *mut i32,
        dimensions.as_mut_ptr() => *mut i32, strides.as_mut_ptr() => *mut i32,
    ));
    if status != 0 {
        return Tensor::default();
    }
    let rank = usize::try_from(rank).unwrap_or(0).min(8);
    Tensor { data_type, dimensions: dimensions[..rank].to_vec(), strides: strides[..rank].to_vec() }
}

/// Gives a size: from the table, else from sums, else 0 and a remark.
fn answer(key: &str, sum: Option<u64>, bytes: *mut usize) -> i32 {
    let measured = sizes::table().and_then(|t| t.get(key)?.first().copied());
    let known = measured.or(sum);
    if known.is_none() {
        sizes::guessed(key);
    }
    put(bytes, known.unwrap_or(0) as usize);
    0
}

fn batch_norm_size(
    which: BatchNorm,
    mode: i32,
    operations: i32,
    x: Pointer,
    bytes: *mut usize,
) -> i32 {
    let x = tensor(x);
    // The sums were found for normalisation alone, without an activation.
    let sum = (operations == 0).then(|| batch_norm::workspace(which, &x)).flatten();
    answer(&keys::batch_norm(which, mode, operations, &x), sum, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    _handle: usize,
    mode: i32,
    operations: i32,
    x: Pointer,
    _z: Pointer,
    _y: Pointer,
    _scale: Pointer,
    _activation: Pointer,
    bytes: *mut usize,
) -> i32 {
    batch_norm_size(BatchNorm::Forward, mode, operations, x, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    _handle: usize,
    mode: i32,
    operations: i32,
    x: Pointer,
    _y: Pointer,
    _dy: Pointer,
    _dz: Pointer,
    _dx: Pointer,
    _scale: Pointer,
    _activation: Pointer,
    bytes: *mut usize,
) -> i32 {
    batch_norm_size(BatchNorm::Backward, mode, operations, x, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    _handle: usize,
    mode: i32,
    operations: i32,
    _activation: Pointer,
    x: Pointer,
    bytes: *mut usize,
) -> i32 {
    batch_norm_size(BatchNorm::Reserve, mode, operations, x, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetCTCLossWorkspaceSize(
    _handle: usize,
    probabilities: Pointer,
    gradients: Pointer,
    _labels: *const i32,
    label_lengths: *const i32,
    input_lengths: *const i32,
    algorithm: i32,
    _descriptor: Pointer,
    bytes: *mut usize,
) -> i32 {
    let probabilities = tensor(probabilities);
    let batch = probabilities.dimensions.get(1).map_or(0, |n| usize::try_from(*n).unwrap_or(0));
    let longest = |lengths: *const i32| {
        let read = crate::abi::bytes(lengths.cast(), if lengths.is_null() { 0 } else { batch * 4 });
        read.as_chunks::<4>().0.iter().map(|b| i32::from_ne_bytes(*b)).max().unwrap_or(-1)
    };
    let lengths = [longest(label_lengths), longest(input_lengths)];
    answer(&keys::ctc(algorithm, &probabilities, !gradients.is_null(), &lengths), None, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetCTCLossWorkspaceSize_v8(
    _handle: usize,
    algorithm: i32,
    descriptor: Pointer,
    probabilities: Pointer,
    gradients: Pointer,
    bytes: *mut usize,
) -> i32 {
    let mut n = [0i32; 4];
    let at: [*mut i32; 4] = n.each_mut().map(|i| &raw mut *i);
    let known = real!(c"cudnnGetCTCLossDescriptor_v9"(
        descriptor => Pointer, at[0] => *mut i32, at[1] => *mut i32, at[2] => *mut i32, at[3] => *mut i32,
    ));
    let longest = if known == 0 { n[3] } else { -1 };
    let x = tensor(probabilities);
    answer(
        &keys::ctc(algorithm, &x, !gradients.is_null(), &[longest]),
        ctc::workspace(algorithm, &x, longest),
        bytes,
    )
}
