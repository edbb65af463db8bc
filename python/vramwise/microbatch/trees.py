"""Batches as programs have them (tensors in tuples, lists, mappings, dataclasses), cut along the batch dimension.

Two passes: the first finds what is to be cut and how long it is, the second cuts. A tree that could be cut in two ways
is refused, since a wrong cut would train on wrong data without a word.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._numbers import whole_number
from ..errors import VramwiseError


class BatchShapeError(VramwiseError, ValueError):
    """A batch that cannot be cut into micro-batches, or not without a guess; the message says which part of it."""


class UnknownFieldError(BatchShapeError):
    """A name of ``shared=`` or ``samples=`` that the batch does not have; the message says which it has."""


@dataclass(frozen=True)
class Cut:
    """How a batch is cut.

    Attributes:
        dim: the batch dimension of every tensor.
        batch_size: how many samples a batch has, or a function of the batch that says so; ``None`` to find out.
        shared: parts that every micro-batch gets whole: keys, fields or, in sequences, positions, joined by dots
            (``"position_ids"``, ``"inputs.table"``, ``"1"``).
        samples: sequences with one item for each sample, named likewise (``"images"``; ``""`` for the batch itself).
    """

    dim: int = 0
    batch_size: int | Callable[[Any], int] | None = None
    shared: Sequence[str] = ()
    samples: Sequence[str] = ()

    def __post_init__(self) -> None:
        whole_number(self.dim, "dim")
        if self.batch_size is not None and not callable(self.batch_size):
            whole_number(self.batch_size, "batch_size", least=1)
        for name in ("shared", "samples"):
            given = getattr(self, name)
            if isinstance(given, str) or not all(isinstance(one, str) for one in given):
                raise TypeError(f"{name} is a list of names such as ['images'], not {given!r}")

    def size_of(self, batch: Any) -> int:
        """How many samples the batch has.

        Raises:
            BatchShapeError: parts differ in length, or there is nothing to cut.
            UnknownFieldError: it has no part of a name in ``shared`` or ``samples``.
        """
        self.refuse_unknown(batch)
        return self._size_of(batch)

    def refuse_unknown(self, batch: Any, known_from_before: Collection[str] = ()) -> None:
        """Looks for every name of ``shared`` and ``samples`` in a batch.

        Args:
            batch: the batch.
            known_from_before: names that an earlier batch had, so that they are no slip of the pen.

        Raises:
            UnknownFieldError: one is not there.
        """
        wanted = {name for name in (*self.shared, *self.samples) if name not in known_from_before}
        if not wanted:
            return
        there = dict.fromkeys(_paths(batch, ""))
        for name in sorted(wanted):
            if name not in there:
                option = "shared" if name in self.shared else "samples"
                shown = [repr(path) for path in there if path][:20]
                raise UnknownFieldError(
                    f"{option}= names {name!r}, which the batch does not have; it has "
                    f"{', '.join(shown) or 'no parts with names'}"
                )

    def _size_of(self, batch: Any) -> int:
        if self.batch_size is not None:
            size = self.batch_size(batch) if callable(self.batch_size) else self.batch_size
            return whole_number(size, "what batch_size gives for this batch", least=0)
        lengths = {path: length for path, length in self._tensors(batch, "") if length > 1}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{path or 'the batch'}: {length}" for path, length in list(lengths.items())[:6])
            raise BatchShapeError(
                f"parts of the batch differ in length along dimension {self.dim} ({shown}): name those that every "
                "micro-batch gets whole in shared=, or give batch_size= (a number, or a function of the batch)"
            )
        if lengths:
            return next(iter(lengths.values()))
        short = [length for _, length in self._tensors(batch, "")]
        if short:
            return max(short)
        raise BatchShapeError(
            "the batch has no tensor that could be cut: name lists of samples in samples=, or give split_fn="
        )

    def parts(self, batch: Any, sizes: Sequence[int]) -> list[Any]:
        """The batch in consecutive parts of so many samples; tensors are views, nothing is copied.

        Args:
            batch: the batch.
            sizes: samples of each part, all of the batch together.

        Raises:
            BatchShapeError: something in it cannot be cut.
            UnknownFieldError: it has no part of a name in ``shared`` or ``samples``.
        """
        self.refuse_unknown(batch)
        return self._parts(batch, sizes)

    def _parts(self, batch: Any, sizes: Sequence[int]) -> list[Any]:
        whole = sum(sizes)
        if len(sizes) == 1:
            return [batch]
        parts, start = [], 0
        for size in sizes:
            parts.append(self._part(batch, "", start, size, whole))
            start += size
        return parts

    def _is_shared(self, path: str) -> bool:
        return path in self.shared

    def _tensors(self, tree: Any, path: str, whole: int | None = None) -> Iterator[tuple[str, int]]:
        """Every tensor that would be cut, and every list of samples, with its length."""
        if self._is_shared(path):
            return
        if path in self.samples:
            yield path, len(tree)
            return
        length = self._length(tree, path)
        if length is not None:
            yield path, length
            return
        children = _children(tree)
        if isinstance(tree, list) and _may_be_samples([child for _, child in children], whole):
            raise BatchShapeError(
                f"{path or 'the batch'} is a list of {len(children)} tensors of three dimensions, which may be samples "
                "(images of shape [C, H, W]) or parts of a batch: name it in samples=, or give split_fn="
            )
        for key, child in children:
            yield from self._tensors(child, _join(path, key), whole)

    def _length(self, leaf: Any, path: str) -> int | None:
        """Length along the batch dimension of something that has one; ``None`` for all else."""
        if not (_is_tensor(leaf) or _is_array(leaf) or _slices_itself(leaf)):
            return None
        if _is_tensor(leaf) and (leaf.layout != _strided() or leaf.is_nested):
            raise BatchShapeError(
                f"{path or 'the batch'} is a sparse or nested tensor, which has no simple cut: give split_fn="
            )
        shape = leaf.shape if hasattr(leaf, "shape") else leaf.batch_size
        if len(shape) == 0:
            return None
        if not -len(shape) <= self.dim < len(shape):
            raise BatchShapeError(
                f"{path or 'the batch'} has shape {tuple(shape)} and no dimension {self.dim}: name it in shared= if "
                "every micro-batch gets it whole"
            )
        return int(shape[self.dim])

    def _part(self, tree: Any, path: str, start: int, size: int, whole: int) -> Any:
        if self._is_shared(path):
            return tree
        if path in self.samples:
            if len(tree) != whole:
                raise BatchShapeError(f"{path or 'the batch'} has {len(tree)} items for {whole} samples")
            return _rebuilt_sequence(tree, list(tree)[start : start + size])
        length = self._length(tree, path)
        if length is not None:
            if length == whole:
                return self._sliced(tree, start, size)
            if length == 1:
                return tree
            raise BatchShapeError(
                f"{path or 'the batch'} has length {length} along dimension {self.dim}, where the batch has {whole} "
                "samples: name it in shared= if every micro-batch gets it whole"
            )
        if type(tree).__name__ == "PackedSequence":
            raise BatchShapeError(f"{path or 'the batch'} is a PackedSequence, which has no simple cut: give split_fn=")
        children = _children(tree)
        if isinstance(tree, (list, tuple)) and len(tree) == whole and not self._is_structure(tree, path, whole):
            return _rebuilt_sequence(tree, list(tree)[start : start + size])
        cut = [(key, self._part(child, _join(path, key), start, size, whole)) for key, child in children]
        return _rebuilt(tree, cut)

    def _is_structure(self, sequence: Sequence[Any], path: str, whole: int) -> bool:
        """Whether a sequence as long as the batch is nevertheless one of parts, each with all samples."""
        lengths = {length for _, length in self._tensors(sequence, path, whole)}
        return bool(lengths) and lengths <= {1, whole}

    def _sliced(self, leaf: Any, start: int, size: int) -> Any:
        if _is_tensor(leaf):
            return leaf.narrow(self.dim, start, size)
        if _is_array(leaf):
            index = [slice(None)] * leaf.ndim
            index[self.dim] = slice(start, start + size)
            return leaf[tuple(index)]
        return leaf[start : start + size]


def even_sizes(whole: int, parts: int) -> list[int]:
    """A number as a sum of so many numbers that differ by 1 at most, the larger ones first.

    >>> even_sizes(10, 4)
    [3, 3, 2, 2]
    """
    parts = max(1, min(parts, whole))
    share, rest = divmod(whole, parts)
    return [share + 1] * rest + [share] * (parts - rest)


def _strided() -> Any:
    import torch

    return torch.strided


def _is_tensor(leaf: Any) -> bool:
    # Without importing torch: a tensor brings it along.
    return hasattr(leaf, "narrow") and hasattr(leaf, "layout") and hasattr(leaf, "requires_grad")


def _is_array(leaf: Any) -> bool:
    return type(leaf).__module__.split(".")[0] == "numpy" and hasattr(leaf, "ndim") and hasattr(leaf, "dtype")


def _slices_itself(leaf: Any) -> bool:
    """A tensordict and its like: sliced as a tensor is."""
    sized = isinstance(getattr(leaf, "batch_size", None), tuple)
    return sized and not _is_tensor(leaf) and hasattr(leaf, "__getitem__")


def _may_be_samples(items: list[Any], whole: int | None) -> bool:
    """Tensors of three dimensions with at most four channels: images, or parts of a batch that is as small.

    Where it is known how many samples the batch has, only if they might be parts of just that one.
    """
    if len(items) < 2 or not all(_is_tensor(item) and item.ndim == 3 for item in items):
        return False
    channels = {int(item.shape[0]) for item in items}
    return len(channels) == 1 and channels <= ({1, 2, 3, 4} if whole is None else {whole})


def _paths(tree: Any, path: str) -> Iterator[str]:
    """The names of all parts of a batch, as ``shared=`` has them."""
    yield path
    if not _slices_itself(tree):
        for key, child in _children(tree):
            yield from _paths(child, _join(path, key))


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _children(tree: Any) -> list[tuple[Any, Any]]:
    if isinstance(tree, Mapping):
        return list(tree.items())
    if isinstance(tree, (list, tuple)):
        return list(enumerate(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    return []


def _rebuilt(tree: Any, items: list[tuple[Any, Any]]) -> Any:
    """Something of the same kind with other children."""
    if isinstance(tree, Mapping):
        return _rebuilt_mapping(tree, dict(items))
    if isinstance(tree, (list, tuple)):
        return _rebuilt_sequence(tree, [value for _, value in items])
    if items:
        new = copy.copy(tree)
        for name, value in items:
            # Also where the dataclass is frozen.
            object.__setattr__(new, name, value)
        return new
    return tree


def _rebuilt_mapping(tree: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(tree) is dict:
        return items
    if isinstance(tree, dict):
        new = copy.copy(tree)
        for key, value in items.items():
            new[key] = value
        return new
    if isinstance(getattr(tree, "data", None), dict):
        # UserDict and what derives from it, as the batches of Transformers do: a copy would share the dictionary.
        copied: Any = copy.copy(tree)
        copied.data = items
        return copied
    try:
        return type(tree)(items)  # type: ignore[call-arg]
    except TypeError as error:
        raise BatchShapeError(
            f"a {type(tree).__name__} cannot be made from a dictionary (it says: {error}): give split_fn="
        ) from error


def _rebuilt_sequence(tree: Any, items: list[Any]) -> Any:
    if hasattr(tree, "_fields"):
        return type(tree)(*items)
    return tuple(items) if isinstance(tree, tuple) else list(items)
