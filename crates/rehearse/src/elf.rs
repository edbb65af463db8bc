//! Shared objects with a CUDA runtime of their own linked in.
//!
//! The emulated device takes the place of the *shared* runtime. An object into which the static one was linked
//! (`nvcc` without `--cudart shared`, CMake's `CUDA::cudart_static`) does not ask for it. Such an object is known by what
//! the ELF format says of it: it carries device code, which the CUDA tools put into sections of their own, or calls the
//! runtime, and does not import the runtime's functions.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Sections with device code.
const DEVICE_CODE: [&str; 2] = [".nv_fatbin", ".nvFatBinSegment"];
/// The function by which an object hands its device code to the runtime.
const REGISTERS: &str = "__cudaRegisterFatBinary";
/// A function that only the runtime defines, beside that one.
const OF_THE_RUNTIME: [&str; 3] = [REGISTERS, "cudaGetDeviceCount", "cudaMalloc"];

const SYMBOLS: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
/// A table that no object has.
const MOST_BYTES: u64 = 256 << 20;

struct Section {
    name: u32,
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
    entry: u64,
}

/// Whether a CUDA runtime is linked into the object. `None` where it is no 64-bit ELF file of this byte order, cannot be
/// read, or is damaged.
pub(crate) fn has_own_runtime(path: &Path) -> Option<bool> {
    let mut file = File::open(path).ok()?;
    let header = read(&mut file, 0, 64).ok()?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let sections = sections(&mut file, &header)?;
    let names = sections.get(usize::from(half(&header, 62)?))?;
    let names = table(&mut file, names)?;
    let named = |section: &Section| text(&names, section.name);
    let carries = sections.iter().any(|s| named(s).is_some_and(|name| DEVICE_CODE.contains(&name)));
    let mut imports = false;
    let mut defines = false;
    for section in sections.iter().filter(|s| matches!(s.kind, SYMBOLS | DYNAMIC_SYMBOLS)) {
        let strings = table(&mut file, sections.get(section.link as usize)?)?;
        let symbols = table(&mut file, section)?;
        for symbol in symbols.chunks_exact(usize::try_from(section.entry.max(24)).ok()?) {
            let Some(name) = text(&strings, word(symbol, 0)?) else { continue };
            if OF_THE_RUNTIME.contains(&name) {
                // Section 0 is where symbols lie that another object has.
                let elsewhere = half(symbol, 6)? == 0;
                imports |= elsewhere && name == REGISTERS && section.kind == DYNAMIC_SYMBOLS;
                defines |= !elsewhere;
            }
        }
    }
    Some(defines || carries && !imports)
}

fn sections(file: &mut File, header: &[u8]) -> Option<Vec<Section>> {
    let (start, size) = (long(header, 40)?, u64::from(half(header, 58)?));
    let count = u64::from(half(header, 60)?);
    let bytes = read(file, start, size.checked_mul(count)?).ok()?;
    let one = |at: &[u8]| {
        Some(Section {
            name: word(at, 0)?,
            kind: word(at, 4)?,
            offset: long(at, 24)?,
            size: long(at, 32)?,
            link: word(at, 40)?,
            entry: long(at, 56)?,
        })
    };
    bytes.chunks_exact(usize::try_from(size).ok().filter(|size| *size >= 64)?).map(one).collect()
}

fn table(file: &mut File, section: &Section) -> Option<Vec<u8>> {
    read(file, section.offset, section.size).ok()
}

fn read(file: &mut File, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    let end = offset.checked_add(size).ok_or(io::ErrorKind::InvalidData)?;
    if size > MOST_BYTES || end > file.metadata()?.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| io::ErrorKind::InvalidData)?];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The text that begins at a place of a table of strings.
fn text(strings: &[u8], at: u32) -> Option<&str> {
    let rest = strings.get(at as usize..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// An object that a C compiler made of this; none where there is no compiler.
    fn object(name: &str, code: &str, options: &[&str]) -> Option<PathBuf> {
        let room = std::env::temp_dir();
        let path = room.join(format!("vramwise-elf-{}-{name}.so", std::process::id()));
        let source = path.with_extension("c");
        std::fs::write(&source, code).expect("a temporary file");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-nostdlib"]).args(options);
        let made = compiler.arg("-o").arg(&path).arg(&source).status();
        std::fs::remove_file(&source).expect("a temporary file");
        made.is_ok_and(|status| status.success()).then_some(path)
    }

    const CODE: &str =
        "__attribute__((section(\".nv_fatbin\"))) const char code[] = \"device code\";\n";

    #[test]
    fn an_object_that_brings_the_runtime_is_told_from_one_that_imports_it() {
        let imports =
            "void __cudaRegisterFatBinary(void*); void f(void) { __cudaRegisterFatBinary(0); }\n";
        let hidden =
            "__attribute__((visibility(\"hidden\"))) void __cudaRegisterFatBinary(void*p) { }\n";
        let calls = "void f(void) { __cudaRegisterFatBinary(0); }\n";
        let cases: [(&str, String, &[&str], bool); 5] = [
            ("shared", format!("{CODE}{imports}"), &[], false),
            ("static", format!("{CODE}{hidden}{calls}"), &[], true),
            ("stripped", format!("{CODE}{hidden}{calls}"), &["-s"], true),
            ("host", "int cudaMalloc(void) { return 0; }\n".to_owned(), &[], true),
            ("plain", "int f(void) { return 0; }\n".to_owned(), &[], false),
        ];
        for (name, code, options, expected) in cases {
            let Some(path) = object(name, &code, options) else {
                eprintln!("skipped: there is no C compiler");
                return;
            };
            let found = has_own_runtime(&path);
            // Cut anywhere, it is read without a panic.
            let bytes = std::fs::read(&path).unwrap();
            for end in (0..bytes.len()).step_by(97) {
                std::fs::write(&path, &bytes[..end]).unwrap();
                let _ = has_own_runtime(&path);
            }
            std::fs::remove_file(&path).unwrap();
            assert_eq!(found, Some(expected), "{name}");
        }
        assert_eq!(has_own_runtime(Path::new("/etc/passwd")), None);
        assert_eq!(has_own_runtime(Path::new("/none")), None);
    }
}
