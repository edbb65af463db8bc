//! Sizes of recurrent networks.

use std::ffi::c_void;

use vramwise_workspaces::keys::{self, Rnn, Sequences};

use crate::real::real;
use crate::record::state;

type Pointer = *mut c_void;

/// What a descriptor was told, as cuDNN gives it back.
fn describe(descriptor: Pointer) -> Option<Rnn> {
    let mut n = [0i32; 12];
    let mut dropout: Pointer = std::ptr::null_mut();
    let mut flags = 0u32;
    let at: [*mut i32; 12] = n.each_mut().map(|i| &raw mut *i);
    let status = real!(c"cudnnGetRNNDescriptor_v8"(
        descriptor => Pointer,
        at[0] => *mut i32, at[1] => *mut i32, at[2] => *mut i32, at[3] => *mut i32, at[4] => *mut i32,
        at[5] => *mut i32, at[6] => *mut i32, at[7] => *mut i32, at[8] => *mut i32, at[9] => *mut i32,
        at[10] => *mut i32, at[11] => *mut i32,
        &raw mut dropout => *mut Pointer, &raw mut flags => *mut u32,
    ));
    let [
        algorithm,
        cell,
        bias,
        bidirectional,
        input_mode,
        data_type,
        math_precision,
        math_type,
        input,
        hidden,
        projection,
        layers,
    ] = n;
    (status == 0).then_some(Rnn {
        algorithm,
        cell,
        bias,
        bidirectional,
        input_mode,
        data_type,
        math_precision,
        math_type,
        input,
        hidden,
        projection,
        layers,
        flags,
        dropout: crate::dropout::drops(dropout),
    })
}

/// What a data descriptor was told.
fn data(x: Pointer) -> Option<Sequences> {
    let ask = |lengths: &mut [i32], numbers: &mut [i32; 5]| {
        let at: [*mut i32; 5] = numbers.each_mut().map(|i| &raw mut *i);
        let mut fill = [0u8; 16];
        real!(c"cudnnGetRNNDataDescriptor"(
            x => Pointer, at[0] => *mut i32, at[1] => *mut i32, at[2] => *mut i32, at[3] => *mut i32, at[4] => *mut i32,
            lengths.len() as i32 => i32, lengths.as_mut_ptr() => *mut i32, fill.as_mut_ptr().cast() => Pointer,
        ))
    };
    let mut n = [0i32; 5];
    if ask(&mut [], &mut n) != 0 {
        return None;
    }
    let mut lengths = vec![0i32; usize::try_from(n[3]).unwrap_or(0)];
    let known = ask(&mut lengths, &mut n) == 0;
    let tokens = lengths.iter().map(|l| i64::from(*l)).sum();
    known.then_some(Sequences { layout: n[1], steps: n[2], batch: n[3], tokens })
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNTempSpaceSizes(
    handle: Pointer,
    descriptor: Pointer,
    mode: i32,
    x: Pointer,
    workspace: *mut usize,
    reserve: *mut usize,
) -> i32 {
    let status = real!(c"cudnnGetRNNTempSpaceSizes"(
        handle => Pointer, descriptor => Pointer, mode => i32, x => Pointer,
        workspace => *mut usize, reserve => *mut usize,
    ));
    if status == 0
        && let Some(rnn) = describe(descriptor)
    {
        // SAFETY: where there is an address, the library has just written to it.
        let sizes = unsafe { [workspace.as_ref(), reserve.as_ref()] };
        if let Some(data) = data(x) {
            let sizes = sizes.map(|s| s.copied().unwrap_or(0) as u64).to_vec();
            state().size(keys::rnn_spaces(&rnn, mode, &data), sizes);
        }
    }
    status
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNWeightSpaceSize(
    handle: Pointer,
    descriptor: Pointer,
    bytes: *mut usize,
) -> i32 {
    let status = real!(c"cudnnGetRNNWeightSpaceSize"(handle => Pointer, descriptor => Pointer, bytes => *mut usize));
    if status == 0
        && !bytes.is_null()
        && let Some(rnn) = describe(descriptor)
    {
        // SAFETY: the library has just written it.
        let size = unsafe { *bytes };
        state().size(keys::rnn_weights(&rnn), vec![size as u64]);
    }
    status
}

/// cuDNN's function of this name. Where the parts of the weights are is noted as an offset.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNWeightParams(
    handle: Pointer,
    descriptor: Pointer,
    layer: i32,
    bytes: usize,
    weights: *const c_void,
    id: i32,
    matrix: Pointer,
    matrix_at: *mut Pointer,
    bias: Pointer,
    bias_at: *mut Pointer,
) -> i32 {
    let status = real!(c"cudnnGetRNNWeightParams"(
        handle => Pointer, descriptor => Pointer, layer => i32, bytes => usize, weights => *const c_void, id => i32,
        matrix => Pointer, matrix_at => *mut Pointer, bias => Pointer, bias_at => *mut Pointer,
    ));
    if status == 0
        && let Some(rnn) = describe(descriptor)
    {
        // SAFETY: where there is an address, the library has just written to it.
        let places = unsafe { [matrix_at.as_ref(), bias_at.as_ref()] };
        let mut numbers = Vec::new();
        for (place, tensor) in places.into_iter().zip([matrix, bias]) {
            let at = place.map_or(0, |p| *p as u64);
            numbers.push(if at == 0 { u64::MAX } else { at - weights as u64 });
            let tensor = crate::legacy::tensor(tensor);
            numbers.push(tensor.data_type as u64);
            numbers.extend(tensor.dimensions.iter().map(|d| *d as u64));
        }
        state().size(format!("offset {layer} {id} {}", keys::rnn_weights(&rnn)), numbers);
    }
    status
}
