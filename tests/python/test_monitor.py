"""What memory is in use, said by step: when, and to whom."""

import contextlib
import io
import json
import logging
import os
import re
import stat
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import emulated

sys.path.insert(0, str(emulated.PACKAGE))

import vramwise
from vramwise.monitor.writers import JsonLines, PrometheusTextfile, TensorBoard, writers_for

MIB = emulated.MIB


class FakeCuda:
    """Counters that a test sets."""

    def __init__(self):
        self.allocated, self.resets, self.available = 10 * MIB, [], True

    def is_available(self):
        return self.available

    def current_device(self):
        return 1

    def device_count(self):
        return 2

    def mem_get_info(self, device):
        return 700 * MIB, 1000 * MIB

    def reset_peak_memory_stats(self, device):
        self.resets.append(device)

    def memory_stats_as_nested_dict(self, device):
        found = {"allocated_bytes": (self.allocated, 90 * MIB), "reserved_bytes": (100 * MIB, 120 * MIB),
                 "active_bytes": (11 * MIB, 95 * MIB), "inactive_split_bytes": (5 * MIB, 5 * MIB)}
        nested = {name: {"all": {"current": now, "peak": peak}} for name, (now, peak) in found.items()}
        return {**nested, "num_alloc_retries": 2, "num_ooms": 0}


class WithAFakeTorch(unittest.TestCase):
    def setUp(self):
        self.cuda = FakeCuda()
        torch = SimpleNamespace(cuda=self.cuda, version=SimpleNamespace(cuda="13.0", hip=None),
                                device=lambda text: SimpleNamespace(type="cuda", index=int(text.split(":")[1])))
        for patch in (mock.patch.dict(sys.modules, {"torch": torch}), mock.patch.dict(os.environ, {"RANK": "3"})):
            patch.start()
            self.addCleanup(patch.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_every_so_many_steps_a_reading_is_taken(self):
        lines = []
        monitor = vramwise.log_memory(lines.append, every=3)
        taken = [monitor.step() is not None for _ in range(7)]
        self.assertEqual(taken, [False, False, True, False, False, True, False])
        self.assertTrue(lines[0].startswith("step 2, cuda:1: allocated 10.00 MiB (peak 90.00 MiB), reserved 100.00 MiB"))
        self.assertIn("driver free 700.00 MiB, others 200.00 MiB, 2 retries", lines[0])
        self.assertEqual(len(lines), 2)

    def test_the_program_may_count_itself(self):
        lines = []
        vramwise.log_memory(lines.append, label="epoch", device="cuda:0").step(41)
        self.assertTrue(lines[0].startswith("epoch 41, cuda:0:"))

    def test_a_decorated_function_is_a_step_unless_it_raises(self):
        lines = []

        @vramwise.log_memory(lines.append)
        def train(fail=False):
            """Trains."""
            if fail:
                raise ZeroDivisionError
            return 7

        self.assertEqual((train(), train.__name__, train.__doc__), (7, "train", "Trains."))
        with self.assertRaises(ZeroDivisionError):
            train(fail=True)
        self.assertEqual(len(lines), 1)

    def test_a_loop_can_be_watched(self):
        lines = []
        self.assertEqual(list(vramwise.log_memory(lines.append, every=2).watch("abcd")), ["a", "b", "c", "d"])
        self.assertEqual([line[:6] for line in lines], ["step 1", "step 3"])

    def test_a_block_says_it_at_its_end_and_an_error_leaves_it(self):
        lines = []
        with self.assertRaises(ZeroDivisionError), vramwise.log_memory(lines.append):
            self.assertEqual(lines, [])
            raise ZeroDivisionError
        self.assertEqual(len(lines), 1)

    def test_peaks_are_reset_where_that_is_asked(self):
        vramwise.log_memory(lambda text: None).step()
        self.assertEqual(self.cuda.resets, [])
        vramwise.log_memory(lambda text: None, reset_peaks=True).step()
        self.assertEqual(self.cuda.resets, [1])

    def test_the_driver_is_left_alone_where_that_is_asked(self):
        reading = vramwise.log_memory(lambda text: None, driver=False).step()
        self.assertIsNone(reading.free_bytes)
        self.assertIsNone(reading.other_bytes)
        self.assertNotIn("driver", str(reading))

    def test_a_logger_gets_its_lines_at_level_info(self):
        with self.assertLogs("memory", logging.INFO) as caught:
            vramwise.log_memory(logging.getLogger("memory")).step()
        self.assertIn("allocated 10.00 MiB", caught.output[0])

    def test_print_is_where_it_goes_unless_told_otherwise(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            vramwise.log_memory().step()
        self.assertTrue(out.getvalue().startswith("step 0, cuda:1:"))

    def test_several_at_once_and_ones_own(self):
        lines, readings = [], []
        own = SimpleNamespace(write=readings.append)
        vramwise.log_memory([lines.append, own, self.folder / "memory.jsonl"]).step()
        self.assertEqual((len(lines), readings[0].rank, readings[0].device), (1, 3, 1))
        self.assertTrue((self.folder / "memory.jsonl").is_file())

    def test_lines_of_json_have_all_of_it(self):
        path = self.folder / "memory.jsonl"
        monitor = vramwise.log_memory(path)
        monitor.step()
        self.cuda.allocated = 20 * MIB
        monitor.step()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([row["allocated_bytes"] for row in rows], [10 * MIB, 20 * MIB])
        self.assertEqual((rows[1]["step"], rows[1]["rank"], rows[1]["other_bytes"]), (1, 3, 200 * MIB))

    def test_prometheus_finds_a_whole_file_that_it_can_read(self):
        path = self.folder / "vramwise.prom"
        monitor = vramwise.log_memory(PrometheusTextfile(path, {"job": 'a "quoted"\\ name'}))
        monitor.step()
        text = path.read_text()
        self.assertIn('vramwise_torch_allocated_bytes{gpu_index="1",job="a \\"quoted\\"\\\\ name",rank="3"} 10485760\n', text)
        self.assertIn("# TYPE vramwise_torch_alloc_retries_total counter\n", text)
        # The text format: each metric once, help and type before its samples, names and values well formed.
        names = re.findall(r"^# TYPE (\S+) (?:gauge|counter)$", text, re.MULTILINE)
        self.assertEqual(len(names), len(set(names)))
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) \w+ .+|\w+\{(\w+="([^"\\]|\\.)*",?)+\} \d+)$')
        self.assertEqual(os.listdir(self.folder), ["vramwise.prom"])
        self.assertEqual(stat.S_IMODE(path.stat().st_mode) & 0o444, 0o444, "another user's collector reads it")

    def test_devices_share_a_prometheus_file(self):
        writer = PrometheusTextfile(self.folder / "vramwise.prom")
        for device in ("cuda:1", "cuda:0"):
            vramwise.log_memory(writer, device=device).step()
        found = re.findall(r'^vramwise_step\{gpu_index="(\d)"', writer.text(), re.MULTILINE)
        self.assertEqual(found, ["0", "1"])

    def test_tensorboard_gets_a_chart_for_each_size(self):
        added = []
        summary = SimpleNamespace(add_scalar=lambda name, value, global_step: added.append((name, value, global_step)))
        vramwise.log_memory(summary).step(5)
        self.assertIn(("memory/cuda1/allocated_gib", 10 / 1024, 5), added)
        self.assertIn(("memory/cuda1/num_alloc_retries", 2, 5), added)
        self.assertNotIn("memory/cuda1/time", [name for name, _, _ in added])
        self.assertIsInstance(writers_for(summary)[0], TensorBoard)

    def test_what_cannot_be_written_is_one_warning_and_the_others_get_theirs(self):
        lines = []
        monitor = vramwise.log_memory([JsonLines(self.folder / "no" / "folder.jsonl"), lines.append])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            monitor.step()
            monitor.step()
        self.assertEqual((len(caught), len(lines)), (1, 2))
        self.assertIn("could not be written", str(caught[0].message))

    def test_without_a_device_it_warns_once(self):
        self.cuda.available = False
        monitor = vramwise.log_memory(print)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertIsNone(monitor.step())
            self.assertIsNone(monitor.step())
        self.assertEqual(len(caught), 1)

    def test_what_means_nothing_is_refused_at_once(self):
        for wrong, why in [({"every": 0}, "at least 1"), ({"every": 1.5}, "whole number"), ({"to": "memory.csv"}, ".jsonl"),
                           ({"to": 7}, "cannot go to 7"), ({"to": sys.stderr}, "cannot go to")]:
            with self.subTest(wrong), self.assertRaisesRegex((ValueError, TypeError), re.escape(why)):
                vramwise.log_memory(**wrong)
        with self.assertRaisesRegex(ValueError, "no name for a label"):
            PrometheusTextfile("x.prom", {"a-b": "c"})


if __name__ == "__main__":
    unittest.main()
