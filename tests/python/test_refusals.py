"""What means nothing is refused where it is written, in the words of Python, with the name of the argument."""

import asyncio
import contextlib
import functools
import importlib.util
import io
import pickle
import sys
import tempfile
import types
import unittest
import warnings
from pathlib import Path
from unittest import mock

import vramwise
from batch_support import needs_torch, out_of_memory
from vramwise import MicroBatcher, find_executable_batch_size
from vramwise._ranks import FAILED
from vramwise._rehearsed_pytest import arguments
from vramwise.batch_size import BatchSizeSearch, predict_batch_size, scale_batch_size, search_batch_size
from vramwise.microbatch import Cut
from vramwise.recorder import history

HAS_NATIVE = importlib.util.find_spec("vramwise._native") is not None
RECORDING = Path(__file__).resolve().parents[2] / "testdata" / "snapshots" / "moe__default.snapshot.pickle.gz"


def limited(limit):
    def trial(batch_size):
        if batch_size > limit:
            raise out_of_memory()
        return batch_size

    return trial


class TheSearchSaysWhetherItIsDone(unittest.TestCase):
    def test_a_search_that_ended_at_its_last_attempt_warns_and_is_not_proven(self):
        for mode in ("binsearch", "power"):
            with self.subTest(mode), self.assertWarnsRegex(RuntimeWarning, "max_trials=3 attempts: 8 fits.*not proven"):
                found = search_batch_size(limited(1000), mode=mode, max_trials=3)
            self.assertEqual((found.batch_size, found.proven), (8, False))

    def test_one_that_came_to_its_end_is_proven_and_silent(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = search_batch_size(limited(11), max_val=64)
        self.assertEqual((found.batch_size, found.proven), (11, True))

    def test_what_is_not_proven_is_not_kept_for_later_runs(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", VRAMWISE_CACHE_DIR=folder):
            with self.assertWarns(RuntimeWarning):
                search_batch_size(limited(1000), max_trials=3, cache_key="a")
            found = search_batch_size(limited(1000), max_val=1024, cache_key="a")
            self.assertEqual((found.batch_size, found.from_cache), (1000, False))

    def test_nothing_that_fits_within_the_attempts_is_said_as_such(self):
        with self.assertRaisesRegex(vramwise.errors.NoBatchFitsError, "max_trials=2 allows no further attempt"):
            search_batch_size(limited(1), init_val=64, max_trials=2)

    def test_the_warning_names_the_line_that_asked(self):
        with self.assertWarns(RuntimeWarning) as seen:
            search_batch_size(limited(1000), max_trials=3)
        self.assertEqual(Path(seen.filename).name, Path(__file__).name)


class DecoratedMethods(unittest.TestCase):
    def trainer(self):
        class Trainer:
            def __init__(self, limit):
                self.limit = limit

            @find_executable_batch_size(starting_batch_size=64)
            def train(self, batch_size, epochs=1):
                """Trains."""
                return limited(self.limit)(batch_size), epochs

        return Trainer

    def test_a_method_gets_its_object_and_each_object_has_its_own_size(self):
        kind = self.trainer()
        small, large = kind(10), kind(100)
        self.assertEqual(small.train(epochs=2), (9, 2))
        self.assertEqual(large.train(3), (64, 3))
        self.assertEqual((small.train.batch_size, large.train.batch_size), (9, 64))
        self.assertEqual((kind.train.__name__, kind.train.__doc__), ("train", "Trains."))

    def test_a_caller_of_a_method_who_gives_the_size_is_told(self):
        with self.assertRaisesRegex(TypeError, "first argument, the batch size"):
            self.trainer()(10).train(1, 2)

    def test_class_methods_and_static_methods(self):
        class Trainer:
            @find_executable_batch_size(starting_batch_size=8)
            @classmethod
            def one(cls, batch_size):
                return cls, limited(7)(batch_size)

            @find_executable_batch_size(starting_batch_size=8)
            @staticmethod
            def two(batch_size):
                return limited(7)(batch_size)

            @staticmethod
            @find_executable_batch_size(starting_batch_size=8)
            def three(batch_size):
                return limited(7)(batch_size)

        self.assertEqual(Trainer.one(), (Trainer, 7))
        self.assertEqual((Trainer().two(), Trainer.three()), (7, 7))

    def test_an_object_with_a_decorated_method_can_be_copied_and_dies_at_once(self):
        import copy
        import weakref

        one = self.trainer()(10)
        one.train()
        self.assertEqual(copy.deepcopy(one).train.batch_size, 9)
        gone = weakref.ref(one)
        del one
        self.assertIsNone(gone())

    def test_a_decorated_function_is_pickled_by_its_name(self):
        self.assertIs(pickle.loads(pickle.dumps(at_module_level)), at_module_level)

    def test_the_size_can_be_set(self):
        run = find_executable_batch_size(limited(100), 64)
        run.batch_size = 16
        self.assertEqual(run(), 16)
        with self.assertRaisesRegex(ValueError, "batch_size is 0"):
            run.batch_size = 0


@find_executable_batch_size(starting_batch_size=4)
def at_module_level(batch_size):
    return batch_size


class WhatDoesNotRunWhenItIsCalled(unittest.TestCase):
    def test_generators_and_async_functions_are_refused(self):
        def generator(batch_size):
            yield batch_size

        async def coroutine(batch_size):
            return batch_size

        async def both(batch_size):
            yield batch_size

        class Called:
            async def __call__(self, batch_size):
                return batch_size

        deferred = [(generator, "generator"), (coroutine, "async"), (both, "async generator"), (Called(), "async"),
                    (functools.partial(generator), "generator"), (staticmethod(coroutine), "async")]
        for function, what in deferred:
            with self.subTest(what), self.assertRaisesRegex(TypeError, f"is an? {what}.*plain function"):
                find_executable_batch_size(function)
        for function, what in deferred[:5]:
            with self.subTest(what), self.assertRaisesRegex(TypeError, f"is an? {what}.*search_batch_size"):
                search_batch_size(function)
            with self.subTest(what), self.assertRaisesRegex(TypeError, f"is an? {what}.*scale_batch_size"):
                scale_batch_size(types.SimpleNamespace(batch_size=1), function)

    def test_a_coroutine_that_a_plain_function_gives_is_closed_and_refused(self):
        async def work():
            return 1

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaisesRegex(TypeError, "gave a coroutine"):
                find_executable_batch_size(lambda batch_size: work(), 4)()
        self.assertEqual(asyncio.run(work()), 1)


class BatchSizes(unittest.TestCase):
    def test_limits_that_cannot_be_are_refused_by_name(self):
        for call, told in [
            (lambda: find_executable_batch_size(limited(1), 8, min_batch_size=9), "min_batch_size is 9"),
            (lambda: find_executable_batch_size(limited(1), 10**30), "starting_batch_size is 1000"),
            (lambda: find_executable_batch_size(limited(1), -3), "starting_batch_size is -3"),
            (lambda: BatchSizeSearch(init_val=-3), "init_val is -3"),
            (lambda: BatchSizeSearch(init_val=10**30), "init_val is 1000"),
            (lambda: BatchSizeSearch(max_val=10**30), "max_val is 1000"),
            (lambda: BatchSizeSearch(min_val=9, max_val=8), "max_val is 8, which is less than min_val, 9"),
            (lambda: BatchSizeSearch(margin="x"), "margin: 'x'"),
            (lambda: predict_batch_size("x {batch}", lowest=9, highest=3), "lowest is 9"),
        ]:
            with self.subTest(told), self.assertRaisesRegex(ValueError, told):
                call()

    def test_wrong_kinds_are_refused_by_name(self):
        for call, told in [
            (lambda: find_executable_batch_size(limited(1), 8, 3), "reduce_batch_size_fn"),
            (lambda: find_executable_batch_size(limited(1), 8, lambda size: "x")(), "reduce_batch_size_fn"),
            (lambda: find_executable_batch_size(limited(1), 8, cache_key=3), "cache_key"),
            (lambda: find_executable_batch_size(limited(1), 8, predict=3), "predict"),
            (lambda: search_batch_size(3), "trial"),
        ]:
            with self.subTest(told), self.assertRaisesRegex(TypeError, told):
                call()


class CutsAndBatchers(unittest.TestCase):
    def test_kinds_are_checked_when_a_batcher_is_made(self):
        for options, told in [
            ({"model": []}, "model is a torch.nn.Module"),
            ({"optimizer": 3}, "optimizer is"),
            ({"parameters": 3}, "parameters are"),
            ({"parameters": [], "scaler": 3}, "scaler is a torch.amp.GradScaler"),
            ({"parameters": [], "recorder": 3}, "recorder is"),
            ({"parameters": [], "max_grad_norm": "x"}, "max_grad_norm is"),
        ]:
            with self.subTest(told), self.assertRaisesRegex(TypeError, told):
                MicroBatcher(lambda part: part, **options)

    def test_names_are_lists_of_texts(self):
        for options in ({"shared": "mask"}, {"samples": "images"}, {"shared": [3]}, {"dim": "x"}, {"batch_size": "x"}):
            with self.subTest(options), self.assertRaises(TypeError):
                Cut(**options)

    @needs_torch
    def test_a_name_that_the_batch_does_not_have_is_an_error_that_names_those_it_has(self):
        import torch

        batch = {"x": torch.zeros(4, 2), "inputs": {"mask": torch.zeros(3)}}
        for options in ({"shared": ["maks"]}, {"samples": ["imgs"]}):
            with self.subTest(options), self.assertRaisesRegex(ValueError, "'x', 'inputs', 'inputs.mask'"):
                Cut(**options).size_of(batch)
        self.assertEqual(Cut(shared=["inputs.mask"]).size_of(batch), 4)
        layer = torch.nn.Linear(2, 1)
        batcher = MicroBatcher(lambda part: layer(part["x"]).mean(), layer, cut=Cut(shared=["inputs.maks"]))
        with self.assertRaisesRegex(ValueError, "inputs.maks"):
            batcher.backward(batch)

    @needs_torch
    def test_the_other_ranks_are_told_of_a_batch_that_one_cannot_measure(self):
        import torch

        votes = []
        ranks = types.SimpleNamespace(least=lambda values: votes.append(values) or values, most=lambda value: value)
        layer = torch.nn.Linear(2, 1)
        batcher = MicroBatcher(lambda part: layer(part["x"]).mean(), layer, cut=Cut(shared=["maks"]))
        with mock.patch.object(batcher, "_agreeing", lambda: ranks), self.assertRaisesRegex(ValueError, "maks"):
            batcher.backward({"x": torch.zeros(4, 2)})
        self.assertEqual(votes, [[FAILED]])

    @needs_torch
    def test_a_part_that_only_some_batches_have_is_no_misspelling(self):
        import torch

        layer = torch.nn.Linear(2, 1)
        batcher = MicroBatcher(lambda part: layer(part["x"]).mean(), layer, cut=Cut(shared=["mask"]))
        batcher.backward({"x": torch.zeros(4, 2), "mask": torch.zeros(3)})
        self.assertEqual(batcher.backward({"x": torch.zeros(4, 2)}).sizes, [4])

    @needs_torch
    def test_what_the_users_functions_give_is_named(self):
        import torch

        layer = torch.nn.Linear(2, 1)

        def batcher(**options):
            return MicroBatcher(lambda part: layer(part).mean(), layer, micro_batch_size=2, **options)

        batch = torch.zeros(4, 2)
        for options, told in [
            ({"weight_fn": lambda part: "many"}, "weight_fn gave 'many'"),
            ({"weight_fn": lambda part: part}, "weight_fn gave"),
            ({"split_fn": lambda batch, sizes: None}, "split_fn gave NoneType"),
            ({"cut": Cut(batch_size=lambda batch: "x")}, "batch_size"),
        ]:
            with self.subTest(told), self.assertRaisesRegex(TypeError, told):
                batcher(**options).backward(batch)

    @needs_torch
    def test_an_empty_batch_has_no_samples_and_one_that_cannot_be_measured_is_warned_of(self):
        import torch

        from vramwise.microbatch import warned

        layer = torch.nn.Linear(2, 1)
        batcher = MicroBatcher(lambda part: layer(torch.zeros(3, 2)).mean(), layer)
        with mock.patch.object(warned, "_said", set()), self.assertWarnsRegex(RuntimeWarning, "has no samples"):
            self.assertEqual(batcher.backward(torch.zeros(0, 2)).sizes, [0])
        with mock.patch.object(warned, "_said", set()), self.assertWarnsRegex(RuntimeWarning, "can only go whole") as seen:
            self.assertEqual(batcher.backward("a text").sizes, [1])
        self.assertEqual(Path(seen.filename).name, Path(__file__).name)


class Recorders(unittest.TestCase):
    def test_arguments_are_named(self):
        for options, kind, told in [
            ({"folder": None}, TypeError, "folder is a path"),
            ({"on_signal": 9999}, ValueError, "on_signal is 9999"),
            ({"on_signal": "SIGNOPE"}, ValueError, "on_signal"),
            ({"on_signal": 3.5}, TypeError, "on_signal"),
            ({"above": "x"}, ValueError, "above"),
            ({"above": []}, TypeError, "above"),
        ]:
            with self.subTest(options), self.assertRaisesRegex(kind, told):
                vramwise.record(**options)

    def test_a_dump_outside_of_a_recording_is_told(self):
        with self.assertWarnsRegex(RuntimeWarning, "has written nothing") as seen:
            self.assertIsNone(vramwise.record("unused").dump())
        self.assertEqual(Path(seen.filename).name, Path(__file__).name)

    def test_under_a_rehearsal_it_is_the_rehearsal_that_began_the_history(self):
        torch = types.SimpleNamespace(_C=types.SimpleNamespace(_cuda_isHistoryEnabled=lambda: True),
                                      cuda=types.SimpleNamespace(is_initialized=lambda: True))
        options = vramwise.record("unused").options
        for modules, who in (({}, "the program"), ({"vramwise_record": types.ModuleType("x")}, "the rehearsal")):
            with mock.patch.dict(sys.modules), mock.patch.object(history, "_shared", history._Shared()):
                # Other tests load the rehearsal's own modules.
                sys.modules.pop("vramwise_record", None)
                sys.modules.update(modules)
                note, began = history.begin(torch, options)
                self.assertFalse(began)
                self.assertIn(f"begun by {who}", note)


class PytestsOption(unittest.TestCase):
    def test_a_colon_without_a_size_is_no_card(self):
        self.assertEqual(arguments(["--vramwise-rehearse=a100:"], "a100:"), ([], "a100", ""))
        from vramwise import _rehearsed_pytest

        said = io.StringIO()
        with mock.patch.object(_rehearsed_pytest, "find_program", lambda: "x"), contextlib.redirect_stderr(said):
            self.assertEqual(_rehearsed_pytest.run(["--vramwise-rehearse=a100:"], "a100:", "X"), 4)
        self.assertIn("no size stands behind the colon", said.getvalue())


@unittest.skipUnless(HAS_NATIVE, "the native part is not built")
class Questions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.snapshot = vramwise.read(RECORDING)

    def test_errors_name_arguments_and_no_options_of_the_program(self):
        ask = self.snapshot
        for call, told in [
            (lambda: ask.replay(capacity="x"), "capacity='x'"),
            (lambda: ask.replay(total="x"), "total='x'"),
            (lambda: ask.replay(allocator="x"), "allocator='x': write 'pytorch' or 'vramwise'"),
            (lambda: ask.replay(allocator="vramwise", conf=""), "conf cannot be used with allocator"),
            (lambda: ask.replay(conf_at={-1: ""}), "conf_at"),
            (lambda: ask.replay(conf_at={10**9: ""}), "conf_at names event 1000000000"),
            (lambda: ask.replay(emit=__file__), "choose another name, or remove it"),
            (lambda: ask.slice(5, 1), "no events from 5 up to 1"),
            (lambda: ask.slice(5, 5), "no events from 5 up to 5"),
            (lambda: ask.tune(seed=-1), "seed is -1"),
            (lambda: ask.tune(candidates=0), "candidates is 0"),
            (lambda: ask.tune(jitter=10**9), "jitter='1000000000'"),
            (lambda: ask.peak(by="nope"), "by='nope': write 'stack', .* or 'phase'"),
            (lambda: ask.peak(at="nope"), "at='nope'"),
            (lambda: ask.peak(first=5, last=1), "first=5 comes after last=1"),
            (lambda: ask.peak(top=-1), "top is -1"),
            (lambda: ask.peak(device=7), "there is no device 7"),
            (lambda: ask.diff(ask, by="nope"), "by='nope'"),
            (lambda: vramwise.explain_text("x", top=-1), "top is -1"),
        ]:
            with self.subTest(told), self.assertRaisesRegex(vramwise.errors.ArgumentError, told) as seen:
                call()
            self.assertNotRegex(str(seen.exception), r"(^|[^\w-])--?[a-z]")

    def test_wrong_kinds_are_type_errors(self):
        ask = self.snapshot
        for call, told in [
            (lambda: ask.tune(seed="x"), "seed"),
            (lambda: ask.peak(frames="x"), "frames"),
            (lambda: ask.peak(torch=2.1), "torch is a text: a version"),
            (lambda: ask.replay(conf=3), "conf is a text"),
            (lambda: ask.leaks(marker=3), "marker"),
        ]:
            with self.subTest(told), self.assertRaisesRegex(TypeError, told):
                call()

    def test_warnings_name_the_line_that_asked_and_arguments(self):
        with self.assertWarnsRegex(vramwise.errors.VramwiseWarning, "with total, .* with capacity") as seen:
            self.snapshot.replay(conf="per_process_memory_fraction:0.5")
        self.assertEqual(Path(seen.filename).name, Path(__file__).name)

    def test_a_name_of_a_phase_is_not_taken_letter_by_letter(self):
        with self.assertRaisesRegex(vramwise.errors.ArgumentError, r"write \['train'\]"):
            vramwise.SettingsSchedule.from_history(self.snapshot, "train")

    def test_a_folder_names_a_file_in_it(self):
        with self.assertRaisesRegex(IsADirectoryError, "read one of the files in it, such as"):
            vramwise.read(RECORDING.parent)


if __name__ == "__main__":
    unittest.main()
