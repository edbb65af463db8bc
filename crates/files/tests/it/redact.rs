//! What names somebody goes, what tools need stays.

use proptest::prelude::*;
use vramwise_analyze::peak::is_framework;
use vramwise_files::redact;
use vramwise_files::redact::RedactOptions;
use vramwise_trace::{Annotation, DeviceTrace, Frame, FrameId, RecordedSettings, Snapshot};
use vramwise_types::Action;

use crate::{pickled, recording, through_a_file};

const ALL: RedactOptions = RedactOptions { functions: true, annotations: true };

/// A snapshot with one event for each frame.
fn made(frames: &[(&str, &str)], annotation: &str, metadata: &str) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut device = DeviceTrace::default();
    device.events.streams.push(0);
    for (i, (file, name)) in frames.iter().enumerate() {
        let (filename, name) = (snapshot.strings.intern(file), snapshot.strings.intern(name));
        let frame = snapshot.stacks.intern_frame(Frame { name, filename, line: 7 });
        device.events.action.push(Action::Alloc);
        device.events.addr.push(512 * (i as u64 + 1));
        device.events.size.push(512);
        device.events.stream.push(0);
        device.events.time_us.push(1_000_000 + i as u64);
        device.events.stack.push(snapshot.stacks.intern_stack(&[frame]));
    }
    if !frames.is_empty() {
        device.events.user_metadata.push((0, snapshot.strings.intern(metadata)));
    }
    let name = snapshot.strings.intern(annotation);
    snapshot.annotations.push(Annotation { name, is_start: true, device: Some(0), time_us: 1 });
    snapshot.settings = Some(RecordedSettings::default());
    snapshot.devices.push(device);
    snapshot
}

fn files(snapshot: &Snapshot) -> Vec<String> {
    let frames = 0..u32::try_from(snapshot.stacks.frame_count()).unwrap();
    let file = |i| snapshot.stacks.frame(FrameId(i)).filename;
    frames.map(|i| snapshot.strings.get(file(i)).to_owned()).collect()
}

#[test]
fn of_annotations_those_that_pytorch_makes_stay_but_for_names_of_one_s_own() {
    for (name, redacted) in [
        ("Optimizer.step#AdamW.step", "Optimizer.step#AdamW.step"),
        ("Optimizer.zero_grad#SGD.zero_grad", "Optimizer.zero_grad#SGD.zero_grad"),
        ("Optimizer.step#SecretOpt.step", "Optimizer.step#text1.step"),
        ("ProfilerStep#17", "ProfilerStep#17"),
        ("ProfilerStep#17 of alice", "text1"),
        ("my secret phase", "text1"),
    ] {
        let (once, _) = redact(&made(&[], name, ""), &ALL);
        let named = |s: &Snapshot| s.strings.get(s.annotations[0].name).to_owned();
        assert_eq!(named(&once), redacted, "{name}");
        assert_eq!(named(&redact(&once, &ALL).0), redacted, "{name}");
    }
}

#[test]
fn nothing_of_a_person_or_a_machine_is_left() {
    let snapshot = made(
        &[
            ("/home/alice/secret_project/train.py", "alice_step"),
            ("C:\\Users\\bob.b\\model\\net.py", "forward"),
            ("\\\\fileserver9\\share\\x.py", "main"),
            ("/tmp/torchinductor_carol/ab/cab.py", "call"),
            ("/home/alice/.venv/lib/python3.11/site-packages/inhouse/kernels.py", "launch"),
            ("<ipython-input-3-0fa1beef>", "<module>"),
        ],
        "load /home/alice/data.py from alice@node17.corp, 10.1.2.3 and https://wiki.inhouse/x",
        "assert secret_project.x == 1",
    );
    let (redacted, counts) = redact(&snapshot, &RedactOptions::default());
    let bytes = String::from_utf8_lossy(&pickled(&redacted)).into_owned();
    for word in [
        "alice",
        "bob",
        "carol",
        "secret",
        "fileserver9",
        "share",
        "node17",
        "10.1.2.3",
        "wiki",
        "inhouse",
        "kernels",
        "model",
        "net.py",
        "train",
        "beef",
    ] {
        assert!(!bytes.contains(word), "{word} is left");
    }
    for word in ["forward", "launch", "site-packages", "python3.11", "torchinductor_user", ".py"] {
        assert!(bytes.contains(word), "{word} is gone");
    }
    assert_eq!(counts.functions, 0);
    assert_eq!(counts.texts, 2);
}

#[test]
fn public_paths_stay() {
    for path in [
        "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/linear.py",
        "/usr/lib/python3.12/threading.py",
        "/usr/lib/python3.12/concurrent/futures/thread.py",
        "torch/optim/adam.py",
        "transformers/trainer.py",
        "/pytorch/aten/src/ATen/native/cuda/Blas.cpp",
        "??",
        "<frozen runpy>",
        "<string>",
    ] {
        let (redacted, counts) = redact(&made(&[(path, "f")], "", ""), &ALL);
        assert_eq!(files(&redacted), [path]);
        assert_eq!((counts.files, counts.folders, counts.users), (0, 0, 0), "{path}");
    }
}

#[test]
fn recordings_keep_their_figures_and_a_second_time_changes_nothing() {
    for name in ["oom_fragmented__default__stacks", "public/lm-train-200", "public/lm-train-midrun"]
    {
        let snapshot = recording(name);
        for options in [RedactOptions::default(), ALL] {
            let (once, _) = redact(&snapshot, &options);
            let (a, b) = (&snapshot.devices[0].events, &once.devices[0].events);
            assert_eq!((&a.action, &a.addr, &a.size), (&b.action, &b.addr, &b.size));
            assert_eq!((&a.time_us, a.stack.len()), (&b.time_us, b.stack.len()));
            assert_eq!(snapshot.devices[0].segments.len(), once.devices[0].segments.len());
            for i in 0..a.len() {
                let depth = |s: &Snapshot, id| s.stacks.stack(id).len();
                assert_eq!(depth(&snapshot, a.stack_of(i)), depth(&once, b.stack_of(i)));
            }
            let first = pickled(&once);
            let (twice, counts) = redact(&through_a_file(&once), &options);
            assert_eq!(pickled(&twice), first, "{name}");
            assert_eq!(counts, vramwise_files::redact::Redacted::default(), "{name}");
        }
    }
}

/// Paths as they occur, and odd ones.
fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("home"),
        Just("Users"),
        Just("dave"),
        Just("torch"),
        Just("site-packages"),
        Just("lib"),
        Just("python3.11"),
        Just("dir3"),
        Just("file2"),
        Just(""),
        Just(".."),
        Just("C:"),
        Just("a b"),
        Just("torchinductor_eve"),
        Just("ipykernel_77"),
        Just("user1"),
        Just("größe"),
        Just("src"),
    ]
    .prop_map(str::to_owned);
    let last = prop_oneof![
        "[a-z]{1,6}\\.py",
        Just("dir3.py".to_owned()),
        Just("x.cpp".to_owned()),
        ".{0,8}"
    ];
    let separator = prop_oneof![Just("/"), Just("\\")];
    (prop::collection::vec(part, 0..6), separator, last, any::<bool>()).prop_map(
        |(parts, separator, last, rooted)| {
            let mut text = if rooted { separator.to_owned() } else { String::new() };
            for part in parts {
                text.push_str(&part);
                text.push_str(separator);
            }
            text + &last
        },
    )
}

proptest! {
    #[test]
    fn redacting_is_idempotent_and_keeps_what_is_a_framework_s(
        paths in prop::collection::vec(path(), 1..8),
        names in prop::collection::vec("[ -~]{0,24}", 8),
        annotation in ".{0,40}",
        functions in any::<bool>(),
        annotations in any::<bool>(),
    ) {
        let frames: Vec<_> =
            paths.iter().zip(&names).map(|(p, n)| (p.as_str(), n.as_str())).collect();
        let snapshot = made(&frames, &annotation, &annotation);
        let options = RedactOptions { functions, annotations };
        let (once, _) = redact(&snapshot, &options);
        let (twice, counts) = redact(&once, &options);
        prop_assert_eq!(files(&once), files(&twice));
        prop_assert_eq!(pickled(&once), pickled(&twice));
        prop_assert_eq!(counts, vramwise_files::redact::Redacted::default());
        for (i, path) in paths.iter().enumerate() {
            let events = &once.devices[0].events;
            let id = once.stacks.stack(events.stack_of(i))[0];
            let redacted = once.strings.get(once.stacks.frame(id).filename);
            prop_assert_eq!(is_framework(path), is_framework(redacted), "{:?} {:?}", path, redacted);
            let public = redacted.contains("torch") || redacted.contains("python3.11");
            let named = |p: &str| p == "dave" || p.ends_with("_eve");
            prop_assert!(public || !redacted.split(['/', '\\']).any(named), "{}", redacted);
        }
    }
}
