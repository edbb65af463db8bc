"""Allocator settings that change while a program runs."""

import contextlib
import json
import os
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
from vramwise.callbacks.loop import steps
from vramwise.settings import current as settings
from vramwise.settings import history, strings

MIB = emulated.MIB
WHY_NOT = emulated.why_not()


@contextlib.contextmanager
def warned():
    """The warnings of a block. unittest's own way looks into every module there is, and some import torch when looked at."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield said


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OnTheEmulatedDevice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = emulated.run(Path(__file__).resolve().parent / "programs" / "settings_cases.py",
                            env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:200"})
        if done.returncode:
            raise AssertionError(done.stderr)
        cls.seen = json.loads(done.stdout)

    def test_before_the_first_tensor_everything_can_be_set(self):
        self.assertEqual(self.seen["before_cuda"], "max_split_size_mb:200")
        self.assertAlmostEqual(self.seen["fraction"], 0.9, places=3)

    def test_a_change_counts_from_the_next_request_on(self):
        self.assertEqual((self.seen["start"], self.seen["returned"]), ("max_split_size_mb:200",) * 2)
        self.assertEqual(self.seen["oversize_grew"], 100)
        self.assertEqual((self.seen["in_force"], self.seen["splits_now"]), (400 * MIB, 0))

    def test_what_is_refused_changes_nothing(self):
        self.assertEqual(self.seen["refused"]["kind"], "SettingsError")
        self.assertIn("no_such_option", self.seen["refused"]["text"])
        self.assertEqual(self.seen["after_refused"], [400 * MIB, "max_split_size_mb:400"])
        self.assertEqual((self.seen["malformed"]["kind"], self.seen["malformed"]["position"]), ("SettingsError", 0))

    def test_what_cannot_change_any_more_is_said(self):
        self.assertIn("backend cannot be changed now", self.seen["backend"]["text"])
        self.assertIsNone(self.seen["same_backend"])
        self.assertIn("set_per_process_memory_fraction", self.seen["fraction_late"]["text"])

    def test_expandable_segments_are_for_new_memory_and_stay_until_switched_off(self):
        self.assertEqual((self.seen["expandable_grew"], self.seen["stays"]), (100, True))
        self.assertEqual(self.seen["passed_over"], 90)

    def test_phases_lie_over_the_settings_of_the_process(self):
        self.assertEqual(self.seen["phases"], [["train", 200, False, 8], ["eval", 200, True, 0], ["train", 200, False, 8]])
        self.assertEqual(self.seen["restored"], ["max_split_size_mb:200", False])

    def test_steps_change_settings_and_the_cache_is_released_with_them(self):
        self.assertEqual(self.seen["steps"], [[0.0, True, True], [0.0, True, False], [0.8, True, True], [0.8, True, True]])

    def test_nothing_is_warned_of(self):
        self.assertEqual([text for text in self.seen["warnings"] if "deprecated" in text], [])


def fake_torch(version="2.6.0", initialized=True, **functions):
    calls = []
    found = {name: (lambda text, name=name: calls.append((name, text))) for name in functions.pop("names", ())}
    cuda = SimpleNamespace(is_initialized=lambda: initialized, get_allocator_backend=lambda: "native",
                           is_available=lambda: True, memory_snapshot=lambda mempool_id=None: [],
                           empty_cache=lambda: calls.append(("empty_cache",)))
    return SimpleNamespace(cuda=cuda, _C=SimpleNamespace(**found, **functions), calls=calls, __version__=version,
                           version=SimpleNamespace(cuda="12.4", hip=None))


class EachRelease(unittest.TestCase):
    def setUp(self):
        for patch in (mock.patch.dict(os.environ, {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}),
                      mock.patch.object(settings, "_set", []), mock.patch.object(settings, "_sticky", {})):
            patch.start()
            self.addCleanup(patch.stop)

    def use(self, torch):
        patched = mock.patch.dict(sys.modules, {"torch": torch})
        patched.start()
        self.addCleanup(patched.stop)
        return torch

    def test_the_function_has_had_several_names(self):
        old, new = "_cuda_cudaCachingAllocator_set_allocator_settings", "_accelerator_setAllocatorSettings"
        for names, expected in [((old,), old), ((new,), new), ((old, new), new)]:
            with self.subTest(names):
                torch = self.use(fake_torch(names=names))
                vramwise.set_allocator_settings("max_split_size_mb:128")
                self.assertEqual(torch.calls, [(expected, "max_split_size_mb:128")])

    def test_what_outlives_a_string_is_put_back_after_each_phase(self):
        torch = self.use(fake_torch(names=("_accelerator_setAllocatorSettings",)))
        schedule = vramwise.SettingsSchedule({"eval": "expandable_segments:True"})
        before, phase = "max_split_size_mb:64", "expandable_segments:True,max_split_size_mb:64"
        for _ in range(2):
            with schedule.phase("eval"):
                pass
        with schedule:
            schedule.enter("eval")
        told = [call[1] for call in torch.calls]
        back = phase.replace("True", "False")
        self.assertEqual(told, [phase, back, before] * 3)

    def test_another_allocator_has_settings_of_its_own(self):
        torch = self.use(fake_torch(names=("_accelerator_setAllocatorSettings",)))
        torch.cuda.get_allocator_backend = lambda: "vramwise"
        with self.assertRaisesRegex(vramwise.VramwiseError, "vramwise.set_settings"):
            vramwise.set_allocator_settings("max_split_size_mb:128")
        self.assertEqual(torch.calls, [])

    def test_a_pytorch_without_cuda_is_told(self):
        torch = self.use(fake_torch(names=("_accelerator_setAllocatorSettings",)))
        del torch.cuda.get_allocator_backend
        with self.assertRaisesRegex(vramwise.VramwiseError, "built without CUDA"):
            vramwise.set_allocator_settings("max_split_size_mb:128")

    def test_without_any_the_error_says_what_to_do(self):
        self.use(fake_torch())
        with self.assertRaisesRegex(vramwise.VramwiseError, "before the program starts"):
            vramwise.set_allocator_settings("max_split_size_mb:128")

    def test_where_pytorch_does_not_tell_the_string_it_is_remembered(self):
        self.use(fake_torch(names=("_accelerator_setAllocatorSettings",)))
        self.assertEqual(vramwise.set_allocator_settings("max_split_size_mb:128"), "max_split_size_mb:64")
        self.assertEqual(vramwise.set_allocator_settings(""), "max_split_size_mb:128")
        self.assertEqual(settings.allocator_settings(), "")

    def test_what_pytorch_refuses_is_put_back(self):
        told = []

        def refuse(text):
            told.append(text)
            if "bad" in text:
                raise RuntimeError("Unrecognized CachingAllocator option: bad\nException raised from here")

        self.use(fake_torch(_accelerator_setAllocatorSettings=refuse))
        with mock.patch.object(settings, "_native_check", lambda: None):
            with self.assertRaisesRegex(vramwise.VramwiseError, "Unrecognized CachingAllocator option: bad$"):
                vramwise.set_allocator_settings("bad:1")
        self.assertEqual(told, ["bad:1", "max_split_size_mb:64"])

    def test_the_native_check_refuses_with_the_place_and_remarks_are_warnings(self):
        problem = SimpleNamespace(code="refused", message="max_split_size_mb must be at least 20", position=18,
                                  suggestion="max_split_size_mb:20", option="max_split_size_mb")
        torch = self.use(fake_torch(names=("_accelerator_setAllocatorSettings",), version="2.11.0+cu130"))
        asked = []

        def check(text, version):
            asked.append(version)
            return [problem]

        with mock.patch.object(settings, "_native_check", lambda: check):
            with self.assertRaises(vramwise.VramwiseError) as caught:
                vramwise.set_allocator_settings("max_split_size_mb:5")
            self.assertEqual((caught.exception.position, caught.exception.settings), (18, "max_split_size_mb:5"))
            self.assertIn("must be at least 20", str(caught.exception))
            problem.code = "rounding-needs-split"
            with warned() as said:
                vramwise.set_allocator_settings("max_split_size_mb:5")
            self.assertIn("must be at least 20", str(said[0].message))
        self.assertEqual(asked, ["2.11.0", "2.11.0"])
        self.assertEqual(len(torch.calls), 1)

    def test_remarks_that_do_not_concern_the_process_are_left_out(self):
        problem = SimpleNamespace(code="needs-version", message="older releases refuse it", position=0)
        torch = self.use(fake_torch(names=("_accelerator_setAllocatorSettings",), version="2.11.0+cu130"))
        with mock.patch.object(settings, "_native_check", lambda: lambda text, version: [problem]):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                vramwise.set_allocator_settings("expandable_segments:True")
                torch.cuda.get_per_process_memory_fraction = lambda: 0.5
                problem.code = "gc-needs-fraction"
                vramwise.set_allocator_settings("garbage_collection_threshold:0.8")
            torch.cuda.get_per_process_memory_fraction = lambda: 1.0
            with warned() as said:
                vramwise.set_allocator_settings("garbage_collection_threshold:0.8")
            self.assertEqual([one.category for one in said], [RuntimeWarning])
            self.assertEqual(len(settings.check_allocator_settings("garbage_collection_threshold:0.8")), 1)
        self.assertEqual(len(torch.calls), 3)

    def test_an_option_that_outlives_later_strings_is_remembered(self):
        self.use(fake_torch(names=("_accelerator_setAllocatorSettings",), version="2.11.0"))
        vramwise.set_allocator_settings("large_segment_size_mb:64")
        vramwise.set_allocator_settings("")
        self.assertEqual(settings.in_force("large_segment_size_mb", ""), "64")
        self.assertIsNone(settings.in_force("expandable_segments", ""))


class Strings(unittest.TestCase):
    def test_the_first_variable_that_is_set_counts(self):
        environment = {"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_HIP_ALLOC_CONF": "b:2"}
        self.assertEqual(strings.from_environment(environment), "b:2")
        self.assertEqual(strings.from_environment({}), "")

    def test_forms_that_end_the_process_are_refused(self):
        for text, position in [("max_split_size_mb", 0), ("a:1,b", 4), ("a:1, :2", 5), ("a:1 , b:", 6), ("a=1", 0)]:
            with self.subTest(text), self.assertRaises(vramwise.VramwiseError) as caught:
                strings.options(text)
            self.assertEqual(caught.exception.position, position)

    def test_what_is_read_is_written_again(self):
        text = "expandable_segments:True,roundup_power2_divisions:[256:1,512:2,>:4]"
        self.assertEqual(strings.text_of(strings.options(text)), text)
        self.assertEqual(strings.options(" a:1 ,, b : 2,"), {"a": "1", "b": "2"})


class Schedules(unittest.TestCase):
    def test_what_cannot_change_is_refused_when_the_schedule_is_made(self):
        for option in ("backend:native", "per_process_memory_fraction:0.5", "pinned_use_background_threads:True"):
            with self.subTest(option), self.assertRaisesRegex(vramwise.VramwiseError, "phase 'late'.*cannot change"):
                vramwise.SettingsSchedule({"late": option})

    def test_under_vramwises_allocator_a_schedule_is_one_warning_and_the_program_goes_on(self):
        torch = fake_torch(names=("_accelerator_setAllocatorSettings",), initialized=False)
        torch.cuda.get_allocator_backend = lambda: "vramwise"
        trained = []
        with mock.patch.dict(sys.modules, {"torch": torch}), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            schedule = vramwise.SettingsSchedule({"train": "max_split_size_mb:64", 0: "", 1: "max_split_size_mb:32"})
            for batch in steps("abc", schedule=schedule):
                with schedule.phase("train"):
                    trained.append(batch)
            schedule.enter("train")
        self.assertEqual((trained, schedule.current, torch.calls), (["a", "b", "c"], None, []))
        self.assertEqual(len(warned), 1, [str(one.message) for one in warned])
        self.assertRegex(str(warned[0].message), r"the schedule changes nothing: vramwise's own allocator .*set_settings\(\)")

    def test_phases_and_steps_that_are_not_there(self):
        with mock.patch.object(settings, "allocator_settings", lambda: ""):
            schedule = vramwise.SettingsSchedule({"train": "", 5: "max_split_size_mb:64"})
            with self.assertRaisesRegex(KeyError, "no phase 'test'; there are 'train', 5"):
                schedule.settings_for("test")
            with self.assertRaisesRegex(KeyError, "the first are for step 5"):
                schedule.settings_for(4)
            self.assertEqual(schedule.settings_for(7), "max_split_size_mb:64")
        with self.assertRaisesRegex(ValueError, "counted from 0"):
            vramwise.SettingsSchedule({-1: ""})

    def test_what_is_no_schedule_is_told(self):
        for wrong, why in ((None, "a mapping"), (["train"], "a mapping"), ({"train": None}, "are a text"), ({1.5: ""}, "whole number"),
                           ({True: ""}, "whole number")):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, why):
                vramwise.SettingsSchedule(wrong)
        for wrong in (None, 3, b"max_split_size_mb:64"):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "or a mapping"):
                vramwise.set_allocator_settings(wrong)

    def test_an_option_of_another_phase_is_set_back(self):
        with mock.patch.object(settings, "allocator_settings", lambda: "max_split_size_mb:64"):
            schedule = vramwise.SettingsSchedule({"a": "expandable_segments:True", "b": "max_split_size_mb:128"})
            self.assertEqual(schedule.settings_for("a"), "expandable_segments:True,max_split_size_mb:64")
            self.assertEqual(schedule.settings_for("b"), "expandable_segments:False,max_split_size_mb:128")

    def test_reports_of_tune(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(settings, "allocator_settings", lambda: ""):
            report = Path(folder, "train.json")
            report.write_text(json.dumps({"schema": 1, "recommended": {"conf": "max_split_size_mb:32"}}))
            other = {"schema": 1, "recommended": {"conf": "expandable_segments:True"}}
            schedule = vramwise.SettingsSchedule.from_tune({"train": report, "eval": other})
            self.assertEqual(schedule.settings_for("train"), "expandable_segments:False,max_split_size_mb:32")
            for wrong in ('{"schema": 1}', "[]", "{", '{"schema": 2, "recommended": {"conf": ""}}'):
                report.write_text(wrong)
                with self.subTest(wrong), self.assertRaises(vramwise.VramwiseError) as caught:
                    vramwise.SettingsSchedule.from_tune({"train": report})
                self.assertEqual(caught.exception.path, str(report))

    @unittest.skipUnless(os.path.exists(emulated.PROGRAM), "VRAMWISE_BIN does not name the program")
    def test_a_real_report_of_tune(self):
        snapshot = next((emulated.REPOSITORY / "testdata" / "snapshots").glob("lstm*.pickle.gz"))
        done = emulated.vramwise("tune", snapshot, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        with mock.patch.object(settings, "allocator_settings", lambda: ""):
            schedule = vramwise.SettingsSchedule.from_tune({"train": report})
            self.assertEqual(strings.options(schedule.settings_for("train")) | strings.options(report["recommended"]["conf"]),
                             strings.options(schedule.settings_for("train")))


def span(name, first, last):
    return SimpleNamespace(name=name, first=first, last=last)


class PhasesOfAHistory(unittest.TestCase):
    SPANS = (span("eval", 10, 20), span("train#0", 0, 30), span("eval", 40, 50), span("empty", 5, 5),
             span("vramwise.step#0", 0, 12), span("vramwise.step#1", 12, 25), span("vramwise.step#2", 25, 60))

    def parts(self, *phases):
        return [(part.phase, part.first, part.last) for part in history.parts(self.SPANS, phases, 70)]

    def test_a_name_is_found_wherever_it_is_with_and_without_a_number(self):
        self.assertEqual(self.parts("eval", "train"), [("train", 0, 30), ("eval", 10, 20), ("eval", 40, 50)])

    def test_a_step_begins_a_phase_that_lasts_to_the_next(self):
        self.assertEqual(self.parts(0, 2), [(0, 0, 25), (2, 25, 70)])
        self.assertEqual(self.parts(3, 1), [(1, 12, 60), (3, 60, 70)])

    def test_what_is_not_there_is_said(self):
        for phases, why in [(("evaluation",), "there are: eval, train, empty, vramwise.step"), (("empty",), "has events"),
                            ((5,), "no end of step 4"), ((-1,), "no end of step"), ((), "at least one"),
                            (("eval", 0), "not both"), ((True,), "not both"), ((1.5,), "not both")]:
            with self.subTest(phases), self.assertRaisesRegex(vramwise.VramwiseError, why):
                self.parts(*phases)

    def test_the_innermost_phase_decides_and_nothing_is_set_twice(self):
        found = history.parts(self.SPANS, ["train", "eval"], 70)
        self.assertEqual(history.changes(found, {"train": "t", "eval": "e"}, "b", 70),
                         {0: "t", 10: "e", 20: "t", 30: "b", 40: "e", 50: "b"})
        self.assertEqual(history.changes(found, {"train": "b", "eval": "e"}, "b", 70), {10: "e", 20: "b", 40: "e", 50: "b"})
        steps = history.parts(self.SPANS, [0, 2], 70)
        self.assertEqual(history.changes(steps, {0: "x", 2: "y"}, "b", 70), {0: "x", 25: "y"})


if __name__ == "__main__":
    unittest.main()
