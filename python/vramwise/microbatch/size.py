"""How many samples go at once: a memory of what fitted, smaller after a failure, larger again after a while."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class MicroSize:
    """The number of samples that go through the model at once; pure, and the same on all ranks if told the same.

    Attributes:
        grow_after: after so many steps without a failure, twice the size is tried. Each time that fails, the wait
            doubles, up to 64 times; 0 never tries.
        smallest: fewer samples than this are not tried.
        size: the present size; ``None`` for whole batches.

    >>> size = MicroSize(grow_after=2)
    >>> size.failed(longest=16, whole=16), size.size
    (True, 8)
    >>> size.passed(); size.passed(); size.size      # whole batches again
    >>> size.failed(longest=16, whole=16), size.size
    (True, 8)
    """

    grow_after: int = 100
    smallest: int = 1
    size: int | None = None
    _whole: int = field(default=0, repr=False)
    _passed: int = field(default=0, repr=False)
    _wait: int = field(default=0, repr=False)
    _fallback: int | None = field(default=None, repr=False)

    def parts(self, samples: int) -> int:
        """In how many parts a batch goes."""
        if self.size is None or samples <= self.size:
            return 1
        return -(-samples // self.size)

    def failed(self, *, longest: int, whole: int) -> bool:
        """The attempt ran out of memory; whether there is a smaller size to try.

        Args:
            longest: samples of the longest part of the attempt, on any rank.
            whole: samples of the longest batch of the attempt, on any rank.
        """
        self._whole = max(self._whole, whole)
        self._passed = 0
        if self._fallback is not None and self._fallback < longest:
            # It was a try for more: back to what is known to fit, and longer until the next.
            self.size, self._fallback = self._fallback, None
            self._wait = min(2 * self._wait, 64 * self.grow_after)
            return True
        if longest <= self.smallest:
            return False
        self._fallback = None
        self.size = max(self.smallest, longest // 2)
        self._wait = self._wait or self.grow_after
        return True

    def passed(self) -> None:
        """A step was taken with the present size."""
        self._passed += 1
        if self.size is None:
            if self._passed >= max(self.grow_after, 1):
                # A larger size has proved itself: the next failure is a new one.
                self._fallback, self._wait = None, self.grow_after
            return
        if self.grow_after and self._passed >= max(self._wait, self.grow_after):
            self._passed = 0
            self._fallback = self.size
            larger = 2 * self.size
            self.size = None if larger >= self._whole else larger

    @property
    def proven(self) -> bool:
        """Whether several steps in a row fitted with the present size."""
        return self._passed >= 3
