//! Recurrent networks: sizes of their spaces, and where their weights are.

use std::ffi::c_void;

use vramwise_workspaces::keys::{self, Rnn};
use vramwise_workspaces::rnn::{self, Part};

use super::real::real;
use super::{NOT_SUPPORTED, dropout, sizes};
use crate::abi::put;

type Pointer = *mut c_void;

/// What a descriptor was told, as cuDNN gives it back.
fn describe(descriptor: Pointer) -> Option<Rnn> {
    let mut n = [0i32; 12];
    let (mut drop, mut flags) = (0usize, 0u32);
    let at: [*mut i32; 12] = n.each_mut().map(|i| &raw mut *i);
    let status = real!(c"cudnnGetRNNDescriptor_v8"(
        descriptor => Pointer,
        at[0] => *mut i32, at[1] => *mut i32, at[2] => *mut i32, at[3] => *mut i32, at[4] => *mut i32,
        at[5] => *mut i32, at[6] => *mut i32, at[7] => *mut i32, at[8] => *mut i32, at[9] => *mut i32,
        at[10] => *mut i32, at[11] => *mut i32,
        &raw mut drop => *mut usize, &raw mut flags => *mut u32,
    ));
    (status == 0).then_some(Rnn {
        algorithm: n[0],
        cell: n[1],
        bias: n[2],
        bidirectional: n[3],
        input_mode: n[4],
        data_type: n[5],
        math_precision: n[6],
        math_type: n[7],
        input: n[8],
        hidden: n[9],
        projection: n[10],
        layers: n[11],
        flags,
        dropout: dropout::drops(drop),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetRNNWeightSpaceSize(
    _handle: usize,
    descriptor: Pointer,
    bytes: *mut usize,
) -> i32 {
    let Some(found) = describe(descriptor) else { return NOT_SUPPORTED };
    put(bytes, rnn::weight_space(&found) as usize);
    0
}

/// What a data descriptor was told, and the lengths of the sequences.
fn data(x: Pointer) -> Option<(keys::Sequences, Vec<i32>)> {
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
    if ask(&mut lengths, &mut n) != 0 {
        return None;
    }
    let tokens = lengths.iter().map(|l| i64::from(*l)).sum();
    Some((keys::Sequences { layout: n[1], steps: n[2], batch: n[3], tokens }, lengths))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetRNNTempSpaceSizes(
    _handle: usize,
    descriptor: Pointer,
    mode: i32,
    x: Pointer,
    workspace: *mut usize,
    reserve: *mut usize,
) -> i32 {
    let (Some(found), Some((data, lengths))) = (describe(descriptor), data(x)) else {
        return NOT_SUPPORTED;
    };
    let key = keys::rnn_spaces(&found, mode, &data);
    let measured = sizes::table().and_then(|t| t.get(&key));
    // The rule was found on the cards that there are tables of.
    let ruled = rnn::workspace(&found, &data, &lengths, mode == 1);
    let known = sizes::table().is_some() && ruled.known;
    if (measured.is_none() && !known) || !sizes::same_library() {
        sizes::guessed(&key);
    }
    let (work, kept) = match measured {
        Some([work, kept]) => (*work, *kept),
        _ => (ruled.bytes, if mode == 1 { rnn::reserve_space(&found, &data) } else { 0 }),
    };
    put(workspace, work as usize);
    put(reserve, kept as usize);
    0
}

/// Describes a part to the real library's tensor and gives its address.
fn give(part: Option<Part>, rnn: &Rnn, weights: usize, tensor: Pointer, at: *mut usize) {
    put(at, part.map_or(0, |p| weights + p.offset as usize));
    if let Some(part) = part
        && !tensor.is_null()
    {
        let dimensions = [1i32, part.rows as i32, part.columns as i32];
        let strides = [dimensions[1] * dimensions[2], dimensions[2], 1];
        real!(c"cudnnSetTensorNdDescriptor"(
            tensor => Pointer, rnn.data_type => i32, 3 => i32, dimensions.as_ptr() => *const i32,
            strides.as_ptr() => *const i32,
        ));
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetRNNWeightParams(
    _handle: usize,
    descriptor: Pointer,
    layer: i32,
    _bytes: usize,
    weights: usize,
    id: i32,
    matrix: Pointer,
    matrix_at: *mut usize,
    bias: Pointer,
    bias_at: *mut usize,
) -> i32 {
    let (Some(found), Ok(layer), Ok(id)) =
        (describe(descriptor), u64::try_from(layer), u64::try_from(id))
    else {
        return NOT_SUPPORTED;
    };
    let (m, b) = rnn::weight(&found, layer, id);
    give(m, &found, weights, matrix, matrix_at);
    give(b, &found, weights, bias, bias_at);
    0
}
