//! Batch normalisation and CTC: sizes that are asked for with a library handle.

use std::ffi::c_void;

use vramwise_workspaces::keys::{self, BatchNorm, Tensor};

use crate::real::real;
use crate::record::state;

type Pointer = *mut c_void;

/// What a tensor descriptor was told, as cuDNN gives it back; empty for null.
pub(crate) fn tensor(descriptor: Pointer) -> Tensor {
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

fn note(status: i32, bytes: *const usize, key: impl FnOnce() -> String) -> i32 {
    if status == 0 && !bytes.is_null() {
        // SAFETY: the library has just written it.
        let size = unsafe { *bytes };
        let key = key();
        state().size(key, vec![size as u64]);
    }
    status
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    handle: Pointer,
    mode: i32,
    operations: i32,
    x: Pointer,
    z: Pointer,
    y: Pointer,
    scale: Pointer,
    activation: Pointer,
    bytes: *mut usize,
) -> i32 {
    let status = real!(c"cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize"(
        handle => Pointer, mode => i32, operations => i32, x => Pointer, z => Pointer, y => Pointer,
        scale => Pointer, activation => Pointer, bytes => *mut usize,
    ));
    note(status, bytes, || keys::batch_norm(BatchNorm::Forward, mode, operations, &tensor(x)))
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    handle: Pointer,
    mode: i32,
    operations: i32,
    x: Pointer,
    y: Pointer,
    dy: Pointer,
    dz: Pointer,
    dx: Pointer,
    scale: Pointer,
    activation: Pointer,
    bytes: *mut usize,
) -> i32 {
    let status = real!(c"cudnnGetBatchNormalizationBackwardExWorkspaceSize"(
        handle => Pointer, mode => i32, operations => i32, x => Pointer, y => Pointer, dy => Pointer, dz => Pointer,
        dx => Pointer, scale => Pointer, activation => Pointer, bytes => *mut usize,
    ));
    note(status, bytes, || keys::batch_norm(BatchNorm::Backward, mode, operations, &tensor(x)))
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    handle: Pointer,
    mode: i32,
    operations: i32,
    activation: Pointer,
    x: Pointer,
    bytes: *mut usize,
) -> i32 {
    let status = real!(c"cudnnGetBatchNormalizationTrainingExReserveSpaceSize"(
        handle => Pointer, mode => i32, operations => i32, activation => Pointer, x => Pointer, bytes => *mut usize,
    ));
    note(status, bytes, || keys::batch_norm(BatchNorm::Reserve, mode, operations, &tensor(x)))
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetCTCLossWorkspaceSize(
    handle: Pointer,
    probabilities: Pointer,
    gradients: Pointer,
    labels: *const i32,
    label_lengths: *const i32,
    input_lengths: *const i32,
    algorithm: i32,
    descriptor: Pointer,
    bytes: *mut usize,
) -> i32 {
    let status = real!(c"cudnnGetCTCLossWorkspaceSize"(
        handle => Pointer, probabilities => Pointer, gradients => Pointer, labels => *const i32,
        label_lengths => *const i32, input_lengths => *const i32, algorithm => i32, descriptor => Pointer,
        bytes => *mut usize,
    ));
    note(status, bytes, || {
        let probabilities = tensor(probabilities);
        let batch = probabilities.dimensions.get(1).map_or(0, |n| usize::try_from(*n).unwrap_or(0));
        let longest = |lengths: *const i32| {
            if lengths.is_null() {
                return -1;
            }
            // SAFETY: one length for each sequence of the batch, as documented.
            unsafe { std::slice::from_raw_parts(lengths, batch) }
                .iter()
                .copied()
                .max()
                .unwrap_or(-1)
        };
        let lengths = [longest(label_lengths), longest(input_lengths)];
        keys::ctc(algorithm, &probabilities, !gradients.is_null(), &lengths)
    })
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetCTCLossWorkspaceSize_v8(
    handle: Pointer,
    algorithm: i32,
    descriptor: Pointer,
    probabilities: Pointer,
    gradients: Pointer,
    bytes: *mut usize,
) -> i32 {
    let status = real!(c"cudnnGetCTCLossWorkspaceSize_v8"(
        handle => Pointer, algorithm => i32, descriptor => Pointer, probabilities => Pointer, gradients => Pointer,
        bytes => *mut usize,
    ));
    note(status, bytes, || {
        let mut n = [0i32; 4];
        let at: [*mut i32; 4] = n.each_mut().map(|i| &raw mut *i);
        let known = real!(c"cudnnGetCTCLossDescriptor_v9"(
            descriptor => Pointer, at[0] => *mut i32, at[1] => *mut i32, at[2] => *mut i32, at[3] => *mut i32,
        ));
        let longest = if known == 0 { n[3] } else { -1 };
        keys::ctc(algorithm, &tensor(probabilities), !gradients.is_null(), &[longest])
    })
}
