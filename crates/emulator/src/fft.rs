//! cuFFT: what its plans need. Everything else is a no-op.

use std::ffi::{c_int, c_longlong};

use vramwise_workspaces::fft;

use crate::abi::{get, put};
use crate::cudnn::is_measured_card;
use crate::machine;

/// `cudaDataType` of single precision: real, complex.
const REAL: c_int = 0;
const COMPLEX: c_int = 4;
/// `CUFFT_INVALID_VALUE`.
const INVALID: c_int = 4;

/// The size is known where numbers lie next to one another, in single precision, on a card that was asked.
#[unsafe(no_mangle)]
extern "C" fn cufftXtMakePlanMany(
    _plan: c_int,
    rank: c_int,
    lengths: *const c_longlong,
    _input_embedded: *const c_longlong,
    input_stride: c_longlong,
    _input_distance: c_longlong,
    input_type: c_int,
    _output_embedded: *const c_longlong,
    output_stride: c_longlong,
    _output_distance: c_longlong,
    output_type: c_int,
    batch: c_longlong,
    size: *mut usize,
    _computation_type: c_int,
) -> c_int {
    let dims: Option<Vec<u64>> = (0..usize::try_from(rank).unwrap_or(0))
        .map(|at| get(lengths.wrapping_add(at)).and_then(|n: c_longlong| u64::try_from(n).ok()))
        .collect();
    let (Some(dims), Ok(batch)) = (dims, u64::try_from(batch)) else { return INVALID };
    let real = input_type == REAL || output_type == REAL;
    let found = fft::workspace(&dims, batch, real);
    let single = [input_type, output_type].iter().all(|t| matches!(*t, REAL | COMPLEX));
    let known = found.known && single && input_stride == 1 && output_stride == 1;
    if !known || !is_measured_card() {
        machine::lock().note_unknown("cufftXtMakePlanMany".to_owned());
    }
    // Double precision has numbers of twice the size.
    let bytes = if single { found.bytes } else { found.bytes.saturating_mul(2) };
    put(size, usize::try_from(bytes).unwrap_or(usize::MAX));
    0
}
