"""Takes a step that runs out of memory again in parts, with the gradients of the whole batch.

``batcher`` has what is called. ``trees`` cuts batches, ``parts`` goes through them, ``undo`` puts back what a failed
attempt changed, ``parallel`` knows DDP and FSDP, ``size`` remembers, purely, what fitted.
"""

from __future__ import annotations

from .attempt import StepOutcome
from .batcher import MicroBatcher
from .retry import oom_retry
from .trees import BatchShapeError, Cut

__all__ = ["BatchShapeError", "Cut", "MicroBatcher", "StepOutcome", "oom_retry"]
