//! Containers, and directories of files.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use vramwise_trace::{ReadError, ReadOptions, list_inputs, read_path, read_reader, read_slice};

use crate::made::{shown, snapshot};
use crate::py::pickle;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

#[test]
fn the_container_makes_no_difference() {
    let plain = pickle(&snapshot(), 4);
    let options = ReadOptions::default();
    let expected = shown(&read_slice(&plain, &options).unwrap());
    let mut in_parts = gzip(&plain[..100]);
    in_parts.extend(gzip(&plain[100..]));
    let page = format!(
        "<!DOCTYPE html><script>const files = [{{\"name\": \"a\", \"base64\": \"{}\"}}]</script>",
        base64(&plain)
    );
    for bytes in [
        gzip(&plain),
        in_parts,
        zstd(&plain),
        expected.clone().into_bytes(),
        gzip(expected.as_bytes()),
        page.into_bytes(),
    ] {
        assert_eq!(shown(&read_slice(&bytes, &options).unwrap()), expected);
        assert_eq!(shown(&read_reader(&*bytes, &options).unwrap()), expected);
    }
    for protocol in 0..=5 {
        let bytes = pickle(&snapshot(), protocol);
        assert_eq!(shown(&read_slice(&bytes, &options).unwrap()), expected, "protocol {protocol}");
    }
    let indented = format!("\u{feff}  \n{expected}");
    assert_eq!(shown(&read_slice(indented.as_bytes(), &options).unwrap()), expected);
}

fn base64(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0u32, |n, b| (n << 8) | u32::from(*b)) << (8 * (3 - group.len()));
        for i in 0..4 {
            let digit = digits[(word >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= group.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[test]
fn compressed_twice_is_refused() {
    let bytes = zstd(&gzip(&pickle(&snapshot(), 4)));
    let error = read_slice(&bytes, &ReadOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "is gzip inside zstd; decompress it once and try again");
}

#[test]
fn missing_files_and_directories_are_told() {
    let error = read_path("no/such/file", &ReadOptions::default()).unwrap_err();
    assert!(
        matches!(&error, ReadError::Io(e) if e.kind() == std::io::ErrorKind::NotFound),
        "{error}"
    );
    let error = read_path(env!("CARGO_TARGET_TMPDIR"), &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, ReadError::Directory), "{error}");
}

#[test]
fn the_files_of_a_directory_come_in_the_order_of_their_ranks() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ranks");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("rank4.pickle")).unwrap();
    for name in ["rank10.pickle", "rank9.pickle.gz", "rank0.pickle", "notes.txt", ".rank3.pickle"] {
        fs::write(folder.join(name), b"x").unwrap();
    }
    let names: Vec<_> = list_inputs(&folder).unwrap();
    let names: Vec<_> = names.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["rank0.pickle", "rank9.pickle.gz", "rank10.pickle"]);
    let file = folder.join("notes.txt");
    assert_eq!(list_inputs(&file).unwrap(), [file]);
    assert!(list_inputs(folder.join("nothing")).is_err());
}
