"""The bootstrap of a rehearsal, part by part: hints, names of processes, ranks, hooks, counters.

Nothing here needs PyTorch, except how indices are drawn.
"""

import importlib.util
import multiprocessing
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

BOOTSTRAP = Path(__file__).resolve().parents[2] / "crates" / "rehearse" / "python"
sys.path.insert(0, str(BOOTSTRAP))

import vramwise_assumptions  # noqa: E402
import vramwise_ranks  # noqa: E402
import vramwise_record  # noqa: E402

HAS_TORCH = importlib.util.find_spec("torch") is not None


def start_file():
    """The start-up file as a module, as Python would run it without a rehearsal."""
    spec = importlib.util.spec_from_file_location("a_start_file", BOOTSTRAP / "sitecustomize.py")
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(os.environ, {"VRAMWISE_REHEARSAL": ""}):
        spec.loader.exec_module(module)
    return module


class Hints(unittest.TestCase):
    def test_without_hints_half_a_mask_is_true_and_the_rest_is_the_most(self):
        assumed = vramwise_assumptions.Assumptions({})
        self.assertEqual((assumed.some(10), assumed.distinct(10), assumed.nms), (5, 10, 1.0))
        self.assertEqual((assumed.topk, assumed.seed), ("uniform", 0))

    def test_a_hint_is_taken_and_something_is_always_different_from_nothing(self):
        assumed = vramwise_assumptions.Assumptions({"mask": 0.25, "unique": 0.0, "topk": "worst", "seed": 3})
        self.assertEqual((assumed.some(8), assumed.distinct(8), assumed.distinct(0)), (2, 1, 0))
        self.assertEqual((assumed.topk, assumed.seed), ("worst", 3))


@unittest.skipUnless(HAS_TORCH, "this Python has no PyTorch")
class Picks(unittest.TestCase):
    def shares(self, kind, rows=4000, extent=8):
        import torch

        torch.manual_seed(5)
        drawn = vramwise_assumptions.picks(kind, rows, 2, extent)
        self.assertEqual(tuple(drawn.shape), (rows, 2))
        self.assertTrue(bool((drawn[:, 0] != drawn[:, 1]).all()), "no index comes twice in a row")
        return sorted((drawn.flatten().bincount(minlength=extent) / drawn.numel()).tolist())

    def test_balanced_is_even_and_worst_is_the_same_for_all(self):
        self.assertEqual(self.shares("balanced"), [1 / 8] * 8)
        self.assertEqual(self.shares("worst"), [0] * 6 + [0.5, 0.5])

    def test_uniform_is_nearly_even_and_skewed_is_not(self):
        uniform, skewed = self.shares("uniform"), self.shares("skewed")
        self.assertLess(uniform[-1] - uniform[0], 0.03)
        self.assertGreater(skewed[-1] - skewed[0], 2 * (uniform[-1] - uniform[0]))

    def test_what_is_skewed_changes_from_call_to_call(self):
        import torch

        torch.manual_seed(5)
        counts = [vramwise_assumptions.picks("skewed", 1000, 1, 8).flatten().bincount(minlength=8) for _ in range(5)]
        self.assertGreater(len({int(count.argmax()) for count in counts}), 1)
        self.assertGreater(len({int(count.max()) // 50 for count in counts}), 1)

    def test_a_choice_among_many_has_no_index_twice_either(self):
        for kind in vramwise_assumptions.KINDS:
            with mock.patch.object(vramwise_assumptions, "MOST_SCORES", 10):
                drawn = vramwise_assumptions.picks(kind, 50, 7, 1000)
            self.assertTrue(bool(((drawn >= 0) & (drawn < 1000)).all()), kind)
            self.assertTrue(all(len(set(row)) == 7 for row in drawn.tolist()), kind)

    def test_more_picks_than_indices_are_possible_ones(self):
        for kind in vramwise_assumptions.KINDS:
            drawn = vramwise_assumptions.picks(kind, 3, 9, 4)
            self.assertEqual((tuple(drawn.shape), int(drawn.max()) < 4), ((3, 9), True), kind)


def _tell_name(queue):
    queue.put(vramwise_record.process_name())


class Processes(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        os.environ.pop("RANK", None)

    def test_a_lonely_process_has_no_name_and_a_rank_has_its_number(self):
        self.assertEqual(vramwise_record.process_name(), "")
        os.environ["RANK"] = "3"
        self.assertEqual(vramwise_record.process_name(), "rank-3")

    def test_children_are_told_apart_by_their_places_which_are_the_same_each_time(self):
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        names = []
        for _ in range(2):
            queue = context.Queue()
            child = context.Process(target=_tell_name, args=(queue,))
            child.start()
            names.append(queue.get(timeout=60))
            child.join()
        first, second = (int(name.removeprefix("process-")) for name in names)
        self.assertEqual(second, first + 1)

    def test_the_rehearsal_s_rank_comes_first_then_the_program_s_then_the_launcher_s(self):
        os.environ.update(WORLD_SIZE="8", RANK="5")
        self.assertEqual(vramwise_ranks._ranks({"world_size": 64, "rank": 2}, 4, 1), (64, 2))
        self.assertEqual(vramwise_ranks._ranks({"world_size": 1, "rank": 0}, 4, 1), (4, 1))
        self.assertEqual(vramwise_ranks._ranks({}, -1, None), (8, 5))


class Recorder(unittest.TestCase):
    def recorder(self, **config):
        self.now = {"reserved_bytes.all.peak": 7, "reserved_bytes.all.current": 5}
        cuda = types.SimpleNamespace(memory_stats=lambda _device=0: dict(self.now))
        return vramwise_record._Recorder(types.SimpleNamespace(cuda=cuda), config, "")

    def test_peaks_before_a_reset_are_kept_and_nothing_else_is(self):
        recorder = self.recorder()
        recorder.keep_peaks(0)
        self.now = {"reserved_bytes.all.peak": 5, "reserved_bytes.all.current": 4}
        expected = {"reserved_bytes.all.peak": 7, "reserved_bytes.all.current": 4}
        self.assertEqual(recorder.stats(0), expected)
        self.assertEqual(recorder.stats(1), self.now)

    def test_the_program_ends_at_the_wanted_step_of_one_optimizer(self):
        recorder, one, other = self.recorder(steps=3), types.SimpleNamespace(), types.SimpleNamespace()
        for optimizer in (one, other, one, other):
            recorder.count_step(optimizer, (), {})
        with self.assertRaises(SystemExit) as ended:
            recorder.count_step(one, (), {})
        self.assertEqual((ended.exception.code, recorder.steps), (0, 3))

    def test_only_the_first_failed_request_is_described_and_all_are_counted(self):
        recorder = self.recorder()
        for asked in (100, 200):
            recorder._out_of_memory(1, asked, 1000, 50)
        self.assertEqual((recorder.ooms, recorder.oom["tried_bytes"], recorder.oom["device"]), (2, 100, 1))


class Hooks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.room = Path(folder.name)
        (self.room / "a_hooked_module.py").write_text("answer = 42\n")
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        self.addCleanup(sys.modules.pop, "a_hooked_module", None)
        self.start = start_file()

    def import_with(self, hook):
        finder = self.start._Finder({"a_hooked_module": hook})
        sys.meta_path.insert(0, finder)
        self.addCleanup(sys.meta_path.remove, finder)
        import a_hooked_module

        return a_hooked_module

    def test_a_hook_gets_the_module_when_its_own_code_has_run(self):
        seen = []
        module = self.import_with(lambda module: seen.append(module.answer))
        self.assertEqual((seen, module.__loader__.__class__.__name__), ([42], "SourceFileLoader"))

    def test_a_hook_that_fails_is_noted_and_the_import_goes_on(self):
        self.start._ROOM = str(self.room)
        self.assertEqual(self.import_with(lambda module: module.nothing).answer, 42)
        (note,) = self.room.glob("bootstrap.*.log")
        self.assertIn("AttributeError", note.read_text())


if __name__ == "__main__":
    unittest.main()
