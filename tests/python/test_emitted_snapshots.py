"""What `vramwise replay --emit` writes, as Python sees it.

PyTorch's own tools read snapshots with Python's pickle module; so these tests do, too. They need nothing but the
standard library. `cargo xtask test` runs them with VRAMWISE_BIN set to the program under test.
"""

import gzip
import os
import pathlib
import pickle
import pickletools
import subprocess
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SNAPSHOTS = REPOSITORY / "testdata" / "snapshots"
PROGRAM = os.environ.get("VRAMWISE_BIN", str(REPOSITORY / "target" / "debug" / "vramwise"))
# Recordings made for this project; files from elsewhere are never unpickled here.
RECORDINGS = ["cudagraph__default", "lstm_varlen__expandable", "oom_fragmented__default", "streams__default"]
# The card they were made on: its size decides where the second expandable segment begins.
CARD = ["--total", "150109880320"]
PLAIN = {
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINGET", "LONG_BINGET", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE",
    "SETITEM", "SETITEMS", "APPEND", "APPENDS", "TUPLE1", "TUPLE2", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "NEWTRUE", "NEWFALSE", "NONE", "SHORT_BINUNICODE", "BINUNICODE",
}


def recorded(name):
    with gzip.open(SNAPSHOTS / f"{name}.snapshot.pickle.gz") as file:
        return pickle.load(file)


def emitted(name, *options):
    """The bytes that the program writes for a recording."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "emitted.pickle"
        source = SNAPSHOTS / f"{name}.snapshot.pickle.gz"
        command = [PROGRAM, "replay", str(source), "--emit", str(path), "--json", *CARD, *options]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode not in (0, 1):
            raise AssertionError(f"{command} ended with {run.returncode}: {run.stderr}")
        return path.read_bytes()


def without_stacks(segments):
    """Segments and blocks without frames, which a replay does not have."""
    return [
        {**{k: v for k, v in segment.items() if k not in ("frames", "blocks")},
         "blocks": [{k: v for k, v in block.items() if k != "frames"} for block in segment["blocks"]]}
        for segment in segments
    ]


def entries(snapshot):
    return [(e["action"], e.get("addr", e.get("device_free")), e["size"], e["stream"])
            for trace in snapshot["device_traces"] for e in trace if e["action"] != "snapshot"]


class EmittedSnapshots(unittest.TestCase):
    def test_the_state_at_the_end_is_the_recorded_one(self):
        for name in RECORDINGS:
            with self.subTest(name):
                snapshot = pickle.loads(emitted(name))
                self.assertEqual(without_stacks(snapshot["segments"]), without_stacks(recorded(name)["segments"]))

    def test_the_history_is_the_recorded_one(self):
        for name in RECORDINGS:
            with self.subTest(name):
                written, wanted = entries(pickle.loads(emitted(name))), entries(recorded(name))
                self.assertEqual(len(written), len(wanted))
                differ = [pair for pair in zip(written, wanted) if pair[0] != pair[1] and pair[0][0] != "oom"]
                self.assertEqual(differ[:3], [])

    def test_the_pickle_is_of_protocol_4_and_holds_plain_data_only(self):
        data = emitted("streams__default")
        self.assertEqual(data[:2], b"\x80\x04")
        self.assertLessEqual({opcode.name for opcode, _, _ in pickletools.genops(data)}, PLAIN)

    def test_the_keys_are_those_that_pytorch_writes(self):
        for name in RECORDINGS:
            with self.subTest(name):
                written, real = pickle.loads(emitted(name)), recorded(name)
                self.assertEqual(set(written), set(real))
                for written_segment, real_segment in zip(written["segments"], real["segments"]):
                    self.assertEqual(set(written_segment), set(real_segment))
                    for written_block, real_block in zip(written_segment["blocks"], real_segment["blocks"]):
                        self.assertEqual(set(written_block), set(real_block))

    def test_other_settings_are_written_into_the_snapshot(self):
        snapshot = pickle.loads(emitted("lstm_varlen__default", "--conf", "expandable_segments:True"))
        self.assertTrue(snapshot["allocator_settings"]["expandable_segments"])
        self.assertTrue(all(segment["is_expandable"] for segment in snapshot["segments"]))
        for segment in snapshot["segments"]:
            self.assertEqual(sum(block["size"] for block in segment["blocks"]), segment["total_size"])


if __name__ == "__main__":
    unittest.main()
