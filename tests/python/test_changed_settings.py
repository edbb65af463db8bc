"""Recordings in which the allocator's settings changed in mid-run: noted by the recorder, applied by the replay."""

import json
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import emulated

sys.path.insert(0, str(emulated.PACKAGE))

from vramwise.recorder import changes

WHY_NOT = emulated.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OnTheEmulatedDevice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        room = Path(cls.folder.name)
        done = emulated.run(Path(__file__).resolve().parent / "programs" / "changed_settings.py", room)
        if done.returncode:
            raise AssertionError(done.stderr)
        cls.file, cls.second = room / "end_rank0_step6.pickle", room / "end_rank0.pickle"
        cls.about = json.loads(cls.file.with_suffix(".info").read_text())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_description_names_each_change_and_its_event(self):
        told = [(change["settings"], len(change["events"])) for change in self.about["settings"]["changes"]]
        self.assertEqual(told, [("expandable_segments:True", 1), ("expandable_segments:False,max_split_size_mb:32", 1)])
        first, second = (change["events"][0] for change in self.about["settings"]["changes"])
        self.assertTrue(0 < first < second < self.about["recording"]["entries"][0])

    def test_another_recording_knows_nothing_of_them(self):
        about = json.loads(self.second.with_suffix(".info").read_text())
        self.assertEqual(about["settings"]["changes"], [])

    def test_the_replay_applies_them_at_their_events(self):
        done = emulated.vramwise("replay", self.file)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        event = self.about["settings"]["changes"][0]["events"][0]
        self.assertIn(f"the settings changed in mid-run, before event {event} ('expandable_segments:True')", done.stdout)
        report = json.loads(emulated.vramwise("replay", "--json", self.file).stdout)
        self.assertEqual(report["settings"]["recorded"], "")

    def test_other_settings_are_asked_of_the_whole_run(self):
        done = emulated.vramwise("replay", self.file, "--conf", "", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(json.loads(done.stdout)["device_calls"]["map"], 0)

    def test_tune_says_that_they_changed_and_recommends(self):
        done = emulated.vramwise("tune", self.file, "--candidates", "8")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("the settings changed in mid-run", done.stdout + done.stderr)

    def test_a_slice_keeps_them(self):
        cut = Path(self.folder.name) / "cut.pickle"
        entries = self.about["recording"]["entries"][0]
        said = emulated.vramwise("slice", "--json", self.file, "--from", "10", "--to", entries - 5, "-o", cut)
        self.assertTrue(json.loads(said.stdout)["replays"], said.stderr)
        done = emulated.vramwise("replay", cut)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_slice_without_a_change_has_the_settings_of_its_time(self):
        first, second = (change["events"][0] for change in self.about["settings"]["changes"])
        parts = {"": (0, first), "expandable_segments:True": (first, second)}
        for number, (settings, (begin, end)) in enumerate(parts.items()):
            cut = Path(self.folder.name) / f"part{number}.pickle"
            emulated.vramwise("slice", self.file, "--from", begin, "--to", end, "-o", cut)
            report = json.loads(emulated.vramwise("replay", "--json", cut).stdout)
            self.assertEqual(report["settings"]["recorded"], settings)

    def test_inspect_and_explain_read_it(self):
        done = emulated.vramwise("inspect", self.file, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(emulated.vramwise("explain", self.file, "--capacity", "600MiB", "--json").stdout)
        device = report["snapshots"][0]
        self.assertEqual((device["exact"], device["fails"]), (True, True), device["not_exact_reason"])
        self.assertIn("the settings changed in mid-run", json.dumps(report))


class WithoutPytorch(unittest.TestCase):
    def test_a_change_that_was_refused_is_none(self):
        def refuse(text):
            raise RuntimeError("no such option")

        torch = SimpleNamespace(
            cuda=SimpleNamespace(is_initialized=lambda: False),
            autograd=SimpleNamespace(profiler=SimpleNamespace(record_function=lambda name: _Span())),
        )
        changes.forget()
        with self.assertRaises(RuntimeError):
            changes.through(torch, refuse)("bad:1")
        self.assertIsNone(changes.note({}))
        changes.through(torch, lambda text: None)("max_split_size_mb:64")
        note = changes.note({})
        self.assertEqual([change["conf"] for change in note["changes"]], ["max_split_size_mb:64"])
        changes.forget()


class _Span:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


if __name__ == "__main__":
    unittest.main()
