"""Callbacks: what they do at the moments that frameworks tell them of. The frameworks themselves are tried by the examples."""

import contextlib
import importlib
import sys
import unittest
from types import ModuleType, SimpleNamespace
from unittest import mock

import emulated

sys.path.insert(0, str(emulated.PACKAGE))

import vramwise
from vramwise.callbacks._hooks import Hooks
from vramwise.callbacks.loop import steps


class Noted:
    """Stands for a recorder, a monitor and a schedule; notes what it is told."""

    def __init__(self, recording=False):
        self.recording, self.told = recording, []

    def recorder(self):
        def start():
            self.recording = True
            self.told.append("start")

        def stop():
            self.recording = False
            self.told.append("stop")

        noted = self

        class Recorder:
            recording = property(lambda _: noted.recording)

        @contextlib.contextmanager
        def phase(name):
            self.told.append(f"{name} begins")
            yield
            self.told.append(f"{name} ends")

        recorder = Recorder()
        recorder.phase = phase
        recorder.start, recorder.stop, recorder.step = start, stop, lambda: self.told.append("step")
        return recorder

    def monitor(self):
        return SimpleNamespace(step=lambda number: self.told.append(("log", number)))

    def schedule(self):
        return SimpleNamespace(begin=lambda: self.told.append("begin"), restore=lambda: self.told.append("restore"),
                               step=lambda: self.told.append("scheduled"), enter_if_there=self.told.append)

    def all(self):
        return {"recorder": self.recorder(), "monitor": self.monitor(), "schedule": self.schedule()}


def modules(**found):
    """Only these of the modules that callbacks are for."""
    names = ["transformers", "lightning", "lightning.pytorch", "pytorch_lightning", "vramwise.callbacks.transformers",
             "vramwise.callbacks.lightning"]
    patched = dict.fromkeys(names[:4]) | {name.replace("__", "."): module for name, module in found.items()}
    patch = mock.patch.dict(sys.modules, patched)
    patch.start()
    for name in names[4:]:
        sys.modules.pop(name, None)
    return patch


class Loops(unittest.TestCase):
    def test_each_batch_is_a_step_between_a_beginning_and_an_end(self):
        noted = Noted()
        self.assertEqual(list(steps("ab", **noted.all())), ["a", "b"])
        step = ["step", ("log", None), "scheduled"]
        self.assertEqual(noted.told, ["start", "begin", "train", *step, *step, "restore", "stop"])

    def test_a_loop_that_is_left_early_ends_all_the_same(self):
        noted = Noted()
        for batch in steps("abc", recorder=noted.recorder()):
            if batch == "b":
                break
        self.assertEqual(noted.told, ["start", "step", "stop"])

    def test_a_recorder_that_was_at_work_before_goes_on(self):
        noted = Noted(recording=True)
        list(steps("a", recorder=noted.recorder()))
        self.assertEqual(noted.told, ["step"])

    def test_without_anything_it_is_the_loop_itself(self):
        self.assertEqual(list(steps(range(3))), [0, 1, 2])


class EvaluationsOfTheirOwn(unittest.TestCase):
    def test_behind_the_training_the_settings_before_it_come_back(self):
        noted = Noted()
        hooks = Hooks(schedule=noted.schedule())
        for _ in range(2):
            hooks.begin_evaluation()
            hooks.end_evaluation()
            hooks.begin()
            hooks.end()
        alone, training = ["eval", "restore"], ["begin", "train", "restore"]
        self.assertEqual(noted.told, [*alone, *training, *alone, *training])


class TheTrainerOfTransformers(unittest.TestCase):
    def test_its_events_are_steps_and_phases(self):
        transformers = ModuleType("transformers")
        transformers.TrainerCallback = type("TrainerCallback", (), {})
        patch = modules(transformers=transformers)
        self.addCleanup(patch.stop)
        callbacks = importlib.import_module("vramwise.callbacks.transformers")
        noted = Noted()
        callback = callbacks.MemoryCallback(**noted.all())
        self.assertIsInstance(callback, transformers.TrainerCallback)
        state = SimpleNamespace(global_step=1)
        callback.on_train_begin(None, state, None, model=None)
        callback.on_step_end(None, state, None)
        callback.on_prediction_step(None, state, None)
        callback.on_prediction_step(None, state, None)
        callback.on_evaluate(None, state, None, metrics={})
        callback.on_train_end(None, state, None)
        self.assertEqual(noted.told, ["start", "begin", "train", "step", ("log", 1), "scheduled", "eval begins", "eval",
                                      "eval ends", "train", "restore", "stop"])

    def test_without_transformers_the_error_says_so(self):
        self.addCleanup(modules().stop)
        with self.assertRaisesRegex(vramwise.VramwiseError, "not installed") as caught:
            importlib.import_module("vramwise.callbacks.transformers")
        self.assertEqual(caught.exception.missing, "transformers")


class LightningUnderBothNames(unittest.TestCase):
    def package(self, name):
        package = ModuleType(name)
        package.Callback = type("Callback", (), {})
        return package

    def test_its_events_are_steps_and_phases_and_an_error_ends_it(self):
        lightning = self.package("lightning.pytorch")
        self.addCleanup(modules(lightning=ModuleType("lightning"), lightning__pytorch=lightning).stop)
        noted = Noted()
        callback = importlib.import_module("vramwise.callbacks.lightning").MemoryCallback(**noted.all())
        self.assertIsInstance(callback, lightning.Callback)
        callback.on_fit_start(None, None)
        callback.on_validation_start(None, None)
        callback.on_validation_end(None, None)
        callback.on_train_batch_end(None, None, None, None, 0)
        callback.on_exception(None, None, ValueError())
        callback.on_fit_end(None, None)
        self.assertEqual(noted.told, ["start", "begin", "train", "eval begins", "eval", "eval ends", "train", "step",
                                      ("log", None), "scheduled", "restore", "stop", "restore"])

    def test_an_error_in_the_middle_of_a_validation_ends_that_too(self):
        lightning = self.package("lightning.pytorch")
        self.addCleanup(modules(lightning=ModuleType("lightning"), lightning__pytorch=lightning).stop)
        noted = Noted()
        callback = importlib.import_module("vramwise.callbacks.lightning").MemoryCallback(recorder=noted.recorder())
        callback.on_fit_start(None, None)
        callback.on_validation_start(None, None)
        callback.on_exception(None, None, ValueError())
        self.assertEqual(noted.told, ["start", "eval begins", "eval ends", "stop"])

    def test_the_one_that_the_program_uses_is_taken(self):
        old = self.package("pytorch_lightning")
        self.addCleanup(modules(pytorch_lightning=old).stop)
        self.assertTrue(issubclass(importlib.import_module("vramwise.callbacks.lightning").MemoryCallback, old.Callback))

    def test_without_either_the_error_says_so(self):
        self.addCleanup(modules().stop)
        with self.assertRaisesRegex(vramwise.VramwiseError, "not installed") as caught:
            importlib.import_module("vramwise.callbacks.lightning")
        self.assertEqual(caught.exception.missing, "lightning")


if __name__ == "__main__":
    unittest.main()
