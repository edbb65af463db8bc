"""Snapshots from Python: read, asked, and made into tables."""

import gzip
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading

import pytest

vramwise = pytest.importorskip("vramwise")
pytest.importorskip("vramwise._native", reason="the native part is not built: run `cargo xtask python`")

from vramwise import errors  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SNAPSHOTS = REPOSITORY / "testdata" / "snapshots"
LSTM = SNAPSHOTS / "lstm_varlen__default.snapshot.pickle.gz"
OOM = SNAPSHOTS / "oom_fragmented__default__stacks.snapshot.pickle.gz"
LEAK = SNAPSHOTS / "leak__default__stacks.snapshot.pickle.gz"
ATTACKS = REPOSITORY / "testdata" / "attacks"
PROGRAM = os.environ.get("VRAMWISE_BIN", str(REPOSITORY / "target" / "debug" / "vramwise"))


@pytest.fixture(scope="module")
def lstm():
    return vramwise.read(LSTM)


def printed(*args):
    """What the program prints for the same question."""
    done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def without_state():
    """The smallest snapshot that has no history."""
    return pickle.dumps({"segments": [], "device_traces": [[]]}, protocol=4)


def test_every_kind_of_source_gives_the_same_snapshot(tmp_path):
    content = gzip.decompress(LSTM.read_bytes())
    plain = tmp_path / "plain.pickle"
    plain.write_bytes(content)
    with open(plain, "rb") as file:
        snapshots = [
            vramwise.read(LSTM),
            vramwise.read(str(plain)),
            vramwise.read(content),
            vramwise.read(memoryview(LSTM.read_bytes())),
            vramwise.read(io.BytesIO(content)),
            vramwise.read(file),
        ]
    reports = [snapshot.summary().to_dict() for snapshot in snapshots]
    names = [report.pop("file") for report in reports]
    assert all(report == reports[0] for report in reports)
    assert names == [str(LSTM), str(plain), "<bytes>", "<bytes>", "<file>", str(plain)]


@pytest.mark.parametrize(
    ("ask", "command"),
    [
        (lambda s: s.summary(), ["validate"]),
        (lambda s: s.peak(by="category", top=3), ["inspect", "--by", "category", "--top", "3"]),
        (lambda s: s.replay(), ["replay"]),
        (lambda s: s.replay(conf="expandable_segments:True"), ["replay", "--conf", "expandable_segments:True"]),
        (lambda s: s.replay(capacity=2**30), ["replay", "--capacity", "1GiB"]),
        (lambda s: s.replay(allocator="vramwise"), ["replay", "--allocator", "vramwise"]),
        (lambda s: s.tune(candidates=12), ["tune", "--candidates", "12"]),
        (lambda s: s.leaks(), ["leaks"]),
    ],
    ids=["summary", "peak", "replay", "what-if", "capacity", "drop-in", "tune", "leaks"],
)
def test_python_and_the_program_say_the_same(lstm, ask, command):
    report = ask(lstm)
    assert report.to_json() == printed(*command, "--json", LSTM)
    assert report.text == printed(*command, LSTM)


def test_fields_have_the_names_of_the_json_report(lstm):
    report = lstm.replay()
    data = report.to_dict()
    assert report.events == data["events"] == len(lstm.events())
    assert report.verify.allocs == report.verify.allocs_exact == data["verify"]["allocs"]
    assert report.stats["reserved_bytes.all.peak"] == data["stats"]["reserved_bytes.all.peak"]
    assert report.peak_reserved_bytes_range == tuple(data["peak_reserved_bytes_range"])
    assert report.verify.first_divergence is None
    assert not report.is_finding


def test_a_finding_is_a_report_and_no_error():
    report = vramwise.read(OOM).explain()
    assert report.kind == "cuda"
    assert report.events
    assert any(advice.proved for event in report.events for advice in event.advice)
    assert vramwise.read(LEAK).leaks().is_finding


def test_the_difference_of_a_snapshot_to_itself_is_nothing(lstm):
    (device,) = lstm.diff(lstm).devices
    assert device.a == device.b
    assert device.groups_new == device.groups_vanished == 0


def test_two_snapshots_of_one_name_are_kept_apart(tmp_path, lstm):
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(LSTM.read_bytes())
    before = vramwise.read(path)
    path.write_bytes(OOM.read_bytes())
    after = vramwise.read(path)
    report = before.diff(after).to_json().replace(str(path), "X")
    assert report == printed("diff", "--json", LSTM, OOM).replace(str(LSTM), "X").replace(str(OOM), "X")


def test_settings_for_several_snapshots_are_searched_together(lstm):
    other = vramwise.read(SNAPSHOTS / "lstm_varlen__expandable.snapshot.pickle.gz")
    with pytest.warns(errors.VramwiseWarning, match="recorded under other settings"):
        report = lstm.tune(other, candidates=4)
    assert [file.file for file in report.files] == [lstm.name, other.name]


def test_a_replayed_state_is_written_as_a_snapshot(lstm, tmp_path):
    path = tmp_path / "after.pickle"
    lstm.replay(emit=path)
    assert vramwise.read(path).summary().devices
    with pytest.raises(errors.ArgumentError, match="exists already"):
        lstm.replay(emit=path)


def test_errors_of_a_log_are_explained():
    log = (
        "step 3\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 1.50 GiB is free. Including non-PyTorch memory, this process has 77.60 GiB memory in use. "
        "Of the allocated memory 70.00 GiB is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but unallocated."
    )
    report = vramwise.explain_text(log)
    assert report.kind == "cuda"
    assert report.numbers.tried_bytes == 2 << 30
    assert vramwise.explain_text("all is well").kind == "none"


def test_a_missing_file_is_pythons_own_error(tmp_path):
    path = tmp_path / "none.pickle"
    with pytest.raises(FileNotFoundError) as caught:
        vramwise.read(path)
    assert caught.value.filename == str(path)


def test_a_directory_is_pythons_own_error(tmp_path):
    with pytest.raises(IsADirectoryError):
        vramwise.read(tmp_path)


def test_a_damaged_file_says_where():
    path = ATTACKS / "damaged-bit-flip.pickle"
    with pytest.raises(errors.UnreadableFileError) as caught:
        vramwise.read(path)
    assert caught.value.path == str(path)
    assert caught.value.offset > 0
    assert str(caught.value.offset) in str(caught.value)


def test_code_in_a_file_is_refused_and_not_run():
    for path in ATTACKS.glob("code-*.pickle"):
        with pytest.raises(errors.UnreadableFileError):
            vramwise.read(path)
        with pytest.raises(errors.UnreadableFileError):
            vramwise.read(path.read_bytes())


def test_settings_that_pytorch_refuses_say_which_character(lstm):
    with pytest.raises(errors.SettingsError) as caught:
        lstm.replay(conf="expandable_segments:Maybe")
    assert caught.value.settings == "expandable_segments:Maybe"
    assert caught.value.position == len("expandable_segments:")


def test_a_question_about_the_history_needs_one():
    snapshot = vramwise.read(without_state())
    for ask in (snapshot.replay, snapshot.tune, snapshot.explain, snapshot.leaks):
        with pytest.raises(errors.NoHistoryError, match="no allocator history") as caught:
            ask()
        assert caught.value.path == "<bytes>"


def test_nothing_is_recommended_where_the_model_is_wrong():
    trace = pickle.loads(gzip.decompress(LSTM.read_bytes()))
    events = trace["device_traces"][0]
    (wrong,) = [i for i, event in enumerate(events) if event["action"] == "alloc"][200:201]
    events[wrong]["addr"] += 512
    with pytest.raises(errors.NotReproducedError) as caught:
        vramwise.read(pickle.dumps(trace, protocol=4)).tune()
    assert caught.value.allocs > caught.value.allocs_exact > 0
    assert caught.value.first_divergence_event == wrong


@pytest.mark.parametrize(
    "wrong", [{"at": "noon"}, {"device": 7}, {"at": 10**9}, {"capacity": "much"}, {"torch": "1.0"}], ids=str
)
def test_an_argument_without_meaning_is_told(lstm, wrong):
    with pytest.raises(errors.ArgumentError) as caught:
        lstm.peak(**wrong)
    assert str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_text_file_is_no_snapshot():
    with pytest.raises(TypeError, match="bytes"):
        vramwise.read(io.StringIO("text"))


def test_notebooks_show_what_a_report_says(lstm):
    html = lstm._repr_html_()
    assert "<svg" in html
    assert "peak of reserved memory" in html
    assert "http" not in html
    shown = vramwise.read(OOM).explain()._repr_html_()
    assert shown.startswith("<pre")
    assert "<script" not in shown


def test_notebooks_show_a_file_in_which_nothing_is_recorded():
    empty = vramwise.read(pickle.dumps({"segments": [], "device_traces": [[]]}, protocol=4))
    assert "Nothing is recorded" in empty._repr_html_()


def test_notebooks_say_where_some_steps_have_stacks():
    def step(number):
        entry = {"action": "alloc", "addr": 512 * (number + 1), "size": 512, "stream": 0, "time_us": 10 * number}
        frames = [{"name": "f", "filename": "train.py", "line": 1}]
        return entry | {"frames": frames} if number < 2 else entry

    marks = [{"stage": "END", "name": f"vramwise.step#{n}", "device": 0, "time_us": 10 * n + 5} for n in range(6)]
    data = {"segments": [], "device_traces": [[step(n) for n in range(6)]], "external_annotations": marks}
    html = vramwise.read(pickle.dumps(data, protocol=4))._repr_html_()
    assert "only 2 of the 6 steps in the history were recorded with stacks (0, 1)" in html


def test_names_from_a_file_cannot_be_html():
    trace = {"action": "alloc", "addr": 512, "size": 512, "stream": 0, "time_us": 1}
    frames = [{"name": "f", "filename": "<img src=x>.py", "line": 1}]
    block = {"address": 512, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": frames}
    segment = {
        "device": 0, "address": 512, "total_size": 512, "allocated_size": 512, "active_size": 512, "requested_size": 512,
        "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "blocks": [block],
    }  # fmt: skip
    snapshot = vramwise.read(
        pickle.dumps({"segments": [segment], "device_traces": [[trace | {"frames": frames}]]}, protocol=4)
    )
    html = snapshot._repr_html_() + snapshot.peak()._repr_html_()
    assert "img src" in html
    assert "<img" not in html


def test_tables_have_the_columns_of_the_converted_file(lstm, tmp_path):
    path = tmp_path / "events.csv"
    subprocess.run([PROGRAM, "convert", str(LSTM), "--to", "csv", "-o", str(path)], check=True, capture_output=True)
    with open(path) as file:
        header = file.readline().strip().split(",")
    table = lstm.events()
    assert table.column_names == header
    assert len(table) == lstm.replay().events
    assert len(lstm.blocks()) > len(lstm.segments()) > 0
    with pytest.raises(errors.ArgumentError, match="no device 5"):
        lstm.events(device=5)


def test_tables_are_read_over_the_arrow_interface(lstm):
    nanoarrow = pytest.importorskip("nanoarrow")
    for table in (lstm.events(), lstm.blocks(), lstm.segments()):
        # A table can be read as often as one likes.
        for _ in range(2):
            array = nanoarrow.Array(table)
            assert len(array) == len(table)
            assert [field.name for field in array.schema.fields] == table.column_names
    recorded = pickle.loads(gzip.decompress(LSTM.read_bytes()))["device_traces"][0]
    events = nanoarrow.Array(lstm.events())
    columns = {name: events.child(i) for i, name in enumerate(lstm.events().column_names)}
    assert columns["size_bytes"].to_pylist() == [event["size"] for event in recorded]
    addresses = [None if event["action"] == "oom" else event["addr"] for event in recorded]
    assert columns["address"].to_pylist() == addresses


def test_other_threads_run_meanwhile(lstm):
    ticks = 0
    done = threading.Event()

    def count():
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = ticks
    lstm.tune(candidates=40)
    during = ticks - before
    done.set()
    thread.join()
    assert during > 5


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this sends a POSIX signal")
def test_ctrl_c_ends_a_long_call():
    program = f"""
import os, signal, threading, vramwise
snapshot = vramwise.read({str(LSTM)!r})
threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    snapshot.tune(candidates=100_000, jitter=200)
except KeyboardInterrupt:
    print("interrupted")
    print(snapshot.replay().is_finding)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["interrupted", "False"], done.stderr
    assert done.returncode == 0


def peak_in_a_child(path):
    return vramwise.read(path).tune(candidates=4).recommended.peak_reserved_bytes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_can_ask_too(lstm):
    expected = lstm.tune(candidates=4).recommended.peak_reserved_bytes
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(peak_in_a_child, [LSTM]).get(timeout=120) == expected


def test_settings_are_checked_with_the_position_in_characters():
    from vramwise import _native

    assert _native.check_settings("expandable_segments:True", "2.8.0+cu126") == []
    assert [p.code for p in _native.check_settings("expandable_segments:True")] == ["needs-version"]
    (problem,) = _native.check_settings("max_split_size_mb:ä", "2.8")
    assert problem.code == "refused"
    assert problem.position == len("max_split_size_mb:")
    (problem,) = _native.check_settings("garbage_collection_threshold:0.8", "2.11")
    assert problem.code == "gc-needs-fraction"
    with pytest.raises(ValueError, match="version"):
        _native.check_settings("", "two")


def test_sizes_are_read_as_the_program_reads_them():
    from vramwise import _native

    assert _native.parse_size("2GiB") == 2 << 30
    with pytest.raises(ValueError, match="much"):
        _native.parse_size("much")


def test_json_of_a_report_is_plain_data(lstm):
    data = json.loads(lstm.summary().to_json())
    assert data == lstm.summary().to_dict()
    assert data["schema"] == 1


def test_spans_are_what_the_program_annotated():
    snapshot = vramwise.read(LEAK)
    spans = snapshot.spans()
    assert {span.name.split("#")[0] for span in spans} == {"Optimizer.zero_grad", "Optimizer.step"}
    steps = [span for span in spans if span.name.startswith("Optimizer.step")]
    assert len(steps) == 10
    assert all(one.last <= other.first for one, other in zip(steps, steps[1:]))
    assert 0 <= steps[0].first < steps[0].last <= snapshot.event_count() == 11735


def test_a_slice_is_what_the_program_cuts(tmp_path):
    part = vramwise.read(LEAK).slice(5000, 6000)
    printed("slice", LEAK, "--from", 5000, "--to", 6000, "-o", tmp_path / "part.pickle")
    written = vramwise.read(tmp_path / "part.pickle")
    assert part.event_count() == written.event_count() >= 1000
    assert part.replay().to_dict()["verify"] == written.replay().to_dict()["verify"]
    assert part.name.endswith("[5000:6000]")
    # The part of a part is a part.
    assert 10 <= part.slice(0, 10).event_count() < 50


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (0, -5), (6, 5), (0, 11736), (11736, None)])
def test_what_is_no_part_is_refused(first, last):
    with pytest.raises(errors.ArgumentError):
        vramwise.read(LEAK).slice(first, last)


def test_a_device_that_is_not_there_is_refused_everywhere():
    snapshot = vramwise.read(LEAK)
    for ask in (snapshot.spans, snapshot.event_count, lambda device: snapshot.slice(0, 5, device=device)):
        with pytest.raises(errors.ArgumentError, match="no device 7"):
            ask(device=7)


def test_each_phase_of_a_history_is_tuned_and_the_whole_can_be_replayed():
    snapshot = vramwise.read(LEAK)
    schedule = vramwise.SettingsSchedule.from_history(snapshot, ["Optimizer.step"], candidates=8)
    report = schedule.reports["Optimizer.step"]
    assert len(report.files) == 4
    assert report.recommended.peak_reserved_bytes <= report.baseline.peak_reserved_bytes
    steps = [span for span in snapshot.spans() if span.name.startswith("Optimizer.step")]
    assert set(schedule.changes) <= {event for span in steps for event in (span.first, span.last)}
    assert snapshot.replay(conf_at=schedule.changes).stats["reserved_bytes.all.peak"] > 0


def test_phases_that_are_not_there_and_options_that_mean_nothing():
    of = vramwise.SettingsSchedule.from_history
    with pytest.raises(errors.ArgumentError, match=r"Optimizer\.step"):
        of(LEAK, ["evaluation"])
    with pytest.raises(errors.ArgumentError, match="end of step 2"):
        of(LEAK, [3])
    with pytest.raises(ValueError, match="slices"):
        of(LEAK, ["Optimizer.step"], slices=0)
    with pytest.raises(TypeError):
        of(LEAK, ["Optimizer.step"], colour="blue")


@pytest.mark.parametrize("source", [None, 3, ["a.pickle"]])
def test_what_is_no_source_is_told(source):
    with pytest.raises(TypeError, match="from a path, from bytes"):
        vramwise.read(source)


@pytest.mark.parametrize("log", [None, 3, b"CUDA out of memory"])
def test_what_is_no_log_is_told(log):
    with pytest.raises(TypeError, match="the log is a text"):
        vramwise.explain_text(log)


def test_tables_of_a_device_that_is_not_there_are_refused():
    snapshot = vramwise.read(LEAK)
    for ask in (snapshot.events, snapshot.blocks, snapshot.segments):
        for device in (7, -1):
            with pytest.raises(errors.ArgumentError, match=f"no device {device}"):
                ask(device=device)


def test_what_is_compared_and_tuned_together_is_a_snapshot():
    snapshot = vramwise.read(LEAK)
    for ask in (snapshot.diff, snapshot.tune, lambda other: snapshot.replay(addresses=other)):
        with pytest.raises(TypeError, match="is no Snapshot"):
            ask("snapshot.pickle")
    with pytest.raises(TypeError, match="a mapping from events"):
        snapshot.replay(conf_at=[5])
    with pytest.raises(TypeError, match="are a text"):
        snapshot.replay(conf_at={5: None})
    with pytest.raises(TypeError, match="first is a whole number"):
        snapshot.slice("a")
