"""Converted files, as the programs that they are for see them.

Each test needs a program or package that is not part of this project, and is skipped where it is not installed:
`cargo xtask test --tools` installs what `requirements-tools.txt` names. PyTorch is tried where it happens to be there;
Perfetto's trace processor is a program that its package fetches by itself, so it is tried here only where
PERFETTO_TRACE_PROCESSOR names one; ``test_perfetto_import.py`` runs the one of its user interface. Without either a
trace is held against the documented format (the trace event format in JSON), event by event, and put into the classes
of Perfetto's package that describe its own files.
"""

import contextlib
import csv
import gzip
import importlib.util
import io
import itertools
import json
import os
import pathlib
import pickle
import subprocess
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SNAPSHOTS = REPOSITORY / "testdata" / "snapshots"
PROGRAM = os.environ.get("VRAMWISE_BIN", str(REPOSITORY / "target" / "debug" / "vramwise"))
# Recordings made for this project; files from elsewhere are never unpickled here.
RECORDINGS = ["oom_fragmented__default__stacks", "cudagraph__default", "lstm_varlen__expandable", "streams__default"]
TRACE_PROCESSOR = os.environ.get("PERFETTO_TRACE_PROCESSOR")

# For each phase what an event must have besides ``ph`` and ``pid``.
EVENT_KEYS = {
    "M": {"name": str, "tid": int, "args": dict},
    "C": {"name": str, "ts": int, "args": dict},
    "X": {"name": str, "tid": int, "ts": int, "dur": int, "args": dict},
    "i": {"name": str, "tid": int, "ts": int, "s": str, "args": dict},
}


def installed(*modules):
    """Whether all of these can be imported."""
    with contextlib.suppress(ModuleNotFoundError):
        return all(importlib.util.find_spec(module) is not None for module in modules)
    return False


def recorded(name):
    with gzip.open(SNAPSHOTS / f"{name}.snapshot.pickle.gz") as file:
        return pickle.load(file)


class Converted(unittest.TestCase):
    """A folder for the files of one test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_vramwise(self, command, name, *options, to):
        source = SNAPSHOTS / f"{name}.snapshot.pickle.gz"
        path = self.folder / to
        arguments = [PROGRAM, command, str(source), *options, "-f", "-q", "-o", str(path)]
        run = subprocess.run(arguments, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return path

    def trace_events(self, name):
        path = self.run_vramwise("convert", name, "--to", "perfetto", to="trace.json")
        trace = json.loads(path.read_bytes())
        self.assertEqual(set(trace), {"displayTimeUnit", "traceEvents"})
        return trace["traceEvents"]


class Pickles(Converted):
    def test_a_converted_pickle_says_what_the_original_says(self):
        for name in RECORDINGS:
            with self.subTest(name):
                path = self.run_vramwise("convert", name, "--to", "pickle4", to="a.pickle")
                ours, theirs = pickle.loads(path.read_bytes()), recorded(name)
                self.assertEqual(ours["segments"], theirs["segments"])
                self.assertEqual(ours["allocator_settings"], theirs["allocator_settings"])
                for ours, theirs in zip(ours["device_traces"], theirs["device_traces"], strict=True):
                    self.assertEqual([e["action"] for e in ours], [e["action"] for e in theirs])
                    self.assertEqual([e.get("frames", []) for e in ours], [e.get("frames", []) for e in theirs])

    def test_csv_has_a_row_for_each_event(self):
        for name in RECORDINGS:
            with self.subTest(name):
                path = self.run_vramwise("convert", name, "--to", "csv", to="events.csv")
                with path.open(newline="") as file:
                    rows = list(csv.DictReader(file))
                events = [e for trace in recorded(name)["device_traces"] for e in trace]
                self.assertEqual([r["action"] for r in rows], [e["action"] for e in events])
                self.assertEqual([int(r["size_bytes"]) for r in rows], [e["size"] for e in events])


@unittest.skipUnless(installed("torch.cuda._memory_viz"), "PyTorch is not installed")
class MemoryViz(Converted):
    """PyTorch's own functions, but for the drawing of flame graphs, which fetches a program."""

    def views(self, snapshot):
        from torch.cuda import _memory_viz as viz

        def undrawn(text, *_):
            return text

        with contextlib.redirect_stdout(io.StringIO()):
            return {
                "trace": viz.trace(snapshot),
                "segsum": viz.segsum(snapshot),
                "memory": viz.memory(snapshot, format_flamegraph=undrawn),
                "segments": viz.segments(snapshot, format_flamegraph=undrawn),
                "trace_plot": len(viz.trace_plot(snapshot)) > 1000,
                "segment_plot": len(viz.segment_plot(snapshot)) > 1000,
            }

    def test_a_converted_file_shows_the_same_as_the_original(self):
        for name in RECORDINGS:
            with self.subTest(name):
                path = self.run_vramwise("convert", name, "--to", "pickle4", to="a.pickle")
                self.assertEqual(self.views(pickle.loads(path.read_bytes())), self.views(recorded(name)))

    def test_slices_and_redacted_files_open(self):
        for name in RECORDINGS:
            with self.subTest(name):
                slice_ = self.run_vramwise("slice", name, "--from", "100", "--to", "300", to="slice.pickle")
                self.assertTrue(self.views(pickle.loads(slice_.read_bytes()))["trace"])
                redacted = self.run_vramwise("redact", name, to="redacted.pickle")
                self.assertTrue(self.views(pickle.loads(redacted.read_bytes()))["segsum"])


@unittest.skipUnless(installed("pyarrow.parquet"), "pyarrow is not installed")
class PyArrow(Converted):
    def test_the_columns_are_those_of_the_documentation(self):
        from pyarrow import parquet

        guide = (REPOSITORY / "docs" / "guides" / "files.md").read_text()
        for table in ["events", "blocks", "segments"]:
            path = self.run_vramwise("convert", RECORDINGS[0], "--to", "parquet", "--table", table, to="t.parquet")
            read = parquet.read_table(path)
            documented = guide.split(f"### `{table}`")[1].split("###")[0]
            for field in read.schema:
                self.assertIn(f"| `{field.name}` | {field.type} |", documented)
            self.assertEqual(documented.count("\n| `"), len(read.schema))

    def test_the_values_are_those_of_the_recording(self):
        from pyarrow import parquet

        for name in RECORDINGS:
            with self.subTest(name):
                path = self.run_vramwise("convert", name, "--to", "parquet", to="t.parquet")
                read = parquet.read_table(path)
                events = [e for trace in recorded(name)["device_traces"] for e in trace]
                self.assertEqual(read["action"].to_pylist(), [e["action"] for e in events])
                self.assertEqual(read["address"].to_pylist(), [e.get("addr") for e in events])
                self.assertEqual(read["device_free_bytes"].to_pylist(), [e.get("device_free") for e in events])
                self.assertEqual(read["size_bytes"].to_pylist(), [e["size"] for e in events])


@unittest.skipUnless(installed("duckdb"), "duckdb is not installed")
class DuckDb(Converted):
    def test_parquet_and_csv_answer_the_same_question(self):
        import duckdb

        question = (
            "select action, count(*), sum(size_bytes), min(address), count(place), count(freed_by_event) "
            "from '{}' group by action order by action"
        )
        for name in RECORDINGS:
            with self.subTest(name):
                answers = [
                    duckdb.sql(question.format(self.run_vramwise("convert", name, "--to", to, to=f"t.{to}"))).fetchall()
                    for to in ["parquet", "csv"]
                ]
                self.assertEqual(answers[0], answers[1])
                self.assertTrue(answers[0])


class TraceEvents(Converted):
    """A trace against the documented format, and against the recording that it shows."""

    def test_every_event_is_one_of_the_format(self):
        for name in RECORDINGS:
            with self.subTest(name):
                events = self.trace_events(name)
                self.assertGreater(len(events), 100)
                for event in events:
                    keys = EVENT_KEYS[event["ph"]] | {"ph": str, "pid": int}
                    self.assertEqual(set(event), set(keys), event)
                    for key, kind in keys.items():
                        self.assertIs(type(event[key]), kind, event)
                    self.assertGreaterEqual(min(event.get("ts", 0), event.get("dur", 0)), 0, event)
                    if event["ph"] == "M":
                        value = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}
                        self.assertEqual(set(event["args"]), {value[event["name"]]})
                    if event["ph"] == "C":
                        self.assertTrue(all(type(v) is int and v >= 0 for v in event["args"].values()), event)
                    if event["ph"] == "i":
                        self.assertIn(event["s"], "gpt")

    def test_slices_of_one_row_do_not_overlap_and_every_row_has_a_name(self):
        for name in RECORDINGS:
            with self.subTest(name):
                events = self.trace_events(name)
                named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
                rows = {}
                for event in (e for e in events if e["ph"] == "X"):
                    rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
                self.assertEqual(set(rows), named)
                for row, slices in rows.items():
                    for (_, end), (start, _) in itertools.pairwise(sorted(slices)):
                        self.assertLessEqual(end, start, row)

    def test_counters_slices_and_marks_are_those_of_the_recording(self):
        for name in RECORDINGS:
            with self.subTest(name):
                events = self.trace_events(name)
                (history,) = [trace for trace in recorded(name)["device_traces"] if trace]
                blocks = [e for e in events if e["ph"] == "X" and "size_bytes" in e["args"]]
                allocs = {i: e["size"] for i, e in enumerate(history) if e["action"] == "alloc"}
                self.assertEqual({e["args"]["event"]: e["args"]["size_bytes"] for e in blocks}, allocs)
                marks = [e["args"]["size_bytes"] for e in events if e["ph"] == "i"]
                self.assertEqual(marks, [e["size"] for e in history if e["action"] == "oom"])
                counted = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == "reserved"]
                held = sum(s["total_size"] for s in recorded(name)["segments"])
                self.assertEqual(counted[-1], held)


@unittest.skipUnless(
    installed("perfetto.protos.perfetto.trace.perfetto_trace_pb2"), "Perfetto's package is not installed"
)
class PerfettoPackage(Converted):
    """The same events in the classes of Perfetto's own files, whose fields have fixed widths."""

    def test_every_event_can_be_kept_as_perfetto_s_own(self):
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

        for name in RECORDINGS:
            with self.subTest(name):
                events = [e for e in self.trace_events(name) if e["ph"] != "M"]
                trace = Trace()
                for event in events:
                    packet = trace.packet.add()
                    packet.timestamp = event["ts"] * 1000
                    packet.track_event.name = event["name"]
                    legacy = packet.track_event.legacy_event
                    legacy.phase, legacy.pid_override = ord(event["ph"]), event["pid"]
                    legacy.tid_override, legacy.duration_us = event.get("tid", 0), event.get("dur", 0)
                    for key, value in event["args"].items():
                        note = packet.track_event.debug_annotations.add()
                        note.name = key
                        if isinstance(value, int):
                            note.int_value = value
                        elif value is not None:
                            note.string_value = value
                again = Trace()
                again.ParseFromString(trace.SerializeToString())
                self.assertEqual(len(again.packet), len(events))
                for packet, event in zip(again.packet, events, strict=True):
                    legacy = packet.track_event.legacy_event
                    self.assertEqual((packet.timestamp, chr(legacy.phase)), (event["ts"] * 1000, event["ph"]))
                    self.assertEqual(packet.track_event.name, event["name"])
                    values = {
                        n.name: n.int_value if n.HasField("int_value") else n.string_value
                        for n in packet.track_event.debug_annotations
                        if n.WhichOneof("value")
                    }
                    self.assertEqual(values, {k: v for k, v in event["args"].items() if v is not None})


@unittest.skipUnless(installed("perfetto") and TRACE_PROCESSOR, "there is no trace processor of Perfetto")
class Perfetto(Converted):
    def test_the_importer_takes_counters_and_slices(self):
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

        for name in RECORDINGS:
            with self.subTest(name):
                path = self.run_vramwise("convert", name, "--to", "perfetto", to="trace.json")
                config = TraceProcessorConfig(bin_path=TRACE_PROCESSOR)
                with TraceProcessor(trace=str(path), config=config) as trace:
                    snapshot = recorded(name)
                    allocs = sum(e["action"] == "alloc" for t in snapshot["device_traces"] for e in t)
                    (row,) = trace.query("select count(*) as n from slice where name glob '*iB *' or name glob '* B *'")
                    self.assertGreaterEqual(row.n, allocs)
                    errors = "select name, value from stats where severity = 'error' and value > 0"
                    self.assertEqual(list(trace.query(errors)), [])
                    (row,) = trace.query("select max(value) as most from counter")
                    self.assertGreater(row.most, 0)


if __name__ == "__main__":
    unittest.main()
