"""Converted files, as the programs that they are for see them.

Each test needs a program or package that is not part of this project, and is skipped where it is not installed:
`cargo xtask test --tools` installs what `requirements-tools.txt` names. PyTorch is tried where it happens to be there;
Perfetto's trace processor is a program that its package fetches by itself, so it is tried only where
PERFETTO_TRACE_PROCESSOR names one.
"""

import contextlib
import csv
import gzip
import importlib.util
import io
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
