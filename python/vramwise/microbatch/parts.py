"""How a batch becomes parts, and what each part's loss counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .trees import BatchShapeError, Cut, UnknownFieldError


@dataclass(frozen=True)
class Parts:
    """The user's wishes about parts; see :class:`vramwise.MicroBatcher` for each.

    Attributes:
        cut: how trees of tensors are cut.
        split_fn: the user's own way, instead.
        mean: whether losses are means over samples, rather than sums.
        weight_fn: what a part weighs; ``None`` for its samples.
        all_needed: whether parts that weigh nothing must go through the model too.
    """

    cut: Cut
    split_fn: Callable[[Any, Sequence[int]], Sequence[Any]] | None
    mean: bool
    weight_fn: Callable[[Any], Any] | None
    all_needed: bool
    # Names of ``cut`` that a batch has had: a later one may do without.
    _seen: set[str] = field(default_factory=set, repr=False, compare=False)

    def measure(self, batch: Any) -> tuple[int, str | None]:
        """Samples of a batch; with the reason, if it can only go whole.

        Raises:
            UnknownFieldError: a name of ``cut`` that no batch has had so far.
        """
        try:
            self.cut.refuse_unknown(batch, self._seen)
            self._seen.update(self.cut.shared, self.cut.samples)
            return self.cut._size_of(batch), None
        except UnknownFieldError:
            raise
        except BatchShapeError as error:
            return 1, str(error)

    def of(self, batch: Any, sizes: list[int]) -> Sequence[Any]:
        """The batch in parts of these sizes.

        Raises:
            BatchShapeError: it cannot be cut so.
        """
        if len(sizes) == 1:
            return [batch]
        if self.split_fn is None:
            return self.cut._parts(batch, sizes)
        given = self.split_fn(batch, sizes)
        if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
            raise TypeError(f"split_fn gave {type(given).__name__}: it gives the list of parts")
        parts = list(given)
        if len(parts) != len(sizes):
            raise BatchShapeError(f"split_fn gave {len(parts)} parts where {len(sizes)} sizes were asked for")
        return parts

    def shares(self, parts: Sequence[Any], sizes: list[int]) -> list[float]:
        """What each part's loss is multiplied with, so that they add up to the batch's.

        Raises:
            ValueError: weights that are no counts, or 0 where no part may be left out.
        """
        if not self.mean or len(parts) == 1:
            return [1.0] * len(parts)
        weights = [float(size) for size in sizes]
        if self.weight_fn is not None:
            counted = [_weight(self.weight_fn(part)) for part in parts]
            if any(not 0 <= weight < float("inf") for weight in counted):
                raise ValueError(f"weight_fn gave {counted}: weights are counts, so neither negative nor infinite")
            if self.all_needed and 0 in counted:
                raise ValueError("weight_fn gave 0 for a part, which FSDP cannot leave out: sum the loss instead")
            if sum(counted) > 0:
                weights = counted
        total = sum(weights)
        return [weight / total for weight in weights]


def _weight(given: Any) -> float:
    """What ``weight_fn`` gave, as a number.

    Raises:
        TypeError: it is none.
    """
    try:
        return float(given)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"weight_fn gave {given!r}: it gives one number, such as a count of tokens") from None
