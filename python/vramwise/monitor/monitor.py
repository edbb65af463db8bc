"""Says now and then what memory is in use: by step or by epoch, to wherever you look."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .._numbers import whole_number
from .._say import warn
from .._torch_access import device_index, need_torch, why_no_cuda
from ..recorder.names import ranks
from .reading import MemoryReading, read_memory
from .writers import Target, writers_for

if TYPE_CHECKING:
    from typing_extensions import Self

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


class MemoryMonitor:
    """Says what memory is in use; made by :func:`log_memory`, where more is said of each argument.

    Args:
        to: where readings go.
        every: steps from one reading to the next.
        label: what a step is called.
        device: the device that is read; ``None`` for the current one.
        reset_peaks: whether peaks begin anew with each reading.
        driver: whether the driver is asked too.

    Attributes:
        steps: how many steps have ended.
        last: the last reading; ``None`` before the first.
    """

    def __init__(
        self,
        to: Target = print,
        *,
        every: int = 1,
        label: str = "step",
        device: Any = None,
        reset_peaks: bool = False,
        driver: bool = True,
    ) -> None:
        self._every = whole_number(every, "every", least=1)
        self._writers = writers_for(to)
        self._label, self._device = label, device
        self._reset_peaks, self._driver = reset_peaks, driver
        self._failed = False
        self._off = False
        self.steps = 0
        self.last: MemoryReading | None = None

    def step(self, step: int | None = None) -> MemoryReading | None:
        """Ends a step; every so many of them it takes a reading.

        Args:
            step: its number, where the program counts itself.

        Returns:
            The reading, if one was taken.
        """
        number, self.steps = self.steps if step is None else step, self.steps + 1
        return self.log(number) if self.steps % self._every == 0 else None

    def log(self, step: int | None = None) -> MemoryReading | None:
        """Takes a reading now.

        Args:
            step: the number that it has; ``None`` for that of the last step.

        Returns:
            It; ``None`` where there is no CUDA device, which is a warning once.

        Raises:
            NotAvailableError: torch is not installed.
            ValueError: there is no such device.
        """
        if self._off:
            return None
        torch = need_torch("vramwise.log_memory()")
        why = why_no_cuda(torch)
        if why is not None:
            self._off = True
            warn(f"no memory to log: {why}")
            return None
        index = device_index(torch, self._device)
        number = max(0, self.steps - 1) if step is None else step
        reading = read_memory(
            torch, index, step=number, label=self._label, rank=ranks(torch)["rank"], driver=self._driver
        )
        if self._reset_peaks:
            torch.cuda.reset_peak_memory_stats(index)
        self.last = reading
        for writer in self._writers:
            try:
                writer.write(reading)
            except Exception as error:  # noqa: BLE001, PERF203 - the program goes on
                self._could_not(error)
        return reading

    def watch(self, steps: Iterable[_T]) -> Iterator[_T]:
        """Goes through something and ends a step behind each item: ``for batch in monitor.watch(batches):``.

        Args:
            steps: what the loop goes through.
        """
        for item in steps:
            yield item
            self.step()

    def __call__(self, function: _F) -> _F:
        """As a decorator: each call of the function is a step. One that raises is none."""

        @functools.wraps(function)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            answer = function(*args, **kwargs)
            self.step()
            return answer

        return stepped  # type: ignore[return-value]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As a block for ``with``: a reading at its end, also where it ends with an error."""
        try:
            self.log()
        except Exception as failure:
            # The block's own error is the one to hear of.
            if error is None:
                raise
            self._could_not(failure)

    def _could_not(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            warn(f"a reading of memory could not be written ({type(error).__name__}: {error}); the program goes on")


def log_memory(
    to: Target = print,
    *,
    every: int = 1,
    label: str = "step",
    device: Any = None,
    reset_peaks: bool = False,
    driver: bool = True,
) -> MemoryMonitor:
    """A monitor that says every so many steps what memory is in use.

    ::

        monitor = vramwise.log_memory(logging.getLogger("memory"), every=100)
        for batch in batches:
            train(batch)
            monitor.step()

    or ``for batch in monitor.watch(batches):``, or as a decorator of what is called for each step or epoch::

        @vramwise.log_memory(print, label="epoch", reset_peaks=True)
        def train_epoch(): ...

    or as a block for ``with``, which takes one reading at its end.

    Args:
        to: ``print`` or another function of a text; a ``logging.Logger`` (level INFO); a file name ending in
            ``.jsonl`` (JSON lines) or ``.prom`` (Prometheus); a ``SummaryWriter``; something with
            ``write(reading)``; a list of these.
        every: steps between readings.
        label: what a step is called.
        device: as PyTorch takes it; ``None`` = the current device at each reading.
        reset_peaks: reset PyTorch's peaks after each reading, so that they are those of the steps in between. The
            program's own ``max_memory_allocated()`` then begins anew too.
        driver: also ask the driver what is free on the device.

    Raises:
        TypeError, ValueError: an argument means nothing.
    """
    return MemoryMonitor(to, every=every, label=label, device=device, reset_peaks=reset_peaks, driver=driver)
