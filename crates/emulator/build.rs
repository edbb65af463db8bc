//! Sets the soname that every CUDA library looks for, and writes a no-op for each name in `symbols/`
//! that the sources do not define.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // A name that nobody defines must fail here, not in the user's process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
    println!("cargo::rerun-if-changed=symbols");
    println!("cargo::rerun-if-changed=src");
    let mut defined = BTreeSet::new();
    collect_defined(Path::new("src"), &mut defined);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("stubs.rs"), stubs(&defined)).expect("the build directory is writable");
}

/// Every exported function of the sources: `extern "C" fn NAME(` or `exported!(NAME, …)`.
fn collect_defined(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the source folder is readable") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            collect_defined(&path, names);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        for rest in text.split("extern \"C\" fn ").skip(1) {
            names.insert(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
        }
        for rest in text.split("exported!(").skip(1) {
            names.insert(rest.split([',', ')']).next().unwrap_or_default().trim().to_owned());
        }
    }
}

/// One no-op each. A symbol file's line is `NAME [ARGUMENT=handle|4|8 …]`: that (integer) argument is a
/// pointer that gets a new handle, a zero of 4 or 8 bytes (a size), or `info` (success; `info:N` = for as many
/// matrices as argument N says).
fn stubs(defined: &BTreeSet<String>) -> String {
    let mut lines: BTreeMap<String, (String, bool)> = BTreeMap::new();
    let mut files: Vec<_> = fs::read_dir("symbols")
        .expect("the symbols are there")
        .map(|e| e.expect("a readable entry").path())
        .collect();
    files.sort();
    for file in files {
        // In the libraries a no-op costs no memory: only sizes that nobody knows are of interest there.
        let library = !file.ends_with("cuda.txt") && !file.ends_with("cudart.txt");
        for line in fs::read_to_string(&file).expect("a text file").lines() {
            let (name, outs) = line.split_once(' ').unwrap_or((line, ""));
            if !name.is_empty() && !defined.contains(name) {
                let harmless = if library {
                    !outs.contains("=4") && !outs.contains("=8")
                } else {
                    is_harmless(name)
                };
                lines.entry(name.to_owned()).or_insert_with(|| (outs.to_owned(), harmless));
            }
        }
    }
    let mut text = String::new();
    for (name, (outs, harmless)) in lines {
        let outs: Vec<(usize, &str)> = outs
            .split_whitespace()
            .filter_map(|o| o.split_once('='))
            .map(|(i, what)| (i.parse().expect("an argument's number"), what))
            .collect();
        let count_of = |what: &str| {
            what.split_once(':').map(|(_, n)| n.parse::<usize>().expect("an argument's number"))
        };
        let last = outs
            .iter()
            .flat_map(|(i, what)| [Some(*i), count_of(what)])
            .flatten()
            .max()
            .map_or(0, |i| i + 1);
        let args: Vec<String> = (0..last).map(|i| format!("a{i}: usize")).collect();
        let unused: Vec<String> = (0..last)
            .filter(|i| outs.iter().all(|(o, _)| o != i))
            .map(|i| format!("a{i}"))
            .collect();
        let mut body = String::new();
        if !unused.is_empty() {
            let _ = write!(body, "let _ = ({},); ", unused.join(", "));
        }
        for (i, what) in &outs {
            let _ = match *what {
                "handle" => write!(body, "crate::stub::put_handle(a{i}); "),
                "info" => write!(body, "crate::stub::put_info(a{i}, 1); "),
                infos if infos.starts_with("info:") => {
                    write!(body, "crate::stub::put_info(a{i}, a{}); ", count_of(infos).unwrap_or(0))
                }
                bytes => write!(body, "crate::stub::put_zero::<{bytes}>(a{i}); "),
            };
        }
        if !harmless {
            let note = format!(
                "static SEEN: AtomicBool = AtomicBool::new(false); crate::stub::seen(&SEEN, {name:?}); "
            );
            body.insert_str(0, &note);
        }
        let _ = writeln!(
            text,
            "#[unsafe(no_mangle)] extern \"C\" fn {name}({}) -> i32 {{ {body}0 }}",
            args.join(", ")
        );
    }
    text
}

/// Names that change nothing about memory, so that doing nothing is right.
fn is_harmless(name: &str) -> bool {
    [
        "Set",
        "Destroy",
        "Enable",
        "Disable",
        "Synchronize",
        "Reset",
        "Unload",
        "Profiler",
        "Prefetch",
        "Advise",
    ]
    .iter()
    .any(|part| name.contains(part))
}
