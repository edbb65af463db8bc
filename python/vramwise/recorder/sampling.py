"""In which steps allocations get stacks where ``stacks="auto"``: decided here, done by ``history``.

A stack for each allocation is most of what recording costs. Steps resemble each other, so some of them are enough for
most questions: those at the beginning, every so many, and those where something is new.
"""

from __future__ import annotations

from collections import deque

#: Steps at the beginning, and after each thing that is new.
FIRST = 3
#: After that, one step in so many.
EVERY = 20
#: Something is new when a step ends with so many times what was reserved at most before.
GROWTH = 1.02


class Sampling:
    """Says for each step whether its allocations get stacks. Pure: no torch, no clock.

    >>> sampling = Sampling()
    >>> [step for step in range(1, 50) if sampling.begins(step, reserved=100)]
    [1, 2, 20, 40]

    Args:
        step: the one that is under way; what is allocated up to its end has stacks.

    Attributes:
        last_steps: numbers of the last steps with stacks, oldest first; at most 100.
    """

    def __init__(self, step: int = 0) -> None:
        self.last_steps: deque[int] = deque([step], maxlen=100)
        self._until = step + FIRST
        self._largest = 0
        self._phases: dict[str, int] = {}

    def begins(self, step: int, reserved: int) -> bool:
        """Whether a step that begins now has stacks.

        Args:
            step: its number, counted from 0.
            reserved: bytes reserved on the device now.
        """
        if reserved > self._largest * GROWTH:
            # The steps before the first one's end are sampled anyway, and growth from nothing is none.
            if self._largest:
                self._until = max(self._until, step + 1)
            self._largest = reserved
        wanted = step < self._until or step % EVERY == 0
        if wanted:
            self.last_steps.append(step)
        return wanted

    def is_of_interest(self, step: int) -> None:
        """Something happened in a step, such as an allocation that failed: it and the next ones have stacks."""
        self._until = max(self._until, step + FIRST)
        if self.last_steps[-1] != step:
            self.last_steps.append(step)

    def enters(self, phase: str) -> bool:
        """Whether a part of the program with a name has stacks: its first times, and one time in so many."""
        times = self._phases.get(phase, 0)
        self._phases[phase] = times + 1
        return times < FIRST or times % EVERY == 0
