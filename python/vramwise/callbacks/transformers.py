"""For the Trainer of Hugging Face's transformers."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import NotAvailableError
from ..monitor import MemoryMonitor
from ..recorder import Recorder
from ..settings import SettingsSchedule
from ._hooks import Hooks

try:
    _Base: Any = importlib.import_module("transformers").TrainerCallback
except ModuleNotFoundError:
    raise NotAvailableError(
        "vramwise.callbacks.transformers needs the package transformers, which is not installed here",
        missing="transformers",
    ) from None


class MemoryCallback(_Base):  # type: ignore[misc]
    """Records, logs and schedules settings while a ``Trainer`` trains.

    ::

        trainer = Trainer(..., callbacks=[MemoryCallback(recorder=vramwise.record("snapshots"))])

    Args:
        recorder: begun with the training and stopped with it, unless it was at work before. To have the model in the
            history too, begin before it is moved to the device: ``vramwise.start_recording("snapshots")``.
        monitor: what says how much memory is in use; steps have the Trainer's own numbers.
        schedule: settings for the phases ``"train"`` and ``"eval"``, or by the number of the step.
    """

    def __init__(
        self,
        recorder: Recorder | None = None,
        monitor: MemoryMonitor | None = None,
        schedule: SettingsSchedule | None = None,
    ) -> None:
        self._hooks = Hooks(recorder, monitor, schedule)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins."""
        self._hooks.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step of the optimizer, which may be of several batches, has ended."""
        self._hooks.step(int(state.global_step))

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer does not say when an evaluation begins, only that a batch of it is done."""
        self._hooks.begin_evaluation()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation has ended."""
        self._hooks.end_evaluation()

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """A prediction has ended."""
        self._hooks.end_evaluation()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends; where the training ends with an error, the recorder goes on to the end of the process."""
        self._hooks.end()
