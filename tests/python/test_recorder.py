"""The recorder: its files, and that nothing it does reaches the program that it records."""

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import warnings
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import emulated

sys.path.insert(0, str(emulated.PACKAGE))

import vramwise
from vramwise.recorder import history, names, triggers

PROGRAMS = Path(__file__).resolve().parent / "programs"
WHY_NOT = emulated.why_not()
ALL_STACKS = None if WHY_NOT else history.why_not_some_stacks(SimpleNamespace(__version__=version("torch")))


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OnTheEmulatedDevice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        done = emulated.run(PROGRAMS / "record_scenarios.py", cwd=folder.name)
        if done.returncode:
            raise AssertionError(done.stderr)
        cls.seen = json.loads(done.stdout)

    def about(self, name):
        return json.loads((self.folder / name).read_text())

    def snapshot(self, name):
        # Written a moment ago by this test's own program.
        return pickle.loads((self.folder / name).read_bytes())

    def test_a_training_leaves_a_file_for_each_thing_that_happened(self):
        seen = self.seen["a_training"]
        expected = ["above_rank0_step3", "end_rank0_step6", "oom_rank0_step6", "periodic_rank0_step5"]
        self.assertEqual(seen["files"], sorted(name + end for name in expected for end in (".info", ".pickle")))
        self.assertEqual(sorted(seen["listed"]), [name + ".pickle" for name in expected])
        self.assertEqual(seen["steps"], 6)
        self.assertEqual((seen["failures"], seen["warnings"]), (0, []))
        self.assertIn("CUDA out of memory. Tried to allocate 4096.00 GiB", seen["error"])
        self.assertTrue(seen["on_inside"])
        self.assertFalse(seen["on_after"])

    def test_files_have_protocol_4_and_the_failed_request(self):
        data = (self.folder / "training/oom_rank0_step6.pickle").read_bytes()
        self.assertEqual(data[:2], b"\x80\x04")
        actions = [entry["action"] for entry in self.snapshot("training/oom_rank0_step6.pickle")["device_traces"][0]]
        self.assertEqual(actions[-1], "oom")

    def test_a_description_lies_beside_each_file(self):
        about = self.about("training/oom_rank0_step6.info")
        self.assertEqual(about["snapshot"], "oom_rank0_step6.pickle")
        self.assertEqual((about["reason"], about["step"], about["rank"]), ("oom", 6, None))
        failed = about["out_of_memory"]
        self.assertEqual((failed["device"], failed["requested_bytes"], failed["total_bytes"]), (0, 1 << 42, 8 << 30))
        self.assertEqual(about["recording"]["max_entries"], 200_000)
        self.assertEqual(about["recording"]["oldest_overwritten"], [False])
        self.assertGreater(about["recording"]["entries"][0], 30)
        device = about["devices"][0]
        self.assertEqual((device["name"], device["free_bytes"]), ("A Card", failed["free_bytes"]))
        self.assertEqual(device["memory_stats"]["num_ooms"], 1)
        self.assertGreater(device["memory_stats"]["reserved_bytes.all.current"], 400 << 20)
        self.assertEqual(about["versions"]["vramwise"], vramwise.__version__)
        self.assertFalse(about["settings"]["allocator"]["expandable_segments"])
        self.assertIsNone(self.about("training/end_rank0_step6.info")["out_of_memory"])

    def test_steps_and_phases_are_marked_in_the_history(self):
        marks = self.snapshot("training/end_rank0_step6.pickle")["external_annotations"]
        ends = [mark["name"] for mark in marks if mark["stage"] == "END" and "vramwise" in mark["name"]]
        self.assertEqual(ends, [f"vramwise.step#{n}" for n in range(6)])
        self.assertIn("evaluation", [mark["name"] for mark in marks])

    @unittest.skipUnless(os.path.exists(emulated.PROGRAM), "VRAMWISE_BIN does not name the program")
    def test_vramwise_tells_the_steps(self):
        file = self.folder / "training/end_rank0_step6.pickle"
        done = emulated.vramwise("leaks", file, "--marker", "vramwise.step", "--json")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        steps = json.loads(done.stdout)["files"][0]["devices"][0]["steps"]
        self.assertEqual(steps["count"] if isinstance(steps, dict) else steps, 6, done.stdout[:500])
        done = emulated.vramwise("inspect", file, "--by", "phase")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("vramwise.step#3", done.stdout)
        done = emulated.vramwise("validate", self.folder / "training/oom_rank0_step6.pickle")
        self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(os.path.exists(emulated.PROGRAM), "VRAMWISE_BIN does not name the program")
    def test_a_folder_of_recordings_is_one_table_of_ranks(self):
        done = emulated.vramwise("ranks", self.folder / "training", "--json")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        self.assertEqual(sorted(row["step"] for row in json.loads(done.stdout)["ranks"]), [3, 5, 6, 6])

    def test_the_programs_error_leaves_as_it_was_raised_and_nothing_is_held(self):
        seen = self.seen["an_error_that_leaves_the_block"]
        self.assertEqual(seen["kind"], "OutOfMemoryError")
        self.assertIn("Tried to allocate 4096.00 GiB", seen["text"])
        self.assertEqual((seen["notes"], seen["context"]), ([], "None"))
        self.assertEqual((seen["alive"], seen["allocated"]), (False, 0))
        self.assertEqual(seen["files"], ["oom_rank0.info", "oom_rank0.pickle"])

    def test_a_library_that_ran_out_leaves_a_file_and_another_error_only_the_last_one(self):
        seen = self.seen["errors_of_libraries"]
        self.assertEqual(seen["library"], ["oom_rank0.info", "oom_rank0.pickle"])
        self.assertEqual(seen["other"], ["end_rank0.info", "end_rank0.pickle"])

    def test_a_program_that_tries_again_and_again_does_not_fill_the_disk(self):
        files = self.seen["failures_again_and_again"]["files"]
        self.assertEqual([f for f in files if f.endswith(".pickle")], ["oom_rank0.pickle", "oom_rank0_2.pickle"])
        self.assertEqual([f for f in files if f.endswith(".info")], ["oom_rank0.info", "oom_rank0_2.info"])

    def test_what_cannot_be_written_is_one_warning(self):
        seen = self.seen["a_folder_that_cannot_be"]
        self.assertEqual((seen["kind"], seen["failures"]), ("OutOfMemoryError", 3))
        self.assertEqual(len(seen["warnings"]), 1)
        self.assertIn("no snapshot written to file/folder", seen["warnings"][0])
        self.assertEqual(self.seen["warnings_made_errors"]["kind"], "OutOfMemoryError")

    def test_a_full_disk_leaves_no_half_file(self):
        seen = self.seen["a_full_disk"]
        self.assertEqual((seen["failed"], seen["left"]), (None, []))
        self.assertEqual((seen["worked"], len(seen["warnings"])), (True, 1))
        self.assertEqual(seen["files"], ["manual_rank0.info", "manual_rank0.pickle"])

    def test_control_c_while_a_file_is_written_interrupts_the_program(self):
        seen = self.seen["control_c_while_writing"]
        self.assertEqual(seen["kinds"], ["KeyboardInterrupt", "KeyboardInterrupt"])
        self.assertEqual((seen["left"], seen["again"], seen["warnings"]), ([], True, []))

    def test_recorders_share_one_history(self):
        seen = self.seen["recorders_in_each_other"]
        self.assertEqual(seen["outer"], ["oom_rank0.info", "oom_rank0.pickle"], "one file, of two recorders")
        self.assertEqual(seen["inner"], ["oom_rank0.info", "oom_rank0.pickle"])
        self.assertEqual(len(seen["notes"]), 1)
        self.assertIn("max_entries=200000", seen["notes"][0])
        self.assertEqual((seen["on_with_outer"], seen["on_after"]), (True, False))

    def test_a_history_of_the_program_stays_the_programs(self):
        seen = self.seen["a_history_that_the_program_began"]
        self.assertTrue(seen["on_after"])
        self.assertIn("begun by the program", seen["notes"][0])
        self.assertIn("begun by the program", self.about("joined/end_rank0.info")["recording"]["notes"][0])

    def test_a_history_that_the_program_ends_is_told(self):
        seen = self.seen["a_history_that_the_program_ends"]
        self.assertEqual(len(seen["files"]), 2)
        self.assertIn("switched the history off", "\n".join(seen["notes"]))

    def test_a_signal_writes_a_file_and_reaches_the_handler_that_was_there(self):
        seen = self.seen["signals"]
        self.assertEqual(seen["one"], ["signal_rank0.info", "signal_rank0.pickle"])
        self.assertEqual(seen["two"], ["signal_rank0.info", "signal_rank0.pickle"])
        self.assertEqual((seen["calls"], seen["restored"]), (1, True))
        self.assertTrue(self.seen["handler_of_sigterm"]["restored"])

    def test_a_signal_while_a_file_is_written_is_that_file(self):
        self.assertEqual(self.seen["a_signal_while_writing"]["files"], ["manual_rank0.info", "manual_rank0.pickle"])

    def test_a_forked_child_records_nothing(self):
        seen = self.seen["a_forked_child"]
        self.assertEqual((seen["status"], seen["still"]), (5, True))
        self.assertEqual(seen["files"], ["manual_rank0.info", "manual_rank0.pickle"])

    def test_no_file_takes_the_place_of_another(self):
        seen = self.seen["files_never_replace_files"]
        snapshots = [file for file in seen["files"] if file.endswith(".pickle")]
        self.assertEqual(snapshots, ["end_rank0.pickle", "end_rank0_2.pickle", "end_rank3.pickle"])
        self.assertEqual((seen["rank"], seen["world_size"]), (3, 8))

    def test_at_the_end_of_the_process_the_last_file_is_written(self):
        self.assertTrue((self.folder / "process/end_rank0.pickle").is_file())
        self.assertEqual(self.about("process/end_rank0.info")["reason"], "end")

    @unittest.skipIf(ALL_STACKS, ALL_STACKS)
    def test_some_steps_have_stacks_and_the_description_says_which(self):
        seen = self.seen["stacks_in_some_steps"]
        self.assertEqual([n for n, with_stacks in enumerate(seen["some"]) if with_stacks], [0, 1, 2, 20, 40])
        self.assertEqual((seen["told"], seen["stacks"]), ([0, 1, 2, 20, 40], "auto"))

    @unittest.skipIf(ALL_STACKS, ALL_STACKS)
    def test_the_snapshot_itself_says_which_steps_have_stacks(self):
        snapshot = self.snapshot("some/manual_rank0_step45.pickle")
        self.assertEqual(snapshot["vramwise_recorder"], {"steps_with_stacks": [0, 1, 2, 20, 40]})
        self.assertEqual(self.seen["another_recorder_writes_of_sampled_steps"]["told"],
                         {"steps_with_stacks": [0, 1, 2]})
        self.assertNotIn("vramwise_recorder", self.snapshot("all/manual_rank0_step6.pickle"))
        self.assertNotIn("vramwise_recorder", self.snapshot("joined/end_rank0.pickle"))

    @unittest.skipIf(ALL_STACKS, ALL_STACKS)
    @unittest.skipUnless(os.path.exists(emulated.PROGRAM), "VRAMWISE_BIN does not name the program")
    def test_reports_say_which_steps_have_stacks(self):
        file = self.folder / "some/manual_rank0_step45.pickle"
        done = emulated.vramwise("inspect", file, "--json")
        told = json.loads(done.stdout)["devices"][0]["sampled_stacks"]
        self.assertEqual((told["steps"], told["steps_with_stacks"]), (45, [0, 1, 2, 20, 40]))
        self.assertEqual((told["requested_bytes"], told["requested_with_stack_bytes"]), (45 * 12500, 5 * 12500))
        done = emulated.vramwise("leaks", file)
        self.assertIn("5 of 45 steps were recorded with stacks: growth is looked for in those", done.stdout)
        done = emulated.vramwise("inspect", self.folder / "all/manual_rank0_step6.pickle", "--json")
        self.assertIsNone(json.loads(done.stdout)["devices"][0]["sampled_stacks"])

    def test_a_history_that_the_program_begins_meanwhile_is_the_programs_from_then_on(self):
        for name in ("the_program_records_itself_meanwhile", "the_program_records_itself_by_another_name",
                     "the_program_records_itself_in_the_old_way"):
            with self.subTest(name):
                seen = self.seen[name]
                self.assertTrue(seen["on_after"], "nobody else ends it")
                self.assertEqual(seen["writes"], 2)
                self.assertEqual([w for w in seen["warnings"] if "_record_memory_history" in w], seen["warnings"])
                self.assertEqual(len(seen["warnings"]), 1)
                self.assertIn("has called _record_memory_history itself", "\n".join(seen["notes"]))
                self.assertEqual(seen["told"], seen["notes"])
                # Step 4 had none when it allocated; from the call on all have them, the recorder switching nothing.
                self.assertEqual(seen["steps"][5:], [True] * 5)
        self.assertTrue(self.seen["the_program_records_itself_by_another_name"]["put_back"])

    @unittest.skipIf(ALL_STACKS, ALL_STACKS)
    def test_steps_have_stacks_where_something_is_new(self):
        # The step after one that reserved more, what happens in a named part, and the three after a failure.
        steps = self.seen["stacks_where_something_is_new"]["new"]
        found = [n for n, with_stacks in enumerate(steps) if with_stacks]
        self.assertEqual(found, [0, 1, 2, 6, 9, 11, 15, 16], "8 and 9 have two allocations each, the second with stacks")

    def test_a_failed_request_has_its_stack_in_every_step(self):
        seen = self.seen["who_asked_in_a_step_without_stacks"]
        self.assertEqual(seen["auto"][:3], [["ask_too_much", "record_scenarios.py"], ["asks", "record_scenarios.py"],
                                            ["asked", "record_scenarios.py"]])
        self.assertEqual(seen["auto"], seen["python"], "as PyTorch has it")
        self.assertEqual(seen["none"], [])

    @unittest.skipIf(ALL_STACKS, ALL_STACKS)
    def test_who_goes_on_with_the_history_has_all_stacks(self):
        seen = self.seen["stacks_where_another_goes_on"]
        self.assertEqual(seen["steps"], [True] * 3 + [False] * 3 + [True] * 2)
        self.assertEqual((seen["every"], seen["none"]), ([True] * 6, [False] * 6))

    def test_whether_pytorch_records_can_be_asked_before_cuda_begins(self):
        seen = self.seen["nothing_has_begun"]
        self.assertEqual((seen["on"], seen["began"]), (False, False))

    def test_nothing_is_left_behind(self):
        seen = self.seen["nothing_is_left_of_it"]
        self.assertEqual((seen["at_work"], seen["users"], seen["on"]), (0, 0, False))
        hidden = [str(path) for path in self.folder.rglob(".*")]
        self.assertEqual(hidden, [])


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SignalsThatEndAProgram(unittest.TestCase):
    def test_sigterm_writes_a_file_and_still_ends_the_program(self):
        program = textwrap.dedent("""
            import os, signal, torch, vramwise
            vramwise.start_recording("out", on_signal="SIGTERM", at_end=False)
            torch.empty(1000, device="cuda")
            os.kill(os.getpid(), signal.SIGTERM)
            raise SystemExit("it went on")
        """)
        with tempfile.TemporaryDirectory() as folder:
            done = emulated.run("-c", program, cwd=folder)
            self.assertEqual(done.returncode, -signal.SIGTERM, done.stderr)
            self.assertEqual(sorted(os.listdir(f"{folder}/out")), ["signal_rank0.info", "signal_rank0.pickle"])


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SeveralDevices(unittest.TestCase):
    def test_those_in_use_are_described_and_a_threshold_is_for_each(self):
        program = textwrap.dedent("""
            import torch, vramwise
            with vramwise.record("out", above="100MiB", at_end=False) as recorder:
                kept = torch.empty(200 << 20, dtype=torch.uint8, device="cuda:2")
                recorder.step()
            room = vramwise.headroom(2)
            assert room.device == 2 and room.allocated_bytes == 200 << 20, room
            assert vramwise.headroom(0).allocated_bytes == 0
        """)
        with tempfile.TemporaryDirectory() as folder:
            done = emulated.run("-c", program, cwd=folder, devices=4)
            self.assertEqual(done.returncode, 0, done.stderr)
            about = json.loads(Path(folder, "out/above_rank0_step0.info").read_text())
        self.assertEqual([device["index"] for device in about["devices"]], [0, 2], "the current one and the one in use")
        self.assertEqual(len(about["recording"]["entries"]), 4)


def fake_torch(**cuda):
    """A torch that has only what the recorder asks for; what it was told is in `calls`."""
    calls = []

    def switch(enabled="all", context="all", stacks="all", max_entries=1, device=None):
        calls.append((enabled, context, stacks, max_entries))

    functions = {
        "is_available": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "memory_stats": lambda device: {},
        "memory": SimpleNamespace(_record_memory_history=switch, _snapshot=lambda: {"device_traces": [[1, 2]]}),
        **cuda,
    }
    profiler = SimpleNamespace(profiler=SimpleNamespace(record_function=mock.MagicMock()))
    return SimpleNamespace(cuda=SimpleNamespace(**functions), _C=SimpleNamespace(), calls=calls, __version__="2.6.0",
                           autograd=profiler,
                           version=SimpleNamespace(cuda="12.4", hip=None))


class WithAFakeTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def use(self, torch):
        patched = mock.patch.dict(sys.modules, {"torch": torch})
        patched.start()
        self.addCleanup(patched.stop)

    def test_importing_the_package_imports_no_torch(self):
        code = "import sys, vramwise; vramwise.record, vramwise.headroom, vramwise.log_memory; assert 'torch' not in sys.modules"
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(emulated.PACKAGE)},
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_its_modules_are_there_before_a_name_of_theirs_was_used(self):
        code = ("import sys, vramwise; vramwise.settings.check_allocator_settings; vramwise.batch_size.search_batch_size; "
                "vramwise.errors.SettingsError; vramwise.recorder.Options; assert 'torch' not in sys.modules; "
                "assert 'settings' in dir(vramwise) and not hasattr(vramwise, 'nonsense')")
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(emulated.PACKAGE)},
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_torch_the_error_says_so(self):
        with mock.patch.dict(sys.modules, {"torch": None}):
            with self.assertRaisesRegex(vramwise.VramwiseError, "install torch") as caught, vramwise.record(self.folder):
                pass
        self.assertEqual(caught.exception.missing, "torch")

    def test_without_a_device_it_warns_once_and_does_nothing(self):
        self.use(fake_torch(is_available=lambda: False))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with vramwise.record(self.folder, every=1, on_signal="SIGTERM") as recorder:
                recorder.step()
                with recorder.phase("evaluation"):
                    self.assertIsNone(recorder.dump())
        self.assertEqual(len(caught), 1)
        self.assertIn("nothing is recorded: PyTorch finds no CUDA device", str(caught[0].message))
        self.assertFalse(recorder.recording)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_strict_makes_that_an_error(self):
        self.use(fake_torch(is_available=lambda: False))
        with self.assertRaisesRegex(vramwise.VramwiseError, "nothing can be recorded") as caught:
            vramwise.start_recording(self.folder, strict=True)
        self.assertEqual(caught.exception.missing, "cuda")

    def test_an_allocator_without_history_is_told(self):
        torch = fake_torch()

        def refuse(*args, **kwargs):
            raise RuntimeError("CUDAPluggableAllocator does not yet support recordHistory.\nMore.")

        torch.cuda.memory._record_memory_history = refuse
        self.use(torch)
        with self.assertWarnsRegex(RuntimeWarning, "does not yet support recordHistory"):
            self.assertFalse(vramwise.start_recording(self.folder).recording)
        self.assertEqual(history.users(), 0)

    def test_a_release_gets_only_the_arguments_that_it_knows(self):
        torch = fake_torch()
        self.use(torch)
        with vramwise.record(self.folder, max_entries=7, context="state", at_end=False) as recorder:
            pass
        self.assertEqual(torch.calls, [("all", "state", "python", 7), (None, "all", "all", 1)])
        self.assertIn("no observer for failed allocations", recorder.notes[0])

    def test_a_release_that_forgets_annotations_gets_all_stacks_and_is_not_switched(self):
        torch = fake_torch()
        self.use(torch)
        with vramwise.record(self.folder, at_end=False) as recorder:
            for _ in range(5):
                recorder.step()
        self.assertEqual(len(torch.calls), 2)
        self.assertTrue(any("all steps have stacks: PyTorch 2.6" in note for note in recorder.notes))

    def test_a_block_within_a_block_of_the_same_recorder_ends_nothing(self):
        self.use(fake_torch())
        with vramwise.record(self.folder) as recorder:
            with recorder:
                pass
            self.assertTrue(recorder.recording)
            self.assertEqual(recorder.files, [])
        self.assertFalse(recorder.recording)
        self.assertEqual([file.name for file in recorder.files], ["end_rank0.pickle"])

    def test_steps_of_several_threads_are_each_counted_once_and_raise_nothing(self):
        torch = fake_torch()
        opened, twice = [], []

        class Span:
            """Refuses what PyTorch's own refuses: an end before the beginning, or a second one."""

            def __init__(self, name):
                self.state = "made"

            def __enter__(self):
                time.sleep(0.0002)
                self.state = "open"
                opened.append(self)

            def __exit__(self, *_):
                if self.state != "open":
                    twice.append(self.state)
                    raise AssertionError("Expected record to be set")
                self.state = "closed"

        torch.autograd.profiler.record_function = Span
        self.use(torch)
        raised = []

        def steps(recorder):
            try:
                for _ in range(25):
                    recorder.step()
            except BaseException as error:
                raised.append(error)

        with warnings.catch_warnings(record=True) as warned, vramwise.record(self.folder) as recorder:
            threads = [threading.Thread(target=steps, args=(recorder,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual((raised, twice, recorder.steps, recorder.failures), ([], [], 100, 0))
        self.assertEqual(warned, [])
        self.assertEqual({span.state for span in opened}, {"closed"})
        self.assertEqual(len(opened), 101, "the one before the first end, and one after each")

    def test_a_step_that_cannot_be_marked_is_one_warning(self):
        torch = fake_torch()
        torch.autograd.profiler.record_function = mock.Mock(side_effect=AssertionError("Expected record to be set"))
        self.use(torch)
        with vramwise.record(self.folder, at_end=False) as recorder, self.assertWarnsRegex(RuntimeWarning, "a step was not"):
            recorder.step()
            recorder.step()
        self.assertEqual((recorder.steps, recorder.failures), (2, 2))

    def test_a_snapshot_whose_description_fails_is_there_all_the_same(self):
        self.use(fake_torch())
        with mock.patch("vramwise.recorder.about.describe", side_effect=OSError("no space")):
            with self.assertWarnsRegex(RuntimeWarning, "end_rank0.pickle has no description beside it .*no space"):
                with vramwise.record(self.folder) as recorder:
                    pass
        self.assertEqual([p.name for p in self.folder.iterdir()], ["end_rank0.pickle"])
        self.assertEqual(recorder.files, [self.folder / "end_rank0.pickle"])

    def test_without_an_observer_the_error_that_leaves_the_block_is_what_writes(self):
        self.use(fake_torch())
        class OutOfMemoryError(RuntimeError):
            pass
        with self.assertRaises(OutOfMemoryError), vramwise.record(self.folder):
            raise OutOfMemoryError("CUDA out of memory.")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["oom_rank0.info", "oom_rank0.pickle"])

    def test_an_error_of_its_own_never_replaces_the_programs(self):
        torch = fake_torch()
        self.use(torch)
        with self.assertRaises(ZeroDivisionError), vramwise.record(self.folder, at_end=False):
            torch.cuda.memory._record_memory_history = None
            raise ZeroDivisionError
        self.assertEqual(triggers._at_work, [])

    def test_a_signal_outside_of_the_main_thread_is_refused_and_nothing_begins(self):
        import threading

        torch = fake_torch()
        self.use(torch)
        errors = []

        def begin():
            try:
                vramwise.start_recording(self.folder, on_signal="SIGUSR1")
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
        self.assertIn("main thread", errors[0])
        self.assertEqual((triggers._at_work, history.users()), ([], 0))


class Arguments(unittest.TestCase):
    def test_what_means_nothing_is_refused_at_once(self):
        for wrong, why in [
            ({"max_entries": 0}, "max_entries is 0"),
            ({"max_entries": "many"}, "whole number"),
            ({"every": 0}, "every is 0"),
            ({"context": "everything"}, "context is 'everything'"),
            ({"stacks": "c++"}, "stacks is 'c\\+\\+'"),
            ({"above": "20 apples"}, "no size"),
            ({"above": 1.5}, "a share"),
            ({"above": 0}, "0 bytes"),
            ({"on_signal": "SIGNOTHING"}, "no signal"),
            ({"on_signal": "SIGKILL"}, "cannot be handled"),
            ({"on_signal": 12345}, "12345"),
        ]:
            with self.subTest(wrong), self.assertRaisesRegex((ValueError, TypeError), why):
                vramwise.record("out", **wrong)

    def test_whole_numbers_are_pythons_or_what_counts_as_one(self):
        class Three:
            def __index__(self):
                return 3

        options = vramwise.record("out", every=Three(), above=Three()).options
        self.assertEqual((options.every, type(options.every), options.above), (3, int, 3))
        for wrong in ({"keep": 2.0}, {"keep": True}, {"on_signal": True}, {"above": True}):
            with self.subTest(wrong), self.assertRaises(TypeError):
                vramwise.record("out", **wrong)

    def test_names_are_texts(self):
        recorder = vramwise.record("out")
        for wrong in (None, 3):
            with self.assertRaisesRegex(TypeError, "a phase has a name"), recorder.phase(wrong):
                pass
            with self.assertRaisesRegex(TypeError, "reason is a word"):
                recorder.dump(wrong)

    def test_a_reason_is_part_of_a_name(self):
        with self.assertRaisesRegex(ValueError, "part of a file's name"):
            vramwise.record("out").dump("../elsewhere")

    def test_ranks_are_read_from_what_launchers_set(self):
        with mock.patch.dict(os.environ, {"SLURM_PROCID": "4", "SLURM_NTASKS": "16", "LOCAL_RANK": "x"}, clear=True):
            self.assertEqual(names.ranks(), {"rank": 4, "local_rank": None, "world_size": 16})

    def test_torch_distributed_counts_first(self):
        group = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 2,
                                get_world_size=lambda: 4)
        with mock.patch.dict(os.environ, {"RANK": "9"}, clear=True):
            self.assertEqual(names.ranks(SimpleNamespace(distributed=group))["rank"], 2)


if __name__ == "__main__":
    unittest.main()
