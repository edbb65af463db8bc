"""What all callbacks do at the moments that their frameworks tell them of."""

from __future__ import annotations

from contextlib import ExitStack

from ..monitor import MemoryMonitor
from ..recorder import Recorder
from ..settings import SettingsSchedule

TRAIN = "train"
EVALUATE = "eval"


class Hooks:
    """A recorder, a monitor and a schedule, driven together; any of them may be missing.

    A recorder that is not at work yet is begun with the training, and stopped with it; evaluations are the phase
    ``"eval"`` in its history. The schedule's phases are ``"train"`` and ``"eval"``, or numbers of steps.
    """

    def __init__(
        self,
        recorder: Recorder | None = None,
        monitor: MemoryMonitor | None = None,
        schedule: SettingsSchedule | None = None,
    ) -> None:
        self._recorder, self._monitor, self._schedule = recorder, monitor, schedule
        self._ours = False
        self._evaluating = False
        self._training = False
        # What the recorder calls an evaluation, while there is one.
        self._phase = ExitStack()

    def begin(self) -> None:
        """Training begins."""
        self._training = True
        if self._recorder is not None and not self._recorder.recording:
            self._recorder.start()
            self._ours = True
        if self._schedule is not None:
            self._schedule.begin()
            self._schedule.enter_if_there(TRAIN)

    def step(self, number: int | None = None) -> None:
        """A step of the training has ended.

        Args:
            number: its number, where the framework counts.
        """
        self.end_evaluation()
        if self._recorder is not None:
            self._recorder.step()
        if self._monitor is not None:
            self._monitor.step(number)
        if self._schedule is not None:
            self._schedule.step()

    def begin_evaluation(self) -> None:
        """Evaluation begins; may be told for each of its batches."""
        if not self._evaluating:
            self._evaluating = True
            if self._recorder is not None:
                self._phase.enter_context(self._recorder.phase(EVALUATE))
            if self._schedule is not None:
                self._schedule.enter_if_there(EVALUATE)

    def end_evaluation(self) -> None:
        """Evaluation has ended, if there was any."""
        if self._evaluating:
            self._end_phase()
            if self._schedule is None:
                return
            if self._training:
                self._schedule.enter_if_there(TRAIN)
            else:
                # An evaluation of its own, before the training or behind it.
                self._schedule.restore()

    def _end_phase(self) -> None:
        self._evaluating = False
        self._phase.close()

    def end(self) -> None:
        """Training has ended, well or with an error, maybe in the middle of an evaluation."""
        self._training = False
        self._end_phase()
        if self._schedule is not None:
            self._schedule.restore()
        if self._recorder is not None and self._ours:
            self._ours = False
            self._recorder.stop()
