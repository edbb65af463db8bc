//! Hostile and damaged files, made by `testdata/attacks/make.py`.

use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use vramwise_trace::{ReadError, ReadOptions, Snapshot, read_path, read_reader, read_slice};

use crate::made::testdata;

/// Name, bytes, and what reading from the path says.
type Case = (String, Vec<u8>, Result<Snapshot, ReadError>);

/// Every file, read once, and how long all took.
static ALL: LazyLock<(Vec<Case>, Duration)> = LazyLock::new(|| {
    let start = Instant::now();
    (all(), start.elapsed())
});

fn all() -> Vec<Case> {
    let mut files: Vec<_> =
        fs::read_dir(testdata("attacks")).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| !path.ends_with("make.py") && !path.ends_with("README.md"));
    files.sort();
    let name = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let read = |path: &std::path::Path| read_path(path, &ReadOptions::default());
    files.iter().map(|path| (name(path), fs::read(path).unwrap(), read(path))).collect()
}

#[test]
fn every_hostile_file_is_refused_at_once_and_in_one_clear_sentence() {
    let (files, time) = &*ALL;
    assert!(files.len() > 90, "the files are there");
    assert!(*time < Duration::from_secs(20), "{time:?}");
    for (name, _, result) in files {
        let Err(error) = result else {
            assert!(name.starts_with("fine-"), "{name} is read");
            continue;
        };
        assert!(!name.starts_with("fine-"), "{name}: {error}");
        let message = error.to_string();
        assert!((8..300).contains(&message.len()), "{name}: {message}");
        assert!(!message.contains('\n'), "{name}: {message}");
        let expected = match name.split('-').next().unwrap() {
            "code" if name.contains("buffer") => "outside the file",
            "code" => "only plain data is read",
            "length" if name.contains("frame") => "ends before the pickle does",
            "length" | "memo" | "stack" => "",
            "bomb" if name.contains("shared-lists") || name.contains("appends") => {
                "not a memory snapshot"
            }
            "bomb" if name.contains("json") => "line 1, column",
            "bomb" if name.contains("device") => "device",
            "bomb" if name.contains("twice") => "gzip inside gzip",
            "bomb" => "refused",
            "damaged" | "other" => "",
            "wrong" => "it",
            other => panic!("{other} files are not known"),
        };
        assert!(message.contains(expected), "{name}: {message}");
    }
}

#[test]
fn messages_name_the_offset_the_name_and_the_place() {
    let (files, _) = &*ALL;
    let said = |name: &str| {
        let (_, _, result) = files.iter().find(|(n, _, _)| n == name).unwrap();
        result.as_ref().unwrap_err().to_string()
    };
    for (name, message) in [
        (
            "code-inside-a-snapshot.pickle",
            "at byte 104: GLOBAL asks for 'builtins.eval'; only plain data is read and code is never run \
             (1 event was complete before that)",
        ),
        (
            "code-stack-global.pickle",
            "at byte 14: STACK_GLOBAL asks for 'os.system'; only plain data is read and code is never run",
        ),
        (
            "length-bytearray8-huge.pickle",
            "at byte 2: the file ends too early: this needs 209715209 bytes and 12 are left",
        ),
        ("wrong-size-text.pickle", "device 0, event 1: its 'size' is not a number but str"),
        (
            "wrong-block-state-unknown.pickle",
            "device 0, segment 0, block 0: its 'state' is 'melted', no state of a block",
        ),
        ("other-empty.pickle.gz", "is empty"),
        (
            "other-sqlite.db",
            "is an SQLite database, not a memory snapshot; \
             write the snapshot with torch.cuda.memory._dump_snapshot(path)",
        ),
    ] {
        assert_eq!(said(name), message, "{name}");
    }
}

#[test]
fn memory_and_streams_are_refused_like_files() {
    for (name, bytes, from_path) in &ALL.0 {
        let from_path = from_path.as_ref().map(|_| ()).map_err(ToString::to_string);
        let options = ReadOptions::default();
        let from_memory = read_slice(bytes, &options).map(|_| ()).map_err(|e| e.to_string());
        assert_eq!(from_memory, from_path, "{name}");
        let from_stream = read_reader(&**bytes, &options).map(|_| ()).map_err(|e| e.to_string());
        if name != "fine-changed-after-use.pickle" {
            assert_eq!(from_stream, from_path, "{name}");
        }
    }
}

#[test]
fn salvage_never_makes_a_bomb_go_off() {
    let options = ReadOptions { salvage: true, ..ReadOptions::default() };
    for (name, bytes, _) in &ALL.0 {
        if let Ok(snapshot) = read_slice(bytes, &options) {
            let events: usize = snapshot.devices.iter().map(|d| d.events.len()).sum();
            assert!(events <= bytes.len(), "{name}");
            assert!(name.starts_with("fine-") || !snapshot.warnings.is_empty(), "{name}");
        }
    }
}

#[test]
fn an_entry_that_changes_after_it_was_complete_is_read_with_its_change() {
    let path = testdata("attacks/fine-changed-after-use.pickle");
    let snapshot = read_path(&path, &ReadOptions::default()).unwrap();
    assert_eq!(snapshot.devices[0].events.len(), 1);
    assert_eq!(snapshot.unknown_keys["event.color"], 1);
    let stream = fs::File::open(path).unwrap();
    let error = read_reader(stream, &ReadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("changed after it was complete"), "{error}");
}
