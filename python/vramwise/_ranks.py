"""How the ranks of a distributed program agree: one small reduction, over a group of their own.

Votes go over gloo where that is possible: it takes no memory of the card, which is full just when a vote matters,
and it does not wait behind collectives of the training that another rank may be in.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ._torch_access import torch_if_loaded

# Outcomes of an attempt, ordered so that the least one of all ranks decides.
FAILED, OUT_OF_MEMORY, FINE = -1, 0, 1

# The group for votes, with the world that it was made for.
_made: tuple[Any, Any] | None = None


class Ranks:
    """The ranks that act together: all of ``group``, or all of the world, or this process alone.

    Where torch.distributed is initialised with a backend other than gloo, the first one made creates a gloo group of
    all ranks, which is a collective call: make it at the same point of the program on every rank.

    Args:
        group: the process group whose ranks must agree; ``None`` for all ranks. Reductions are done on the CPU if its
            backend is gloo, else on the current device.
        wait_s: seconds that a vote waits for the other ranks; ``None`` for the group's own limit.
    """

    def __init__(self, group: Any = None, *, wait_s: float | None = None) -> None:
        self._distributed = _initialised()
        self._group = group
        self._on_device = False
        self._wait_s: float | None = None
        self.size = 1
        if self._distributed is None:
            return
        self.size = int(self._distributed.get_world_size(group))
        if self.size < 2:
            return
        if group is None:
            self._group = group = _group_for_votes(self._distributed)
        backend = str(self._distributed.get_backend(group))
        self._on_device = backend not in ("gloo", "mpi", "fake") and "cpu:" not in backend
        # NCCL connects, which takes memory, at the first collective: now, while there is some.
        self.least([FINE])
        self._wait_s = wait_s

    @property
    def alone(self) -> bool:
        """Whether there is nobody to agree with."""
        return self.size < 2

    def least(self, values: Sequence[int]) -> list[int]:
        """The least of each value over all ranks; every rank must give as many. A collective.

        Raises:
            RuntimeError: another rank did not come, or is gone.
        """
        if self.alone or self._distributed is None:
            return list(values)
        import torch

        device = torch.device("cuda", torch.cuda.current_device()) if self._on_device else torch.device("cpu")
        votes = torch.tensor(list(values), dtype=torch.int64, device=device)
        minimum = self._distributed.ReduceOp.MIN
        if self._wait_s is None:
            self._distributed.all_reduce(votes, op=minimum, group=self._group)
        else:
            work = self._distributed.all_reduce(votes, op=minimum, group=self._group, async_op=True)
            if work is not None:
                work.wait(timedelta(seconds=self._wait_s))
        return [int(vote) for vote in votes.tolist()]

    def most(self, value: int) -> int:
        """The greatest value over all ranks. A collective."""
        return -self.least([-value])[0]

    def first(self) -> bool:
        """Whether this is the rank that does what only one should do."""
        return self.alone or self._distributed is None or self._distributed.get_rank(self._group) == 0


def _initialised() -> Any | None:
    torch = torch_if_loaded()
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _group_for_votes(distributed: Any) -> Any:
    """The world itself over gloo, or a gloo group beside it, made once per world."""
    global _made
    world = distributed.group.WORLD
    if _made is not None and _made[0] is world:
        return _made[1]
    group = world
    backend = str(distributed.get_backend())
    if backend not in ("gloo", "fake") and getattr(distributed, "is_gloo_available", lambda: False)():
        group = distributed.new_group(backend="gloo")
    _made = (world, group)
    return group
