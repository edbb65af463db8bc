//! What the program told PyTorch about choosing plans (`torch.backends.cudnn`, `torch.use_deterministic_algorithms`).
//!
//! PyTorch leaves proposals of cuDNN out by these settings, so that other plans run. They are read through the public
//! C++ interface of ATen (`ATen/Context.h`) by its exported names; a PyTorch that has other names gives no answer.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use vramwise_workspaces::keys::Choice;

/// The setting that counts for a convolution; `None` where it cannot be told, or where several apply at once.
pub(super) fn choice(single_precision: bool) -> Option<Choice> {
    let context = context()?;
    let deterministic = context.is(context.deterministic) || context.is(context.algorithms);
    let tf32 = context.tf32()?;
    match (deterministic, tf32) {
        (false, true) => Some(Choice::First),
        (true, true) => Some(Choice::Deterministic),
        (false, false) if single_precision => Some(Choice::NoTf32),
        _ => None,
    }
}

struct Context {
    address: usize,
    deterministic: usize,
    algorithms: usize,
    /// `allowTF32CuDNN()`, until PyTorch 2.8.
    tf32: usize,
    /// `allowTF32CuDNN(std::optional<Float32Op>)`.
    tf32_of: usize,
}

/// `std::optional<Float32Op>` that holds `CONV`, as the C++ ABI passes it: the value, then whether there is one.
const CONV: u64 = 1 | 1 << 32;

impl Context {
    /// Calls `bool Context::f() const`.
    fn is(&self, function: usize) -> bool {
        // SAFETY: the exported name says that this is its type; the context lives as long as the process.
        unsafe {
            std::mem::transmute::<usize, extern "C" fn(usize) -> bool>(function)(self.address)
        }
    }

    fn tf32(&self) -> Option<bool> {
        if self.tf32_of != 0 {
            // SAFETY: as above; the argument is small and trivial, so that it is passed in a register.
            let ask = unsafe {
                std::mem::transmute::<usize, extern "C" fn(usize, u64) -> bool>(self.tf32_of)
            };
            return Some(ask(self.address, CONV));
        }
        (self.tf32 != 0).then(|| self.is(self.tf32))
    }
}

fn context() -> Option<&'static Context> {
    static CONTEXT: OnceLock<Option<Context>> = OnceLock::new();
    CONTEXT.get_or_init(find).as_ref()
}

fn find() -> Option<Context> {
    // SAFETY: a terminated name; a library that is not loaded is not loaded by this.
    let library =
        unsafe { libc::dlopen(c"libtorch_cpu.so".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the handle is one that dlopen gave, the name is terminated.
    let symbol = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) } as usize;
    let global = Some(symbol(c"_ZN2at13globalContextEv")).filter(|f| *f != 0)?;
    // SAFETY: `Context& globalContext()`, without arguments.
    let address =
        unsafe { std::mem::transmute::<usize, extern "C" fn() -> *mut c_void>(global)() } as usize;
    let found = Context {
        address,
        deterministic: symbol(c"_ZNK2at7Context18deterministicCuDNNEv"),
        algorithms: symbol(c"_ZNK2at7Context23deterministicAlgorithmsEv"),
        tf32: symbol(c"_ZNK2at7Context14allowTF32CuDNNEv"),
        tf32_of: symbol(c"_ZNK2at7Context14allowTF32CuDNNESt8optionalINS_9Float32OpEE"),
    };
    (found.address != 0 && found.deterministic != 0 && found.algorithms != 0).then_some(found)
}
