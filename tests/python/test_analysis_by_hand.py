"""Peaks, holders and leaks, computed a second time from the snapshots themselves.

Nothing here is shared with the program: the history is walked with a dictionary, and the block sizes come from
PyTorch's own rule for rounding. The recordings in testdata were made for this project, so that unpickling them is safe;
never unpickle a file from elsewhere.
"""

import gzip
import json
import os
import pickle
import subprocess
import unittest
from collections import Counter, defaultdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SNAPSHOTS = REPOSITORY / "testdata" / "snapshots"
PROGRAM = os.environ.get("VRAMWISE_BIN", str(REPOSITORY / "target" / "debug" / "vramwise"))
MIB = 1 << 20

# The histories that begin with an empty cache under the default rounding.
WHOLE = ["leak__default__stacks", "lstm_varlen__default", "moe__default", "oom_fragmented__default__stacks",
         "oom_growing_batch__default__stacks", "streams__default"]


def load(name):
    with gzip.open(SNAPSHOTS / f"{name}.snapshot.pickle.gz") as file:
        return pickle.load(file)


def counters(name):
    with gzip.open(SNAPSHOTS / f"{name}.stats.json.gz", "rt") as file:
        return json.load(file)["final"]


def report(*arguments):
    done = subprocess.run([PROGRAM, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def path(name):
    return str(SNAPSHOTS / f"{name}.snapshot.pickle.gz")


def history(snapshot):
    return max(snapshot["device_traces"], key=len)


def place(entry):
    """The innermost line of the recorded script, as the program writes it."""
    for frame in entry.get("frames", []):
        if frame["filename"] == "train.py":
            return f"train.py:{frame['line']} {frame['name']}"
    return None


def requested_curve(events):
    """Requested bytes that are active after each event."""
    active, total, curve = {}, 0, []
    for entry in events:
        address = entry.get("addr")
        if entry["action"] == "alloc":
            active[address] = entry["size"]
            total += entry["size"]
        elif entry["action"] == "free_completed":
            total -= active.pop(address)
        curve.append(total)
    return curve


def reserved_curve(events):
    total, curve = 0, []
    for entry in events:
        if entry["action"] in ("segment_alloc", "segment_map"):
            total += entry["size"]
        elif entry["action"] in ("segment_free", "segment_unmap"):
            total -= entry["size"]
        curve.append(total)
    return curve


def live_at(events, until):
    """The allocations that the program holds after event `until`, by address."""
    live = {}
    for entry in events[:until + 1]:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry
        elif entry["action"] == "free_requested":
            live.pop(entry["addr"], None)
    return live


class Peaks(unittest.TestCase):
    def test_peaks_are_those_of_a_walk_and_of_pytorch(self):
        for name in WHOLE:
            with self.subTest(name):
                events, told = history(load(name)), report("inspect", path(name))["devices"][0]
                peaks, counted = told["peaks"], counters(name)
                self.assertEqual(peaks["requested"]["bytes"], max(requested_curve(events)))
                self.assertEqual(peaks["reserved"]["bytes"], max(reserved_curve(events)))
                for mine, theirs in [("requested", "requested_bytes"), ("reserved", "reserved_bytes"),
                                     ("allocated", "allocated_bytes"), ("active", "active_bytes")]:
                    self.assertEqual(peaks[mine]["bytes"], counted[f"{theirs}.all.peak"], mine)

    def test_a_part_of_the_history_has_the_peak_of_a_walk(self):
        for name in WHOLE:
            with self.subTest(name):
                events = history(load(name))
                first, last = len(events) // 3, len(events) // 2
                told = report("inspect", path(name), "--from", str(first), "--to", str(last))["devices"][0]
                walked = reserved_curve(events)
                # What was held when the part began counts, and so does each event in it.
                expected = max(walked[first - 1:last + 1])
                self.assertEqual(told["peaks"]["reserved"]["bytes"], expected)

    def test_the_holders_at_the_peak_are_those_of_a_walk(self):
        for name in WHOLE:
            with self.subTest(name):
                events = history(load(name))
                memory = report("inspect", path(name), "--top", "1000")["devices"][0]["memory"]
                live = live_at(events, memory["event"])
                self.assertEqual(memory["requested_bytes"], sum(e["size"] for e in live.values()))
                self.assertEqual(memory["allocated_blocks"], len(live))
                sums = Counter()
                for entry in live.values():
                    sums[place(entry) or "(no stack recorded)"] += entry["size"]
                told = {group["name"]: group["requested_bytes"] for group in memory["groups"]}
                self.assertEqual(told, dict(sums))

    def test_the_categories_add_up(self):
        for name in WHOLE:
            with self.subTest(name):
                memory = report("inspect", path(name))["devices"][0]["memory"]
                self.assertEqual(sum(c["bytes"] for c in memory["categories"]), memory["allocated_bytes"])

    def test_parameters_and_optimizer_state_are_those_of_the_model(self):
        # GPT-2 with 4 layers of 512 and 50,257 tokens; Adam keeps two values a parameter.
        d, layers, tokens, positions = 512, 4, 50_257, 1024
        layer = 2 * 2 * d + (d * 3 * d + 3 * d) + (d * d + d) + (d * 4 * d + 4 * d) + (4 * d * d + d)
        parameters = 4 * (tokens * d + positions * d + layers * layer + 2 * d)
        memory = report("inspect", path("leak__default__stacks"))["devices"][0]["memory"]
        told = {c["category"]: c["bytes"] for c in memory["categories"]}
        self.assertLess(abs(told["parameters"] - parameters), MIB)
        self.assertLess(abs(told["optimizer state"] - 2 * parameters), 2 * MIB)


class Leaks(unittest.TestCase):
    def growth(self, snapshot):
        """For each place and size that never has fewer blocks at the end of a later step: bytes a step."""
        events = history(snapshot)
        ends = [a["time_us"] for a in snapshot["external_annotations"]
                if a["stage"] == "END" and a["name"].startswith("Optimizer.step")]
        live, series, waiting = {}, defaultdict(list), list(ends)

        def close():
            sums = Counter()
            for entry in live.values():
                sums[(place(entry), entry["size"])] += 1
            for key in set(sums) | set(series):
                before = series[key]
                before.extend([0] * (len(ends) - len(waiting) - len(before)))
                before.append(sums[key])

        for entry in events:
            while waiting and entry["time_us"] > waiting[0]:
                close()
                waiting.pop(0)
            if entry["action"] == "alloc":
                live[entry["addr"]] = entry
            elif entry["action"] == "free_requested":
                live.pop(entry["addr"], None)
        grown = {}
        for (line, size), counts in series.items():
            tail = counts[2:]
            if len(tail) > 3 and all(b > a for a, b in zip(tail, tail[1:])):
                grown[line] = grown.get(line, 0) + size * (tail[-1] - tail[0]) // (len(tail) - 1)
        return grown

    def test_the_leak_is_that_of_a_walk(self):
        grown = self.growth(load("leak__default__stacks"))
        told = report("leaks", path("leak__default__stacks"))["files"][0]["devices"][0]["leaks"]
        self.assertEqual({leak["place"]: leak["bytes_per_step"] for leak in told}, grown)
        self.assertEqual(len(grown), 1)

    def test_programs_without_a_leak_have_none(self):
        for name in WHOLE:
            if name.startswith("leak"):
                continue
            with self.subTest(name):
                self.assertEqual(self.growth(load(name)), {})
                self.assertEqual(report("leaks", path(name))["leaks_found"], 0)


if __name__ == "__main__":
    unittest.main()
