"""The search for a batch size: what is tried, what counts, what is kept, what is put back."""

import gc
import json
import logging
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from batch_support import HAS_TORCH, less_garbage, needs_torch, out_of_memory
from vramwise import find_executable_batch_size
from vramwise.batch_size import BatchSizeSearch, TrainingTrial, scale_batch_size, search_batch_size
from vramwise.batch_size.bracket import Bracket
from vramwise.batch_size.predict import Prediction, predicted_batch_size
from vramwise.batch_size.results import KeptResults, surroundings
from vramwise.batch_size.search import margin_bytes
from vramwise.errors import NoBatchFitsError, VramwiseError

if HAS_TORCH:
    import torch


def setUpModule():
    less_garbage()
    logging.getLogger("vramwise.batch_size").setLevel(logging.ERROR)


def tearDownModule():
    gc.unfreeze()
    logging.getLogger("vramwise.batch_size").setLevel(logging.NOTSET)


def limited(limit, seen=None):
    def trial(batch_size):
        if seen is not None:
            seen.append(batch_size)
        if batch_size > limit:
            raise out_of_memory()

    return trial


class Decorator(unittest.TestCase):
    def test_with_and_without_arguments(self):
        seen = []

        @find_executable_batch_size
        def bare(batch_size):
            limited(100, seen)(batch_size)
            return batch_size

        @find_executable_batch_size(starting_batch_size=16)
        def given(batch_size, a, b=2):
            return batch_size, a, b

        self.assertEqual(bare(), 92)
        self.assertEqual(seen, [128, 115, 103, 92])
        self.assertEqual(given(1, b=3), (16, 1, 3))
        self.assertEqual(find_executable_batch_size(lambda batch_size: batch_size, 7)(), 7)
        self.assertEqual((bare.__name__, bare.batch_size), ("bare", 92))

    def test_a_reduced_size_stays(self):
        seen = []
        run = find_executable_batch_size(
            limited(20, seen), starting_batch_size=32, reduce_batch_size_fn=lambda n: n // 2
        )
        run()
        run()
        self.assertEqual(seen, [32, 16, 16])

    def test_reducing_functions_with_and_without_a_parameter(self):
        sizes = iter([9, 5, 2])
        seen = []
        find_executable_batch_size(limited(2, seen), 10, lambda: next(sizes))()
        self.assertEqual(seen, [10, 9, 5, 2])
        with self.assertRaisesRegex(ValueError, "must be smaller"):
            find_executable_batch_size(limited(2), 10, lambda size: size)()

    def test_reaching_zero(self):
        with self.assertRaisesRegex(RuntimeError, "No executable batch size found") as raised:
            find_executable_batch_size(limited(0), starting_batch_size=4)()
        self.assertIsInstance(raised.exception, NoBatchFitsError)
        self.assertEqual(raised.exception.tried, (4, 3, 2, 1))
        self.assertIsInstance(raised.exception.__cause__, RuntimeError)

    def test_a_floor(self):
        with self.assertRaises(NoBatchFitsError) as raised:
            find_executable_batch_size(limited(0), 8, lambda n: n // 2, min_batch_size=4)()
        self.assertEqual(raised.exception.tried, (8, 4))

    def test_other_errors_are_raised_at_once(self):
        calls = []

        def fails(batch_size):
            calls.append(batch_size)
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

        with self.assertRaisesRegex(RuntimeError, "mat1"):
            find_executable_batch_size(fails)()
        for interrupt in (KeyboardInterrupt, SystemExit):
            with self.assertRaises(interrupt):
                find_executable_batch_size(mock.Mock(side_effect=interrupt))()
        self.assertEqual(calls, [128])

    def test_a_caller_who_gives_the_batch_size_is_told(self):
        @find_executable_batch_size(starting_batch_size=4)
        def train(batch_size, model):
            return batch_size

        with self.assertRaisesRegex(TypeError, r"call it without, as in train\('m'\)"):
            train(128, "m")
        with self.assertRaisesRegex(TypeError, "the batch size"):
            train(batch_size=3, model="m")
        with self.assertRaisesRegex(TypeError, "takes no parameter"):
            find_executable_batch_size(lambda: None)()
        with self.assertRaises(ValueError):
            find_executable_batch_size(starting_batch_size=0)
        for wrong in (None, 8.0, True, "8"):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "starting_batch_size is a whole number"):
                find_executable_batch_size(starting_batch_size=wrong)
        with self.assertRaisesRegex(TypeError, "starting_batch_size=3"):
            find_executable_batch_size(3)
        with self.assertRaisesRegex(TypeError, "max_trials is a whole number"):
            search_batch_size(limited(4), max_trials=None)


class Steps(unittest.TestCase):
    def test_find_every_limit(self):
        for highest in (None, 1, 7, 64):
            for limit in range(70):
                for options in ({}, {"near": True}, {"exact": False}):
                    bracket = Bracket(start=5, highest=highest, **options)
                    while (size := bracket.next()) is not None and len(bracket.tried) < 40:
                        bracket.report(size, fits=size <= limit)
                        self.assertTrue(1 <= size <= (highest or 1000))
                    wanted = min(limit, highest or limit)
                    if options == {"exact": False}:
                        self.assertTrue(bracket.fits <= wanted <= max(2 * bracket.fits, 0) + 1)
                    else:
                        self.assertEqual(bracket.fits, wanted, (highest, limit, options))
                        self.assertEqual(len(bracket.tried), len(set(bracket.tried)))

    def test_a_good_guess_takes_two(self):
        bracket = Bracket(start=40, near=True)
        while (size := bracket.next()) is not None:
            bracket.report(size, fits=size <= 40)
        self.assertEqual(bracket.tried, [40, 41])


class Search(unittest.TestCase):
    def test_modes(self):
        self.assertEqual(search_batch_size(limited(100)).batch_size, 100)
        result = search_batch_size(limited(100), mode="power")
        self.assertEqual((result.batch_size, result.too_large, result.tried), (64, 128, (2, 4, 8, 16, 32, 64, 128)))
        self.assertEqual(int(search_batch_size(limited(100), max_val=48)), 48)

    def test_ends_after_so_many_trials(self):
        result = search_batch_size(limited(1 << 40), max_trials=4)
        self.assertEqual(result.tried, (2, 4, 8, 16))
        self.assertIsNone(result.too_large)

    def test_nothing_fits(self):
        with self.assertRaises(NoBatchFitsError) as raised:
            search_batch_size(limited(0), init_val=4)
        self.assertEqual(raised.exception.tried, (4, 2, 1))

    def test_in_a_loop_of_ones_own(self):
        search = BatchSizeSearch(max_val=32)
        with self.assertRaisesRegex(VramwiseError, "not over"):
            _ = search.result
        for attempt in search:
            with attempt as batch_size:
                limited(20)(batch_size)
        self.assertEqual(search.result.batch_size, 20)
        with self.assertRaisesRegex(VramwiseError, "with attempt as batch_size"):
            for _ in BatchSizeSearch():
                pass
        with self.assertRaises(ZeroDivisionError):
            for attempt in BatchSizeSearch():
                with attempt:
                    raise ZeroDivisionError
        with self.assertRaises(KeyboardInterrupt):
            for attempt in BatchSizeSearch():
                with attempt:
                    raise KeyboardInterrupt

    def test_wrong_arguments(self):
        for options in ({"mode": "linear"}, {"max_trials": 0}, {"max_val": 0}, {"margin": 1.5}, {"margin": "much"}):
            with self.assertRaises(ValueError):
                BatchSizeSearch(**options)
        with self.assertRaisesRegex(ValueError, "{batch}"):
            BatchSizeSearch(predict="python train.py")
        self.assertEqual(margin_bytes(0.5, 100), 50)
        self.assertEqual(margin_bytes("1KiB", 0), 1024)

    def test_a_forced_size_is_the_only_one(self):
        with mock.patch.dict(os.environ, VRAMWISE_BATCH_SIZE="37"):
            seen = []
            self.assertEqual(search_batch_size(limited(100, seen)).batch_size, 37)
            find_executable_batch_size(limited(100, seen))()
            self.assertEqual(seen, [37, 37])
            with self.assertRaises(NoBatchFitsError):
                search_batch_size(limited(10))
            with self.assertRaises(NoBatchFitsError):
                find_executable_batch_size(limited(10))()


class Limits(unittest.TestCase):
    def test_fewer_flushes_than_none_are_refused(self):
        for wrong in (-1, -100):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "max_alloc_retries is -.*at least 0"):
                search_batch_size(limited(10), max_alloc_retries=wrong)
        for wrong in (1.5, "2", True):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "max_alloc_retries is a whole number"):
                search_batch_size(limited(10), max_alloc_retries=wrong)
        self.assertEqual(search_batch_size(limited(10), max_alloc_retries=0).batch_size, 10)


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        patch = mock.patch.dict(os.environ, VRAMWISE_CACHE_DIR=folder.name)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_result_is_tried_once_and_believed(self):
        seen = []
        first = search_batch_size(limited(50, seen), cache_key="gpt 124M, 1024")
        del seen[:]
        second = search_batch_size(limited(50, seen), cache_key="gpt 124M, 1024")
        self.assertEqual((first.batch_size, second.batch_size, seen), (50, 50, [50]))
        self.assertTrue(second.from_cache and not first.from_cache)
        search_batch_size(limited(50, seen), cache_key="gpt 350M, 1024")
        self.assertGreater(len(seen), 5)

    def test_another_allocator_or_other_settings_are_another_search(self):
        now = {"backend": "native", "settings": "", "fraction": 1.0, "vramwise": {-1: ""}}
        cuda = types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: True, current_device=lambda: 0,
            get_device_properties=lambda device: types.SimpleNamespace(name="A Card", total_memory=8 << 30),
            get_allocator_backend=lambda: now["backend"],
            get_per_process_memory_fraction=lambda: now["fraction"],
        )
        status = types.SimpleNamespace(settings=now["vramwise"])
        torch = types.SimpleNamespace(__version__="2.11.0", cuda=cuda)
        with (
            mock.patch("vramwise.batch_size.results.torch_if_loaded", lambda: torch),
            mock.patch("vramwise.settings.current.allocator_settings", lambda torch: now["settings"]),
            mock.patch("vramwise.allocator.allocator_status", lambda: status),
        ):
            seen = [surroundings()]
            for change in ({"settings": "expandable_segments:True"}, {"backend": "cudaMallocAsync"}, {"backend": "vramwise"},
                           {"fraction": 0.5}):
                now.update(change)
                self.assertNotIn(surroundings(), seen, change)
                seen.append(surroundings())
            now["vramwise"][0] = "spare_mb:64"
            self.assertNotIn(surroundings(), seen)
            self.assertEqual(surroundings()["settings"], {"-1": "", "0": "spare_mb:64"})
        with self.subTest("also the search's own limits"):
            search_batch_size(limited(50), cache_key="c")
            self.assertFalse(search_batch_size(limited(50), cache_key="c", max_alloc_retries=0).from_cache)

    def test_a_result_that_does_not_fit_any_more_is_searched_anew(self):
        search_batch_size(limited(50), cache_key="a")
        again = search_batch_size(limited(30), cache_key="a")
        self.assertEqual((again.batch_size, again.from_cache), (30, False))
        self.assertTrue(search_batch_size(limited(30), cache_key="a").from_cache)

    def test_a_decorated_function_begins_with_it(self):
        for wanted in ([64, 57, 51], [51]):
            seen = []
            find_executable_batch_size(limited(52, seen), 64, cache_key="b")()
            self.assertEqual(seen, wanted)

    def test_files_are_whole_and_readable(self):
        search_batch_size(limited(50), cache_key="a")
        (file,) = (self.folder / "batch-size").iterdir()
        content = json.loads(file.read_text())
        self.assertEqual((content["batch_size"], content["key"]["user"]), (50, "a"))

    def test_damaged_and_foreign_files_are_none(self):
        kept, key = KeptResults(), {"user": "a"}
        kept.put(key, 8)
        self.assertEqual(kept.get(key), 8)
        (file,) = (self.folder / "batch-size").iterdir()
        for text in ("", "{", "[]", '{"batch_size": 5}', '{"key": {"user": "a"}, "batch_size": "9"}', "\0\0"):
            file.write_text(text)
            self.assertIsNone(kept.get(key), text)
        kept.forget(key)
        self.assertIsNone(kept.get(key))

    def test_a_place_that_cannot_be_written_is_no_error(self):
        (self.folder / "batch-size").write_text("a file in the way")
        self.assertEqual(search_batch_size(limited(5), cache_key="a").batch_size, 5)


class Predicted(unittest.TestCase):
    def program(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "vramwise"
        path.write_text(f"#!{sys.executable}\nimport sys\n{text}")
        path.chmod(0o755)
        patch = mock.patch.dict(os.environ, VRAMWISE_BIN=str(path))
        patch.start()
        self.addCleanup(patch.stop)
        os.environ.pop("VRAMWISE_REHEARSAL", None)
        return Path(folder.name)

    def test_the_search_begins_there(self):
        folder = self.program(
            "open(sys.argv[0] + '.args', 'w').write(repr(sys.argv[1:]))\nprint('{\"results\": [{\"largest\": 50}]}')"
        )
        prediction = Prediction(["python", "train.py", "--batch", "{batch}"], gpu="a100", memory="2GiB", steps=2)
        result = search_batch_size(limited(51), predict=prediction, max_val=300)
        self.assertEqual((result.predicted, result.tried), (50, (50, 51, 53, 52)))
        words = (folder / "vramwise.args").read_text()
        for word in (
            "'--gpu', 'a100'",
            "'batch=1..300'",
            "'--memory', '2GiB'",
            "'--steps', '2'",
            "'--batch', '{batch}'",
        ):
            self.assertIn(word, words)
        seen = []
        find_executable_batch_size(limited(60, seen), 64, predict=prediction)()
        self.assertEqual(seen, [50])

    def test_a_failure_is_a_line_in_the_log(self):
        self.program("print('error: the program failed', file=sys.stderr)\nsys.exit(2)")
        with self.assertLogs("vramwise.batch_size", "WARNING") as logs:
            result = search_batch_size(limited(5), predict=Prediction("python x --b {batch}", gpu="a100"))
        self.assertEqual((result.batch_size, result.predicted), (5, None))
        self.assertIn("error: the program failed", logs.output[0])

    def test_nothing_is_asked_inside_a_rehearsal(self):
        with mock.patch.dict(os.environ, VRAMWISE_REHEARSAL="somewhere"):
            self.assertIsNone(predicted_batch_size(Prediction("x {batch}"), lowest=1, highest=2))


class Scaling(unittest.TestCase):
    def test_the_attribute_is_found_tried_and_set(self):
        plain = types.SimpleNamespace(batch_size=4)
        hparams = types.SimpleNamespace(hparams={"batch_size": 4})
        data = types.SimpleNamespace(datamodule=types.SimpleNamespace(bs=1))
        for target, name, read in (
            (plain, "batch_size", lambda: plain.batch_size),
            (hparams, "batch_size", lambda: hparams.hparams["batch_size"]),
            (data, "bs", lambda: data.datamodule.bs),
            (types.SimpleNamespace(inner=plain), "inner.batch_size", lambda: plain.batch_size),
        ):
            found = scale_batch_size(target, lambda read=read: limited(11)(read()), batch_arg_name=name, max_val=64)
            self.assertEqual((found, read()), (11, 11))

    def test_it_is_as_before_after_an_error(self):
        target = types.SimpleNamespace(batch_size=4)
        for trial, error in ((lambda: 1 / 0, ZeroDivisionError), (lambda: limited(0)(1), NoBatchFitsError)):
            with self.assertRaises(error):
                scale_batch_size(target, trial)
            self.assertEqual(target.batch_size, 4)
        with self.assertRaisesRegex(AttributeError, "batch_arg_name"):
            scale_batch_size(object(), lambda: None)


@needs_torch
class Trials(unittest.TestCase):
    def test_train_three_steps_and_leave_everything_as_it_was(self):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        model[0].bias.grad = torch.ones(4)
        before = [one.clone() for one in (*model.parameters(), *model.buffers())]
        state = {key: value.clone() for key, value in optimizer.state[model[0].weight].items()}
        random = torch.get_rng_state()
        steps = []
        hook = optimizer.register_step_post_hook(lambda *_: steps.append(model[0].weight.detach().clone()))

        def make_batch(batch_size):
            if batch_size > 6:
                raise out_of_memory()
            return torch.randn(batch_size, 4)

        trial = TrainingTrial(model, optimizer, make_batch, lambda model, batch: model(batch).square().sum())
        result = search_batch_size(trial, init_val=4, max_val=32)
        hook.remove()
        self.assertEqual(result.batch_size, 6)
        # 4, 6 and 5 fit with three steps each; the steps did train.
        self.assertEqual(len(steps), 3 * sum(size <= 6 for size in result.tried))
        self.assertFalse(torch.equal(steps[0], before[0]))
        for one, other in zip((*model.parameters(), *model.buffers()), before):
            self.assertTrue(torch.equal(one, other))
        for key, value in optimizer.state[model[0].weight].items():
            self.assertTrue(torch.equal(value, state[key]), key)
        self.assertTrue(torch.equal(model[0].bias.grad, torch.ones(4)))
        self.assertTrue(torch.equal(torch.get_rng_state(), random))

    def test_state_that_was_not_there_is_gone_again(self):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.Adam(model.parameters())
        trial = TrainingTrial(
            model, optimizer, lambda n: {"x": torch.ones(n, 2)}, lambda m, b: m(b["x"]).sum(), steps=1
        )
        search_batch_size(trial, max_val=4)
        self.assertEqual(len(optimizer.state), 0)

    def test_the_loss_of_models_that_have_one(self):
        class Model(torch.nn.Linear):
            def forward(self, x):
                return {"loss": super().forward(x).sum()}

        model = Model(2, 2)
        TrainingTrial(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda n: {"x": torch.ones(n, 2)})(3)
        bare = torch.nn.Linear(2, 2)
        with self.assertRaisesRegex(TypeError, "loss_fn="):
            TrainingTrial(bare, torch.optim.SGD(bare.parameters()), lambda n: {"input": torch.ones(n, 2)})(3)


if __name__ == "__main__":
    unittest.main()
