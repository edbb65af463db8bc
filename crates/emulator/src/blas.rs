//! cuBLAS and cuBLASLt: handles of their own (each handle has a workspace in PyTorch), products that take
//! virtual time. Everything else is a no-op.

use std::ffi::{c_int, c_void};

use crate::abi::{get, put};
use crate::machine::{self, Step};
use crate::runtime::KERNEL_NS;
use crate::stub;

/// Virtual speed of a matrix product, operations a nanosecond (600 TFLOP/s); operands whose leading dimension
/// is no multiple of 8 take three times as long. `torch.compile` decides on padding by such differences;
/// with these constants its decisions were those of an H200.
const FLOP_PER_NS: u64 = 600_000;
const UNALIGNED: u64 = 3;

/// A product (m × k) · (k × n), `batch` times.
fn multiply(m: i64, n: i64, k: i64, batch: i64, leading: [i64; 3]) -> i32 {
    let size = |x: i64| u64::try_from(x).unwrap_or(0);
    let flop = 2u64
        .saturating_mul(size(m))
        .saturating_mul(size(n))
        .saturating_mul(size(k))
        .saturating_mul(size(batch));
    let aligned = leading.iter().all(|l| l % 8 == 0);
    let ns = flop / FLOP_PER_NS * if aligned { 1 } else { UNALIGNED };
    let device = machine::current_device();
    let mut machine = machine::lock();
    machine.reach(device, Step::FirstKernel);
    machine.reach(device, Step::FirstProduct);
    machine.kernel(ns + KERNEL_NS);
    0
}

/// cuSOLVER's code is loaded for its first handle.
#[unsafe(no_mangle)]
extern "C" fn cusolverDnCreate(to: *mut usize) -> i32 {
    machine::lock().reach(machine::current_device(), Step::FirstFactorisation);
    put(to, stub::new_handle());
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasCreate_v2(to: *mut usize) -> i32 {
    let device = machine::current_device();
    machine::lock().add_handle(device);
    put(to, stub::new_handle());
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetVersion_v2(_handle: usize, version: *mut c_int) -> i32 {
    put(version, version_number());
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    version_number() as usize
}

/// cuBLAS carries the runtime's version: 13.1.0 is 130100.
fn version_number() -> c_int {
    let cuda = machine::lock().cuda_version();
    cuda / 1000 * 10_000 + cuda % 1000 / 10 * 100
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetMathMode(_handle: usize, mode: *mut c_int) -> i32 {
    put(mode, 0);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetPointerMode_v2(_handle: usize, mode: *mut c_int) -> i32 {
    put(mode, 0);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStream_v2(_handle: usize, stream: *mut usize) -> i32 {
    put(stream, 0);
    0
}

/// Products by the positions of their arguments in the header.
macro_rules! exported {
    ($name:ident, product) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            _handle: usize,
            _ta: c_int,
            _tb: c_int,
            m: c_int,
            n: c_int,
            k: c_int,
            _alpha: *const c_void,
            _a: *const c_void,
            lda: c_int,
            _b: *const c_void,
            ldb: c_int,
            _beta: *const c_void,
            _c: *mut c_void,
            ldc: c_int,
        ) -> i32 {
            multiply(m.into(), n.into(), k.into(), 1, [lda.into(), ldb.into(), ldc.into()])
        }
    };
    ($name:ident, strided) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            _handle: usize,
            _ta: c_int,
            _tb: c_int,
            m: c_int,
            n: c_int,
            k: c_int,
            _alpha: *const c_void,
            _a: *const c_void,
            lda: c_int,
            _sa: i64,
            _b: *const c_void,
            ldb: c_int,
            _sb: i64,
            _beta: *const c_void,
            _c: *mut c_void,
            ldc: c_int,
            _sc: i64,
            batch: c_int,
        ) -> i32 {
            multiply(
                m.into(),
                n.into(),
                k.into(),
                batch.into(),
                [lda.into(), ldb.into(), ldc.into()],
            )
        }
    };
    ($name:ident, typed) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            _handle: usize,
            _ta: c_int,
            _tb: c_int,
            m: c_int,
            n: c_int,
            k: c_int,
            _alpha: *const c_void,
            _a: *const c_void,
            _at: c_int,
            lda: c_int,
            _b: *const c_void,
            _bt: c_int,
            ldb: c_int,
            _beta: *const c_void,
            _c: *mut c_void,
            _ct: c_int,
            ldc: c_int,
        ) -> i32 {
            multiply(m.into(), n.into(), k.into(), 1, [lda.into(), ldb.into(), ldc.into()])
        }
    };
    ($name:ident, typed_strided) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            _handle: usize,
            _ta: c_int,
            _tb: c_int,
            m: c_int,
            n: c_int,
            k: c_int,
            _alpha: *const c_void,
            _a: *const c_void,
            _at: c_int,
            lda: c_int,
            _sa: i64,
            _b: *const c_void,
            _bt: c_int,
            ldb: c_int,
            _sb: i64,
            _beta: *const c_void,
            _c: *mut c_void,
            _ct: c_int,
            ldc: c_int,
            _sc: i64,
            batch: c_int,
        ) -> i32 {
            multiply(
                m.into(),
                n.into(),
                k.into(),
                batch.into(),
                [lda.into(), ldb.into(), ldc.into()],
            )
        }
    };
}

exported!(cublasSgemm_v2, product);
exported!(cublasDgemm_v2, product);
exported!(cublasCgemm_v2, product);
exported!(cublasZgemm_v2, product);
exported!(cublasHgemm, product);
exported!(cublasSgemmStridedBatched, strided);
exported!(cublasDgemmStridedBatched, strided);
exported!(cublasCgemmStridedBatched, strided);
exported!(cublasZgemmStridedBatched, strided);
exported!(cublasSgemmEx, typed);
exported!(cublasGemmEx, typed);
exported!(cublasGemmStridedBatchedEx, typed_strided);

/// What a cuBLASLt layout is made of here. The header's opaque structure has room for 64 bytes; the
/// library's own form of it is nobody's business.
#[derive(Clone, Copy)]
#[repr(C)]
struct Layout {
    rows: i64,
    columns: i64,
    leading: i64,
    batch: i64,
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutCreate(
    to: *mut *mut Layout,
    _kind: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
) -> i32 {
    let layout = Layout { rows: rows as i64, columns: columns as i64, leading, batch: 1 };
    put(to, Box::into_raw(Box::new(layout)));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutDestroy(layout: *mut Layout) -> i32 {
    if !layout.is_null() {
        // SAFETY: the handle was made by `cublasLtMatrixLayoutCreate` and is destroyed once.
        drop(unsafe { Box::from_raw(layout) });
    }
    0
}

/// `CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT`.
const BATCH_COUNT: c_int = 5;

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: *mut Layout,
    attribute: c_int,
    value: *const c_void,
    _bytes: usize,
) -> i32 {
    if let (BATCH_COUNT, Some(mut found), Some(count)) =
        (attribute, get(layout), get(value.cast::<i32>()))
    {
        found.batch = count.into();
        put(layout, found);
    }
    0
}

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct HeuristicResult {
    algorithm: [u64; 8],
    workspace: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// One algorithm that needs no workspace: PyTorch allocates its own beforehand.
#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: usize,
    _operation: usize,
    _a: *const Layout,
    _b: *const Layout,
    _c: *const Layout,
    _d: *const Layout,
    _preference: usize,
    _wanted: c_int,
    results: *mut c_void,
    count: *mut c_int,
) -> i32 {
    let result = HeuristicResult {
        algorithm: [0; 8],
        workspace: 0,
        status: 0,
        waves: 1.0,
        reserved: [0; 4],
    };
    put(results.cast(), result);
    put(count, 1);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmul(
    _handle: usize,
    _operation: usize,
    _alpha: *const c_void,
    _a: *const c_void,
    layout_a: *const Layout,
    _b: *const c_void,
    layout_b: *const Layout,
    _beta: *const c_void,
    _c: *const c_void,
    _layout_c: *const Layout,
    _d: *mut c_void,
    layout_d: *const Layout,
    _algorithm: *const c_void,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    _stream: usize,
) -> i32 {
    let (Some(a), Some(b), Some(d)) = (get(layout_a), get(layout_b), get(layout_d)) else {
        return 0;
    };
    // One of A's sides is D's rows; the other is the common one.
    let common = if a.rows == d.rows { a.columns } else { a.rows };
    multiply(d.rows, d.columns, common, d.batch, [a.leading, b.leading, d.leading])
}

/// Names of codes, which callers print.
#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusName(_status: c_int) -> *const std::ffi::c_char {
    c"CUBLAS_STATUS (emulated)".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(_status: c_int) -> *const std::ffi::c_char {
    c"status of the emulated cuBLAS".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusString(_status: c_int) -> *const std::ffi::c_char {
    c"status of the emulated cuBLASLt".as_ptr()
}
