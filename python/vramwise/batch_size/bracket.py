"""Which batch size to try next: pure decisions of the search for the largest that fits."""

from __future__ import annotations


class Bracket:
    """What is known so far; sizes below one that fits are taken to fit, those above one that does not, not to fit.

    Args:
        start: the first size to try.
        lowest, highest: the smallest and the largest size that may be tried; ``highest=None`` for no limit.
        exact: halve the interval until both sides are neighbours; otherwise stop at the first size on the other side,
            so that the answer is a power of two times ``start`` (or ``highest``).
        near: ``start`` is a guess that is thought to be good: look next to it first.

    >>> bracket = Bracket(start=2)
    >>> while (size := bracket.next()) is not None:
    ...     bracket.report(size, fits=size <= 11)
    >>> bracket.fits, bracket.too_large, bracket.tried
    (11, 12, [2, 4, 8, 16, 12, 10, 11])
    """

    def __init__(
        self, *, start: int, lowest: int = 1, highest: int | None = None, exact: bool = True, near: bool = False
    ) -> None:
        if lowest < 1 or (highest is not None and highest < lowest):
            raise ValueError(f"batch sizes from {lowest} to {highest} are no range: the smallest is at least 1")
        self.lowest, self.highest = lowest, highest
        self._start = max(lowest, start if highest is None else min(start, highest))
        self._exact = exact
        self._step = 1 if near else 0
        self.fits = 0
        self.too_large: int | None = None
        self.tried: list[int] = []

    def next(self) -> int | None:
        """The size to try; ``None`` when the answer is known: ``fits``, 0 if nothing does."""
        if not self.tried:
            return self._start
        if self.too_large is None:
            if self.fits == self.highest:
                return None
            above = self.fits + self._step if self._step else 2 * self.fits
            return above if self.highest is None else min(above, self.highest)
        if self.fits == 0:
            if self.too_large <= self.lowest:
                return None
            below = self.too_large - self._step if self._step else self.too_large // 2
            return max(below, self.lowest)
        if self.too_large - self.fits <= 1 or not self._exact:
            return None
        return (self.fits + self.too_large) // 2

    def report(self, size: int, *, fits: bool) -> None:
        """What came of a size. An answer that contradicts an earlier one is believed, being newer."""
        self.tried.append(size)
        if fits:
            self.fits = max(self.fits, size)
            if self.too_large is not None and self.too_large <= size:
                self.too_large = None
        else:
            self.too_large = size if self.too_large is None else min(self.too_large, size)
            if self.fits >= size:
                self.fits = 0
        if len(self.tried) > 1:
            self._step *= 2
