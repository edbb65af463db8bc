"""The search for the largest batch size that fits, as a loop of attempts.

The program tries, the search decides what to try and what an error means. All of an attempt's memory is given back
before the next one, and all ranks try the same sizes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from .._numbers import whole_number
from .._ranks import FAILED, FINE, OUT_OF_MEMORY, Ranks
from .._say import warn
from .._sizes import parse_size, show_size
from .._torch_access import torch_if_loaded
from ..errors import NoBatchFitsError, OtherRankError, VramwiseError
from ..oom import OomWitness, free_after_oom, release_frames
from .bracket import Bracket
from .predict import Prediction, as_prediction, forced_batch_size, predicted_batch_size
from .results import KeptResults, surroundings

_log = logging.getLogger("vramwise.batch_size")

# Where the caller sets no limit, a prediction needs one all the same.
_HIGHEST_PREDICTION = 8192


@dataclass(frozen=True)
class BatchSizeResult:
    """What a search found.

    Attributes:
        batch_size: the largest size that fits, in samples.
        too_large: the smallest size known not to fit; ``None`` if none was met.
        tried: the sizes in the order of the attempts.
        from_cache: whether the size was known from an earlier search, and only confirmed.
        predicted: what the emulated card said; ``None`` if it was not asked or could not say.
        proven: whether the search came to its end. ``False`` where ``max_trials`` ended it, which is a warning too: a
            larger size may fit. With ``VRAMWISE_BATCH_SIZE``, where one size is tried, it is ``False`` as well.
    """

    batch_size: int
    too_large: int | None
    tried: tuple[int, ...]
    from_cache: bool = False
    predicted: int | None = None
    proven: bool = True

    def __int__(self) -> int:
        return self.batch_size

    __index__ = __int__


class Attempt:
    """One attempt, to be entered: ``with attempt as batch_size:``. Out of memory ends the block, and is not raised.

    Made by a :class:`BatchSizeSearch`.

    Args:
        batch_size: the size that is tried.
        ranks: who must agree.
        margin_bytes: memory to keep free meanwhile.
        max_alloc_retries: the most cache flushes that it may have; ``None`` for any number.
    """

    def __init__(self, batch_size: int, ranks: Ranks, *, margin_bytes: int, max_alloc_retries: int | None) -> None:
        self.batch_size = batch_size
        self.fits: bool | None = None
        self.error: BaseException | None = None
        self._ranks = ranks
        self._margin = margin_bytes
        self._max_retries = max_alloc_retries
        self._ballast: Any = None

    def __enter__(self) -> int:
        # A search may begin, and an attempt end, with the cache full of other sizes' segments.
        free_after_oom()
        self._witness = OomWitness()
        self._ballast = None
        try:
            self._ballast = _ballast(self._margin)
        except NoBatchFitsError as error:
            # Not raised here: the other ranks would wait for this one's vote.
            self.error = error
        self._retries = _alloc_retries()
        return self.batch_size

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._ballast = None
        if exc is not None and not isinstance(exc, Exception):
            return False
        oom = self._witness.saw_oom(exc)
        if exc is None:
            oom = isinstance(self.error, NoBatchFitsError)
            if self._max_retries is not None:
                oom |= _alloc_retries() - self._retries > self._max_retries
        own = OUT_OF_MEMORY if oom else FINE if exc is None else FAILED
        if oom:
            self.error = self.error or exc
            # The rest of the clearing up comes with the next attempt, or at the search's end.
            release_frames(exc)
        worst = self._ranks.least([own])[0]
        if own == FAILED:
            return False
        if worst == FAILED:
            raise OtherRankError(f"another rank failed with batch size {self.batch_size}; its log says why")
        self.fits = worst == FINE
        return True


class BatchSizeSearch:
    """Searches the largest batch size that fits, in a loop of your own.

    ::

        search = BatchSizeSearch(max_val=512)
        for attempt in search:
            with attempt as batch_size:
                three_steps(batch_size)      # forward, backward and optimizer: a function, so that its tensors go
        print(search.result.batch_size)

    Only out of memory (:func:`vramwise.is_oom_error`) makes a size too large; every other error is raised at once.
    Whatever is smaller than a size that fits is taken to fit.

    Args:
        mode: ``"binsearch"`` finds the exact limit; ``"power"`` doubles from ``init_val`` and takes the last that fits.
        init_val: the first size to try.
        min_val: the smallest size that may be tried.
        max_val: the largest; ``None`` for no limit (a program whose memory does not grow then ends at ``max_trials``).
        max_trials: the most attempts; then the largest that fitted so far is the result, with a warning, and its
            ``proven`` is ``False``.
        margin: memory of the current CUDA device to keep free: a fraction of the card's memory (a float below 1), or
            bytes (``1 << 30``, ``"1GiB"``). It is held by a tensor during attempts, so that what fits, fits beside it.
        max_alloc_retries: the most cache flushes (``num_alloc_retries``) that an attempt may have; more, and it does
            not fit, since each flush costs time. ``None`` for any number.
        group: the process group whose ranks must agree (see the guide); ``None`` for all of them.
        cache_key: text under which the result is kept for later runs; it should name whatever decides about memory:
            the model, its options, the sequence length. Card, memory, versions, the allocator with its settings and the
            search's limits are added. A kept size is tried once before it is believed.
        predict: start where the emulated card says: ``True`` for the running script, a command with ``{batch}``, or a
            :class:`Prediction`. If nothing can be predicted, the log says why, and the search goes on without.

    Raises:
        ValueError, TypeError: limits or a margin that cannot be; a command without ``{batch}``.
    """

    def __init__(
        self,
        *,
        mode: Literal["power", "binsearch"] = "binsearch",
        init_val: int = 2,
        min_val: int = 1,
        max_val: int | None = None,
        max_trials: int = 25,
        margin: float | str = 0,
        max_alloc_retries: int | None = None,
        group: Any = None,
        cache_key: str | None = None,
        predict: bool | str | list[str] | Prediction | None = None,
    ) -> None:
        if mode not in ("power", "binsearch"):
            raise ValueError(f"mode={mode!r}: write 'power' or 'binsearch'")
        max_trials = whole_number(max_trials, "max_trials", least=1)
        init_val, min_val = batch_size(init_val, "init_val"), batch_size(min_val, "min_val")
        max_val = None if max_val is None else batch_size(max_val, "max_val")
        if max_val is not None and max_val < min_val:
            raise ValueError(f"max_val is {max_val}, which is less than min_val, {min_val}: there is nothing to try")
        Bracket(start=init_val, lowest=min_val, highest=max_val)
        if max_alloc_retries is not None:
            max_alloc_retries = whole_number(max_alloc_retries, "max_alloc_retries", least=0)
        self._limits = {"mode": mode, "init_val": init_val, "min_val": min_val, "max_val": max_val}
        self._limits["max_alloc_retries"] = max_alloc_retries
        self._mode, self._start, self._lowest, self._highest = mode, init_val, min_val, max_val
        self._max_trials = max_trials
        self._margin = margin
        margin_bytes(margin, 1 << 40)
        self._max_retries = max_alloc_retries
        self._group = group
        self._key = cache_key
        self._prediction = as_prediction(predict)
        self._result: BatchSizeResult | None = None

    @property
    def result(self) -> BatchSizeResult:
        """What the loop found, once it is over.

        Raises:
            VramwiseError: the loop is not over.
        """
        if self._result is None:
            raise VramwiseError("the search is not over: its result is there when the loop over it has ended")
        return self._result

    def __iter__(self) -> Iterator[Attempt]:
        """The attempts, one by one.

        Raises:
            NoBatchFitsError: at the end, if nothing fits.
        """
        self._result = None
        ranks = Ranks(self._group)
        margin = margin_bytes(self._margin, _card_bytes())
        forced = forced_batch_size()
        if forced is not None:
            yield from self._forced(forced, ranks)
            return
        kept, key = KeptResults(), self._full_key(margin, ranks)
        known = self._known(kept, key, ranks)
        predicted = None if known is not None else self._predicted(ranks, margin)
        start = known or predicted or self._start
        bracket = Bracket(
            start=start,
            lowest=self._lowest,
            highest=self._highest or LARGEST,
            exact=self._mode == "binsearch",
            near=predicted is not None,
        )
        error: BaseException | None = None
        while len(bracket.tried) < self._max_trials and (size := bracket.next()) is not None:
            attempt = Attempt(size, ranks, margin_bytes=margin, max_alloc_retries=self._max_retries)
            yield attempt
            if attempt.fits is None:
                raise VramwiseError("an attempt was not made: write `with attempt as batch_size:` in the loop")
            _log.info("batch size %d %s", size, "fits" if attempt.fits else "does not fit")
            bracket.report(size, fits=attempt.fits)
            error = attempt.error or error
            if known is not None and attempt.fits:
                break
            if known is not None:
                known = None
                kept.forget(key)
        free_after_oom()
        proven = known is not None or bracket.next() is None
        if not bracket.fits:
            raise no_batch_fits(
                bracket.tried, bracket.too_large or self._lowest, margin, None if proven else self._max_trials
            ) from error
        self._result = BatchSizeResult(
            bracket.fits,
            bracket.too_large,
            tuple(bracket.tried),
            from_cache=known is not None,
            predicted=predicted,
            proven=proven,
        )
        if not proven:
            smallest = f", and {bracket.too_large} does not" if bracket.too_large is not None else ""
            warn(
                f"the search for a batch size ended after max_trials={self._max_trials} attempts: {bracket.fits} fits"
                f"{smallest}, but whether it is the largest that fits is not proven; give a larger max_trials, or a "
                "max_val"
            )
        elif self._key is not None and ranks.first() and known is None:
            kept.put(key, bracket.fits)

    def _forced(self, size: int, ranks: Ranks) -> Iterator[Attempt]:
        attempt = Attempt(size, ranks, margin_bytes=0, max_alloc_retries=None)
        yield attempt
        if not attempt.fits:
            raise no_batch_fits([size], size, 0) from attempt.error
        self._result = BatchSizeResult(size, None, (size,), proven=False)

    def _full_key(self, margin: int, ranks: Ranks) -> dict[str, Any]:
        return {"user": self._key, **self._limits, "margin": margin, "ranks": ranks.size, **surroundings()}

    def _known(self, kept: KeptResults, key: dict[str, Any], ranks: Ranks) -> int | None:
        """The kept size, if every rank has one; the least of them."""
        own = kept.get(key) if self._key is not None else None
        return ranks.least([own or 0])[0] or None

    def _predicted(self, ranks: Ranks, margin: int) -> int | None:
        """The prediction of the first rank, for all."""
        if self._prediction is None:
            return None
        highest = self._highest or _HIGHEST_PREDICTION
        said: int | None = None
        if ranks.first():
            said = predicted_batch_size(
                self._prediction,
                lowest=self._lowest,
                highest=highest,
                margin_bytes=margin,
                world_size=ranks.size,
            )
            said = said or 0
        # All others vote more than any size.
        least = ranks.least([said if said is not None else 1 << 62])[0]
        return least or None


def no_batch_fits(tried: list[int], smallest: int, margin: int, max_trials: int | None = None) -> NoBatchFitsError:
    """The error, with what was tried and what can be done.

    Args:
        tried: the sizes.
        smallest: the smallest that might have been tried.
        margin: what was kept free, in bytes.
        max_trials: the number of attempts, where that was the end.
    """
    beside = f" beside a margin of {show_size(margin)}" if margin else ""
    end = f"{smallest} is the smallest that was allowed"
    if max_trials is not None:
        end = f"max_trials={max_trials} allows no further attempt with a smaller one"
    return NoBatchFitsError(
        f"No executable batch size found: {', '.join(map(str, tried)) or 'nothing'} ran out of memory{beside}, and "
        f"{end}. The model, its gradients and its optimizer's state may be too "
        "large by themselves; `vramwise explain` reads the error below",
        tried=tuple(tried),
        smallest=smallest,
    )


#: More samples than any batch has; beyond, a size is an error, and no rank could tell it to another.
LARGEST = 1 << 40


def batch_size(size: Any, name: str) -> int:
    """A batch size as Python's own number.

    Raises:
        TypeError: it is no whole number.
        ValueError: less than 1, or more than any batch has.
    """
    size = whole_number(size, name, least=1)
    if size > LARGEST:
        raise ValueError(f"{name} is {size}: no batch has more than {LARGEST} samples")
    return int(size)


def margin_bytes(margin: float | str, card_bytes: int) -> int:
    """A margin in bytes, of a card with so many.

    >>> margin_bytes(0.25, 1 << 30) >> 20, margin_bytes("1GiB", 0) >> 20
    (256, 1024)

    Raises:
        ValueError: negative, a fraction of 1 or more, or no size.
    """
    if isinstance(margin, float):
        if not 0 <= margin < 1:
            raise ValueError(f"margin={margin!r}: a fraction is at least 0 and less than 1; write bytes as an int")
        return int(margin * card_bytes)
    try:
        return parse_size(margin)
    except (TypeError, ValueError) as error:
        raise type(error)(f"margin: {error}") from None


def _cuda() -> Any | None:
    torch = torch_if_loaded()
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_available() else None


def _card_bytes() -> int:
    cuda = _cuda()
    return 0 if cuda is None else int(cuda.get_device_properties(cuda.current_device()).total_memory)


def _alloc_retries() -> int:
    cuda = _cuda()
    return 0 if cuda is None else int(cuda.memory_stats().get("num_alloc_retries", 0))


def _ballast(size: int) -> Any:
    """A tensor of so many bytes on the current device: a segment of its own, since its size is a multiple of 2 MiB."""
    cuda = _cuda()
    if size <= 0 or cuda is None:
        return None
    import torch

    step = 2 << 20
    try:
        return torch.empty((size + step - 1) // step * step, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        free = show_size(cuda.mem_get_info()[0])
        raise NoBatchFitsError(
            f"the margin of {show_size(size)} alone does not fit: {free} are free before the attempt"
        ) from error
