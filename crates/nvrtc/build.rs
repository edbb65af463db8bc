//! Sets the soname that programs of CUDA 13 look for.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvrtc.so.13");
}
