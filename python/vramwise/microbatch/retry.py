"""One call for one batch, for programs that keep no :class:`MicroBatcher`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .attempt import StepOutcome
from .batcher import MicroBatcher
from .size import MicroSize

_sizes: dict[Any, tuple[MicroSize, MicroSize]] = {}


def oom_retry(step_fn: Callable[[Any], Any], batch: Any, model: Any = None, **options: Any) -> StepOutcome:
    """One batch forward and backward, again in smaller parts if memory runs out; with ``optimizer=`` also its step.

    ::

        outcome = vramwise.oom_retry(lambda part: loss_fn(model(part[0]), part[1]), batch, model, optimizer=optimizer)

    The size that fitted is remembered by the code of ``step_fn``, so that the next call from the same place begins
    with it. A :class:`MicroBatcher` of your own says more about what it does, and is as quick to make.

    Args:
        step_fn: as for :class:`MicroBatcher`.
        batch: the batch.
        model: as for :class:`MicroBatcher`.
        **options: the other arguments of :class:`MicroBatcher`.

    Returns:
        Loss, sizes and retries.

    Raises:
        Exception: as :meth:`MicroBatcher.step` and :meth:`MicroBatcher.backward` do.
    """
    batcher = MicroBatcher(step_fn, model, **options)
    key = (getattr(step_fn, "__code__", type(step_fn)), options.get("micro_batch_size"), options.get("min_size"))
    if key in _sizes:
        batcher.training_size, batcher.evaluation_size = _sizes[key]
    elif len(_sizes) >= 256:
        _sizes.clear()
    _sizes[key] = (batcher.training_size, batcher.evaluation_size)
    return batcher.backward(batch) if options.get("optimizer") is None else batcher.step(batch)
