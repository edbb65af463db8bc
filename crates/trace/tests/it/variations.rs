//! Every variation of the schema that is known to occur.

use vramwise_trace::{
    BlockState, Producer, Replayable, SegmentKind, SettingsBefore, Snapshot, StackId, describe,
};
use vramwise_types::{Action, TorchVersion};

use crate::made::{
    BASE, block, codes, dict, event, frame, history, list, read, refused, segment, snapshot, text,
    with,
};
use crate::py::Py;

fn version(snapshot: &Snapshot) -> (u16, u16) {
    let TorchVersion { major, minor } = snapshot.version_guess.unwrap();
    (major, minor)
}

/// `data` without these keys.
fn without(data: Py, keys: &[&str]) -> Py {
    keys.iter().fold(data, |data, key| with(data, key, None))
}

#[test]
fn the_ordinary_snapshot_has_no_surprises() {
    let snapshot = read(&snapshot());
    assert_eq!(codes(&snapshot), ["no-stacks"]);
    assert_eq!(version(&snapshot), (2, 11));
    let device = &snapshot.devices[0];
    assert_eq!(device.events.action, [Action::SegmentAlloc, Action::Alloc]);
    assert_eq!(device.segments[0].blocks, 0..2);
    assert_eq!(device.blocks[1].requested_size, (2 << 20) - 524, "stale, but as the file says");
    let settings = snapshot.settings.unwrap();
    assert_eq!(settings.max_split_size, None);
    assert_eq!(settings.roundup_power2_divisions, [(1, 0), (2, 4)]);
    assert_eq!(settings.other[0], ("pinned_num_register_threads".into(), "1".into()));
    assert_eq!(settings.other[1], ("release_lock_on_cudamalloc".into(), "False".into()));
}

#[test]
fn what_vramwises_recorder_says_of_its_file_is_read_and_no_unknown_key() {
    let noted = |steps| {
        let read =
            read(&with(snapshot(), "vramwise_recorder", dict([("steps_with_stacks", steps)])));
        assert!(read.unknown_keys.is_empty(), "{:?}", read.unknown_keys);
        read.recorder.unwrap().steps_with_stacks
    };
    assert_eq!(noted(list([Py::Int(0), Py::Int(20)])), Some(vec![0, 20]));
    assert_eq!(
        noted(list([Py::Int(-1), text("x"), Py::Int(7)])),
        Some(vec![7]),
        "odd ones are left out"
    );
    assert_eq!(noted(Py::List((0..5000).map(Py::Int).collect())).map(|s| s.len()), Some(100));
    assert_eq!(noted(Py::None), None);
    assert_eq!(noted(text("all")), None);
    assert_eq!(read(&with(snapshot(), "vramwise_recorder", Py::Int(3))).recorder, None);
    assert_eq!(read(&snapshot()).recorder, None);
}

#[test]
fn changes_of_settings_in_the_recorders_note_are_read_in_order_of_time() {
    let noted = |settings| {
        let note = dict([("steps_with_stacks", Py::None), ("settings", settings)]);
        read(&with(snapshot(), "vramwise_recorder", note)).recorder.unwrap().settings
    };
    let change = |time, conf| dict([("time_us", Py::Int(time)), ("conf", text(conf))]);
    let values =
        dict([("PYTORCH_CUDA_ALLOC_CONF", text("a:1")), ("expandable_segments", Py::Bool(true))]);
    let changes = list([change(9, "late"), change(3, "early"), change(-1, "odd"), Py::Int(3)]);
    let found = noted(dict([("before", values), ("changes", changes)])).unwrap();
    assert_eq!(found.changes, [(3, "early".to_owned()), (9, "late".to_owned())]);
    assert!(
        matches!(found.before, SettingsBefore::Values(v) if v.expandable_segments && v.conf == "a:1")
    );
    let many = Py::List((0..5000).map(|n| change(n, "x")).collect());
    let found = noted(dict([("before", text("b:2")), ("changes", many)])).unwrap();
    assert_eq!((found.changes.len(), found.before), (1000, SettingsBefore::Text("b:2".to_owned())));
    assert_eq!(noted(dict([("before", text("b:2"))])), None);
    assert_eq!(noted(Py::Int(3)), None);
}

#[test]
fn a_bare_list_of_segments_is_a_state_without_history() {
    let snapshot = read(&list([segment(BASE), segment(BASE + (2 << 20))]));
    assert_eq!(snapshot.devices[0].segments.len(), 2);
    assert!(codes(&snapshot).contains(&"no-history") && codes(&snapshot).contains(&"old-schema"));
    assert!(matches!(describe(&snapshot).devices[0].replayable, Replayable::No(_)));
    assert!(codes(&read(&list([]))).contains(&"no-history"));
}

#[test]
fn blocks_of_2_0_have_a_history_and_no_address() {
    let users = |size, line| {
        list([
            dict([
                ("addr", Py::Int(BASE)),
                ("real_size", Py::Int(size)),
                ("frames", list([frame("f", line)])),
            ]),
            dict([
                ("addr", Py::Int(BASE)),
                ("real_size", Py::Int(99)),
                ("frames", list([frame("g", 9)])),
            ]),
        ])
    };
    let old = |size, state: &str| dict([("size", Py::Int(size)), ("state", text(state))]);
    let blocks = list([
        with(old(512, "active_allocated"), "history", users(500, 1)),
        with(old(1024, "inactive"), "history", users(1000, 2)),
        old((2 << 20) - 1536, "active_allocated"),
    ]);
    let old_segment =
        without(segment(BASE), &["requested_size", "segment_pool_id", "is_expandable", "frames"]);
    let entry = |action, addr, size| {
        without(event(action, addr, size), &["time_us", "compile_context", "user_metadata"])
    };
    let data = dict([
        ("segments", list([with(old_segment, "blocks", blocks)])),
        (
            "device_traces",
            list([list([entry("segment_alloc", BASE, 2 << 20), entry("alloc", BASE, 500)])]),
        ),
    ]);
    let snapshot = read(&data);
    let device = &snapshot.devices[0];
    let addresses: Vec<_> = device.blocks.iter().map(|b| i128::from(b.address) - BASE).collect();
    assert_eq!(addresses, [0, 512, 1536]);
    let requested: Vec<_> = device.blocks.iter().map(|b| b.requested_size).collect();
    assert_eq!(
        requested,
        [500, 1000, (2 << 20) - 1536],
        "the last user's; the size where none is known"
    );
    let line = |i: usize| {
        let stack = snapshot.stacks.stack(device.blocks[i].stack);
        stack.first().map(|f| snapshot.stacks.frame(*f).line)
    };
    assert_eq!((line(0), line(1), line(2)), (Some(1), Some(2), None));
    assert_eq!(device.segments[0].requested_size, 500 + (2 << 20) - 1536);
    assert!(device.events.time_us.is_empty());
    assert_eq!(version(&snapshot), (2, 0));
    assert!(codes(&snapshot).contains(&"no-times") && codes(&snapshot).contains(&"old-schema"));
    assert!(codes(&snapshot).contains(&"no-settings"));
}

#[test]
fn both_words_for_a_pending_free_are_known() {
    for word in ["active_pending_free", "active_awaiting_free"] {
        let blocks = list([block(BASE, 2 << 20, word)]);
        let data = with(snapshot(), "segments", list([with(segment(BASE), "blocks", blocks)]));
        assert_eq!(read(&data).devices[0].blocks[0].state, BlockState::ActivePendingFree);
    }
}

#[test]
fn an_oom_entry_has_free_bytes_instead_of_an_address() {
    let oom = with(with(event("oom", 0, 1 << 30), "addr", None), "device_free", Py::Int(123));
    let snapshot = read(&history(vec![event("alloc", BASE, 5), oom]));
    let events = &snapshot.devices[0].events;
    assert_eq!((events.action[1], events.addr[1], events.size[1]), (Action::Oom, 123, 1 << 30));
}

#[test]
fn pool_ids_may_be_tuples_lists_none_or_absent() {
    let ids = [
        (Some(Py::Tuple(vec![Py::Int(1), Py::Int(2)])), (1, 2)),
        (Some(list([Py::Int(3), Py::Int(4)])), (3, 4)),
        (Some(Py::None), (0, 0)),
        (None, (0, 0)),
    ];
    for (id, expected) in ids {
        let data = with(snapshot(), "segments", list([with(segment(BASE), "segment_pool_id", id)]));
        assert_eq!(read(&data).devices[0].segments[0].pool_id, expected);
    }
}

#[test]
fn devices_are_told_apart_and_may_share_addresses() {
    let on = |device| with(segment(BASE), "device", Py::Int(device));
    let data = dict([
        ("segments", list([on(2), on(0)])),
        (
            "device_traces",
            list([
                list([event("alloc", BASE, 1)]),
                list([]),
                list([event("alloc", BASE, 2), event("alloc", BASE, 3)]),
                list([]),
            ]),
        ),
    ]);
    let snapshot = read(&data);
    let counts: Vec<_> =
        snapshot.devices.iter().map(|d| (d.segments.len(), d.events.len())).collect();
    assert_eq!(counts, [(1, 1), (0, 0), (1, 2), (0, 0)]);
    assert_eq!(snapshot.devices[2].events.size, [2, 3]);
    let nameless = with(
        snapshot_of_segment(with(segment(BASE), "device", Py::None)),
        "device_traces",
        list([]),
    );
    assert!(codes(&read(&nameless)).contains(&"no-device"));
}

fn snapshot_of_segment(segment: Py) -> Py {
    with(snapshot(), "segments", list([segment]))
}

#[test]
fn segments_are_sorted_by_address_and_keep_their_blocks() {
    let addresses = [BASE + (4 << 20), BASE, BASE + (2 << 20)];
    let data = with(snapshot(), "segments", Py::List(addresses.map(segment).into()));
    let snapshot = read(&data);
    let device = &snapshot.devices[0];
    assert!(device.segments.is_sorted_by_key(|s| s.address));
    for segment in &device.segments {
        assert_eq!(device.blocks_of(segment)[0].address, segment.address);
        assert_eq!(device.blocks_of(segment).len(), 2);
    }
}

#[test]
fn odd_segments_are_mentioned() {
    let gap =
        list([block(BASE, 512, "inactive"), block(BASE + 1024, (2 << 20) - 1024, "inactive")]);
    let short = list([block(BASE, 512, "inactive")]);
    let warned = |blocks| codes(&read(&snapshot_of_segment(with(segment(BASE), "blocks", blocks))));
    assert!(warned(gap).contains(&"blocks-not-contiguous"));
    assert!(warned(short).contains(&"segment-size-mismatch"));
    let twice = with(snapshot(), "segments", list([segment(BASE), segment(BASE + 512)]));
    assert!(codes(&read(&twice)).contains(&"segments-overlap"));
}

#[test]
fn annotations_are_read_with_and_without_a_device() {
    let mark = |stage: &str, device: Option<Py>| {
        let base = dict([("stage", text(stage)), ("name", text("step")), ("time_us", Py::Int(7))]);
        match device {
            Some(device) => with(base, "device", device),
            None => base,
        }
    };
    let marks =
        list([mark("START", Some(Py::Int(1))), mark("END", None), mark("END", Some(Py::Int(-1)))]);
    let snapshot = read(&with(snapshot(), "external_annotations", marks));
    let devices: Vec<_> = snapshot.annotations.iter().map(|a| a.device).collect();
    assert_eq!(devices, [Some(1), None, None]);
    assert!(snapshot.annotations[0].is_start && !snapshot.annotations[1].is_start);
    assert_eq!(snapshot.strings.get(snapshot.annotations[0].name), "step");
    for odd in [text("none"), list([Py::Int(1)])] {
        let snapshot = read(&with(crate::made::snapshot(), "external_annotations", odd));
        assert!(snapshot.annotations.is_empty() && codes(&snapshot).contains(&"odd-values"));
    }
}

#[test]
fn annotations_inside_a_history_are_kept_in_place() {
    for (action, minor) in [("user_defined", 11), ("annotate", 11)] {
        let mark = with(event(action, 0, 0), "frames", list([frame("START", 0)]));
        let snapshot = read(&history(vec![event("alloc", BASE, 5), mark]));
        assert_eq!(snapshot.devices[0].events.action[1], Action::UserDefined);
        assert_eq!(version(&snapshot), (2, minor));
    }
}

#[test]
fn a_line_that_no_file_has_is_mentioned() {
    let warned = |line: i128| {
        let frame = with(frame("f", 1), "line", Py::Int(line));
        let event = with(event("alloc", BASE, 500), "frames", list([frame]));
        let data = with(snapshot(), "device_traces", list([list([event])]));
        codes(&read(&data)).contains(&"odd-values")
    };
    assert!(!warned(7) && warned(1 << 40) && warned(-1));
}

#[test]
fn frames_may_be_absent_none_or_have_more_keys() {
    let plain = event("alloc", BASE, 5);
    let fx = with(frame("f", 3), "fx_node_op", text("call"));
    let nameless = with(frame("f", 4), "filename", Py::None);
    let events = vec![
        plain.clone(),
        with(plain.clone(), "frames", Py::None),
        with(plain.clone(), "frames", list([])),
        with(plain.clone(), "frames", list([fx])),
        with(plain.clone(), "frames", list([nameless])),
        with(plain, "frames", text("Traceback")),
    ];
    let snapshot = read(&history(events));
    let events = &snapshot.devices[0].events;
    let some: Vec<_> = (0..6).map(|i| events.stack_of(i) != StackId::NONE).collect();
    assert_eq!(some, [false, false, false, true, true, false]);
    let frame = snapshot.stacks.frame(snapshot.stacks.stack(events.stack_of(4))[0]);
    assert_eq!(snapshot.strings.get(frame.filename), "??");
    assert_eq!(snapshot.unknown_keys["frame.fx_node_op"], 1);
    assert!(codes(&snapshot).contains(&"odd-values"));
}

#[test]
fn long_stacks_and_stacks_of_one_frame_are_whole() {
    let many = Py::List((0..2500).map(|i| frame("f", i)).collect());
    let one = list([frame("f", 1)]);
    let events = vec![
        with(event("alloc", BASE, 5), "frames", many),
        with(event("alloc", BASE, 5), "frames", one.clone()),
        with(event("alloc", BASE, 5), "frames", one),
    ];
    let snapshot = read(&history(events));
    let events = &snapshot.devices[0].events;
    assert_eq!(snapshot.stacks.stack(events.stack_of(0)).len(), 2500);
    assert_eq!(snapshot.stacks.stack(events.stack_of(1)).len(), 1);
    assert_eq!(events.stack_of(1), events.stack_of(2));
}

#[test]
fn streams_may_be_negative_huge_or_absent() {
    let on = |stream| with(event("alloc", BASE, 5), "stream", stream);
    let events = vec![
        on(Some(Py::Int(-1))),
        on(Some(Py::Int(u64::MAX.into()))),
        on(Some(Py::Int(94_000_000_000_000))),
        on(None),
    ];
    let snapshot = read(&history(events));
    let events = &snapshot.devices[0].events;
    let handles: Vec<_> = (0..4).map(|i| events.stream_handle(i)).collect();
    assert_eq!(handles, [u64::MAX, u64::MAX, 94_000_000_000_000, 0]);
    assert_eq!(events.streams.len(), 3);
    let old = without(segment(BASE), &["stream"]);
    assert_eq!(read(&snapshot_of_segment(old)).devices[0].segments[0].stream, 0);
}

#[test]
fn unlimited_is_written_in_several_ways() {
    for n in [-1, i128::from(u64::MAX), i128::from(i64::MAX)] {
        let settings =
            dict([("PYTORCH_CUDA_ALLOC_CONF", text("a:b")), ("max_split_size", Py::Int(n))]);
        let read = read(&with(snapshot(), "allocator_settings", settings));
        assert_eq!(read.settings.as_ref().unwrap().max_split_size, None, "{n}");
        assert_eq!(read.settings.unwrap().conf, "a:b");
    }
    let settings = dict([("PYTORCH_ALLOC_CONF", text("x")), ("max_split_size", Py::Int(64 << 20))]);
    let settings = read(&with(snapshot(), "allocator_settings", settings)).settings.unwrap();
    assert_eq!((settings.conf.as_str(), settings.max_split_size), ("x", Some(64 << 20)));
}

#[test]
fn times_may_be_floats_absent_or_in_disorder() {
    let at = |time| with(event("alloc", BASE, 5), "time_us", time);
    let float = read(&history(vec![at(Some(Py::Float(7.9))), at(Some(Py::Int(3)))]));
    assert_eq!(float.devices[0].events.time_us, [7, 3], "the file's order counts");
    assert_eq!(describe(&float).devices[0].time_span_us, Some(4));
    let some = read(&history(vec![at(None), at(Some(Py::Int(3)))]));
    assert_eq!(some.devices[0].events.time_us, [0, 3]);
    assert!(read(&history(vec![at(None), at(None)])).devices[0].events.time_us.is_empty());
}

#[test]
fn texts_of_entries_are_kept_where_they_say_something() {
    let plain = event("alloc", BASE, 5);
    let events = vec![
        plain.clone(),
        with(plain.clone(), "compile_context", text("0/1")),
        with(plain.clone(), "user_metadata", text("{\"a\":1}")),
        with(
            with(plain.clone(), "pool_id", Py::Tuple(vec![Py::Int(0), Py::Int(5)])),
            "internal_metadata",
            text("x"),
        ),
        with(with(plain, "compile_context", Py::None), "user_metadata", dict([])),
    ];
    let snapshot = read(&history(events));
    let events = &snapshot.devices[0].events;
    let text_of = |column: &[(u32, vramwise_trace::StringId)]| -> Vec<(u32, String)> {
        column.iter().map(|(i, s)| (*i, snapshot.strings.get(*s).to_owned())).collect()
    };
    assert_eq!(text_of(&events.compile_context), [(1, "0/1".to_owned())]);
    assert_eq!(text_of(&events.user_metadata), [(2, "{\"a\":1}".to_owned())]);
    assert_eq!(events.pool_id, [(3, (0, 5))]);
    assert_eq!(version(&snapshot), (2, 12));
}

#[test]
fn keys_tell_the_oldest_version_that_writes_them() {
    let plain = || event("alloc", BASE, 5);
    let strip = |keys: &[&str]| history(vec![without(plain(), keys); 2]);
    let of = |data: &Py| version(&read(data));
    assert_eq!(of(&strip(&[])), (2, 11));
    assert_eq!(of(&strip(&["user_metadata"])), (2, 9));
    assert_eq!(of(&strip(&["user_metadata", "compile_context"])), (2, 1));
    let annotated =
        with(strip(&["user_metadata", "compile_context"]), "external_annotations", list([]));
    assert_eq!(of(&annotated), (2, 5));
    let settings = dict([("PYTORCH_CUDA_ALLOC_CONF", text(""))]);
    let set = with(strip(&["user_metadata", "compile_context"]), "allocator_settings", settings);
    assert_eq!(of(&set), (2, 3));
    assert_eq!(of(&strip(&["user_metadata", "compile_context", "time_us"])), (2, 0));
    let host = with(strip(&[]), "host_traces", list([]));
    assert_eq!(of(&host), (2, 14));
    let settings =
        dict([("PYTORCH_CUDA_ALLOC_CONF", text("")), ("max_round_threshold", text("-1"))]);
    assert_eq!(of(&with(strip(&[]), "allocator_settings", settings)), (2, 13));
}

#[test]
fn unknown_keys_are_counted_and_never_fatal() {
    let colored = |e| with(e, "color", text("red"));
    let data = with(
        history(vec![colored(event("alloc", BASE, 5)); 3]),
        "segments",
        list([colored(segment(BASE))]),
    );
    let data = with(with(data, "host_segments", list([segment(BASE)])), "host_traces", list([]));
    let snapshot = read(&data);
    let counts: Vec<_> = snapshot.unknown_keys.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    let expected = [
        ("event.color", 3),
        ("segment.color", 1),
        ("top.host_segments", 1),
        ("top.host_traces", 1),
    ];
    assert_eq!(counts, expected);
    assert_eq!(snapshot.devices[0].segments.len(), 1, "host memory is not device memory");
}

#[test]
fn unknown_actions_are_kept_and_counted() {
    let snapshot = read(&history(vec![
        event("alloc", BASE, 5),
        event("segment_teleport", 1, 2),
        event("segment_teleport", 1, 2),
    ]));
    assert_eq!(snapshot.devices[0].events.action[1], Action::Other);
    assert_eq!(snapshot.unknown_keys["action.segment_teleport"], 2);
    assert!(codes(&snapshot).contains(&"unknown-actions"));
}

#[test]
fn a_file_without_history_says_why() {
    let message = |data: &Py| {
        let snapshot = read(data);
        let warning = snapshot.warnings.iter().find(|w| w.code == "no-history").unwrap();
        warning.message.clone()
    };
    assert!(
        message(&with(snapshot(), "device_traces", list([list([]), list([])])))
            .contains("_record_memory_history")
    );
    assert!(
        message(&with(snapshot(), "device_traces", list([]))).contains("_record_memory_history")
    );
    assert!(message(&with(snapshot(), "device_traces", None)).contains("traces were left out"));
    let state = read(&with(snapshot(), "device_traces", list([list([event("alloc", BASE, 500)])])));
    assert!(codes(&state).contains(&"state-only-history"));
    assert!(matches!(describe(&state).devices[0].replayable, Replayable::No(_)));
}

fn described(events: Vec<Py>) -> (Vec<&'static str>, Replayable) {
    let description = describe(&read(&history(events)));
    let codes = description.warnings.iter().map(|w| w.code).collect();
    (codes, description.devices[0].replayable.clone())
}

#[test]
fn a_wrapped_ring_and_a_late_start_are_told() {
    let pair = |i: i128| {
        [
            event("alloc", BASE + 512 * i, 500),
            event("free_requested", BASE + 512 * i, 500),
            event("free_completed", BASE + 512 * i, 500),
        ]
    };
    let mut events: Vec<_> =
        vec![event("free_requested", BASE, 500), event("free_completed", BASE, 500)];
    events.extend((1..100).flat_map(pair));
    let (codes, replayable) = described(events.clone());
    assert!(codes.contains(&"started-mid-run") && codes.contains(&"unpaired-frees"), "{codes:?}");
    assert!(matches!(replayable, Replayable::Partly(_)));
    while events.len() < 1000 {
        events.extend(pair(events.len() as i128));
    }
    events.truncate(1000);
    let (codes, _) = described(events);
    assert!(
        codes.contains(&"ring-buffer-wrapped") && !codes.contains(&"started-mid-run"),
        "{codes:?}"
    );
}

#[test]
fn histories_with_actions_left_out_are_told() {
    let without_requests = vec![event("alloc", BASE, 500), event("free_completed", BASE, 500)];
    let (codes, _) = described(without_requests);
    assert!(codes.contains(&"missing-actions") && !codes.contains(&"unpaired-frees"), "{codes:?}");
    let without_frees = vec![event("alloc", BASE, 500), event("alloc", BASE, 500)];
    let (codes, replayable) = described(without_frees);
    assert!(codes.contains(&"double-allocations"), "{codes:?}");
    assert!(matches!(replayable, Replayable::No(_)));
}

#[test]
fn other_producers_are_told_by_what_gives_them_away() {
    let producer = |data: &Py| match read(data).producer {
        Producer::Other(why) => why,
        known => panic!("taken for {known:?}"),
    };
    assert!(producer(&history(vec![event("alloc", BASE + 8, 5); 2])).contains("multiple of 512"));
    let odd = with(segment(BASE), "total_size", Py::Int(4096));
    assert!(producer(&snapshot_of_segment(odd)).contains("multiple of 2 MiB"));
    let settings = dict([("PYTORCH_NPU_ALLOC_CONF", text(""))]);
    assert!(producer(&with(snapshot(), "allocator_settings", settings)).contains("NPU"));
    let settings = |conf| dict([("PYTORCH_CUDA_ALLOC_CONF", text(conf))]);
    let under = |conf| read(&with(snapshot(), "allocator_settings", settings(conf))).producer;
    assert_eq!(under("max_split_size_mb:64,backend:vramwise"), Producer::Vramwise);
    assert_eq!(under("backend:native"), Producer::PyTorch);
    // What PyTorch makes from a profiler run: a device more, for the CPU, and segments without types.
    let fake = dict([
        ("device", Py::Int(1)),
        ("address", Py::Int(0)),
        ("total_size", Py::Int(512)),
        ("stream", Py::Int(0)),
        ("blocks", list([block(0, 512, "inactive")])),
    ]);
    let data = dict([("segments", list([fake])), ("device_traces", list([list([]), list([])]))]);
    assert!(producer(&data).contains("profiler"));
}

#[test]
fn sizes_that_are_missing_from_segments_are_computed() {
    let bare = without(
        segment(BASE),
        &["allocated_size", "active_size", "requested_size", "segment_type"],
    );
    let blocks = list([
        block(BASE, 512, "active_allocated"),
        block(BASE + 512, 1024, "active_pending_free"),
        block(BASE + 1536, (2 << 20) - 1536, "inactive"),
    ]);
    let snapshot = read(&list([with(bare, "blocks", blocks)]));
    let segment = &snapshot.devices[0].segments[0];
    assert_eq!(
        (segment.allocated_size, segment.active_size, segment.requested_size),
        (512, 1536, 1512)
    );
    assert_eq!(segment.kind, SegmentKind::Small);
}

#[test]
fn what_is_no_snapshot_is_named() {
    let said = |data: &Py| refused(data).to_string();
    assert!(
        said(&dict([("model", Py::None), ("epoch", Py::Int(1))]))
            .starts_with("holds a dictionary with the keys model, epoch,")
    );
    assert!(said(&dict([])).starts_with("holds an empty dictionary"));
    assert!(said(&list([Py::Int(1)])).starts_with("holds a list of other things"));
    assert!(said(&event("alloc", 0, 0)).starts_with("holds one event"));
    assert!(said(&list([event("alloc", 0, 0)])).starts_with("holds"));
    assert!(said(&Py::Int(5)).starts_with("holds one value of type int"));
}
