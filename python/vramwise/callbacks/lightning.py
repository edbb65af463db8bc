"""For Lightning, under either of its names."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..errors import NotAvailableError
from ..monitor import MemoryMonitor
from ..recorder import Recorder
from ..settings import SettingsSchedule
from ._hooks import Hooks

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _lightning() -> Any:
    """The one that the program uses: their classes are not the same."""
    for name in sorted(_NAMES, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:  # noqa: PERF203 - there are two
            continue
    raise NotAvailableError(
        "vramwise.callbacks.lightning needs lightning or pytorch_lightning, which are not installed here",
        missing="lightning",
    )


_Base: Any = _lightning().Callback


class MemoryCallback(_Base):  # type: ignore[misc]
    """Records, logs and schedules settings while a ``Trainer`` fits.

    ::

        trainer = Trainer(..., callbacks=[MemoryCallback(recorder=vramwise.record("snapshots"))])

    Args:
        recorder: begun with the training and stopped with it, unless it was at work before. Lightning moves the
            model to the device before; to have that in the history too, begin earlier:
            ``vramwise.start_recording("snapshots")``.
        monitor: what says how much memory is in use; steps are batches, counted through all epochs.
        schedule: settings for the phases ``"train"`` and ``"eval"`` (validation), or by the number of the batch.
    """

    def __init__(
        self,
        recorder: Recorder | None = None,
        monitor: MemoryMonitor | None = None,
        schedule: SettingsSchedule | None = None,
    ) -> None:
        super().__init__()
        self._hooks = Hooks(recorder, monitor, schedule)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins, before the check of the validation."""
        self._hooks.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch has ended."""
        self._hooks.step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """A validation begins."""
        self._hooks.begin_evaluation()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """A validation has ended."""
        self._hooks.end_evaluation()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends."""
        self._hooks.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends, as the training did with an error. The error is looked at by nobody here, and not kept."""
        self._hooks.end()
