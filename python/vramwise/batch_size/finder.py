"""The largest batch size that fits: a decorator as accelerate has it, a search by bisection, and one for Lightning.

What may be too large is only what runs out of memory; every other error is raised at once. Search with backward pass
and optimizer step, not with a forward pass: :class:`TrainingTrial` is such a trial.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, overload

from ..errors import VramwiseError
from .deferred import refuse_coroutine, refuse_deferred
from .executable import WRAPPERS, Executable, Rules, reducer
from .predict import Prediction, as_prediction, ask_fit
from .search import BatchSizeResult, BatchSizeSearch, no_batch_fits
from .search import batch_size as as_batch_size

_log = logging.getLogger("vramwise.batch_size")


@overload
def find_executable_batch_size(
    function: Callable[..., Any],
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[..., int] | None = None,
    *,
    min_batch_size: int = 1,
    cache_key: str | None = None,
    predict: bool | str | list[str] | Prediction | None = None,
    group: Any = None,
) -> Callable[..., Any]: ...


@overload
def find_executable_batch_size(
    function: None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[..., int] | None = None,
    *,
    min_batch_size: int = 1,
    cache_key: str | None = None,
    predict: bool | str | list[str] | Prediction | None = None,
    group: Any = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[..., int] | None = None,
    *,
    min_batch_size: int = 1,
    cache_key: str | None = None,
    predict: bool | str | list[str] | Prediction | None = None,
    group: Any = None,
) -> Any:
    """Runs a function again with a smaller batch size for as long as it runs out of memory.

    A decorator, with or without arguments. The function's first parameter is the batch size, which callers leave out:

    >>> @find_executable_batch_size(starting_batch_size=64)
    ... def train(batch_size, epochs):
    ...     if batch_size > 50:
    ...         raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    ...     return batch_size, epochs
    >>> train(3)
    (45, 3)

    A size that was reduced stays so for later calls (``train.batch_size``). Between attempts the memory is really given
    back: the frames that the error went through are cleared, garbage is collected, the cache emptied once. Everything
    that holds tensors should therefore be made inside the function. Where torch.distributed is initialised, all ranks
    reduce together; a collective inside the function that only some ranks reach cannot be undone, so let the function
    be a trial of a few steps there rather than the whole training.

    Args:
        function: the function, when used without arguments.
        starting_batch_size: the first size, and the largest.
        reduce_batch_size_fn: gives the next size, called with the present one, or with nothing if it takes nothing (as
            accelerate's does); ``None`` for nine tenths, rounded down.
        min_batch_size: the smallest size that is tried.
        cache_key: text under which the size is kept for later runs (see :class:`BatchSizeSearch`); they begin with it.
        predict: begin with what the emulated card says, if that is less than ``starting_batch_size``; see
            :class:`BatchSizeSearch`.
        group: the process group whose ranks must agree; ``None`` for all of them.

    Above a method, the batch size is the first parameter behind ``self``, and each object has a size of its own
    (``trainer.train.batch_size``). Above ``@classmethod`` or ``@staticmethod`` it works too; write it as the upper one.

    Raises:
        NoBatchFitsError: (also a ``RuntimeError``) the next size would be below ``min_batch_size``.
        OtherRankError: another rank failed with another error.
        TypeError: the caller gave the batch size too; a size is no whole number; the function is a generator or
            async, which runs nothing when it is called.
        ValueError: a size that cannot be, such as a ``min_batch_size`` above the first; the reduced size is not
            smaller.
    """
    if function is not None and not callable(function) and not isinstance(function, WRAPPERS):
        raise TypeError(f"{function!r} is no function; give the batch size as starting_batch_size={function!r}")
    starting_batch_size = as_batch_size(starting_batch_size, "starting_batch_size")
    min_batch_size = as_batch_size(min_batch_size, "min_batch_size")
    if min_batch_size > starting_batch_size:
        raise ValueError(
            f"min_batch_size is {min_batch_size}, more than starting_batch_size, {starting_batch_size}, the largest "
            "size that is tried"
        )
    if cache_key is not None and not isinstance(cache_key, str):
        raise TypeError(f"cache_key is a text that names what decides about memory, not {cache_key!r}")
    rules = Rules(
        starting_batch_size, min_batch_size, reducer(reduce_batch_size_fn), cache_key, as_prediction(predict), group
    )

    def decorate(function: Callable[..., Any]) -> Any:
        refuse_deferred(function, "find_executable_batch_size")
        return Executable(function, rules)

    return decorate if function is None else decorate(function)


def predict_batch_size(
    prediction: Prediction | str | list[str], *, lowest: int = 1, highest: int = 8192, world_size: int = 1
) -> int:
    """The largest batch size with which a program fits on an emulated card, tried in a child process; no GPU is used.

    Args:
        prediction: the program with ``{batch}`` in it and the card; a command alone means the current device's card.
        lowest: the smallest size that is tried.
        highest: the largest.
        world_size: be one rank of so many.

    Raises:
        NoBatchFitsError: not even ``lowest`` fits.
        NotAvailableError: it cannot be tried (the message says why), or the program failed for another reason.
        ValueError: a command without ``{batch}``.
    """
    wish = as_prediction(prediction)
    if wish is None:
        raise ValueError("prediction is a command or a Prediction")
    lowest, highest = as_batch_size(lowest, "lowest"), as_batch_size(highest, "highest")
    if lowest > highest:
        raise ValueError(f"lowest is {lowest}, more than highest, {highest}: there is nothing to try")
    largest = ask_fit(wish, lowest=lowest, highest=highest, world_size=world_size)
    if largest is None:
        raise no_batch_fits([lowest], lowest, 0)
    return largest


def search_batch_size(trial: Callable[[int], Any], **search: Any) -> BatchSizeResult:
    """The largest batch size with which a trial runs.

    >>> def trial(batch_size):
    ...     if batch_size > 11:
    ...         raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    >>> search_batch_size(trial, max_val=64).batch_size
    11

    Args:
        trial: called with a batch size; a :class:`TrainingTrial`, or a function of your own that trains a few steps. If
            it is a context manager, it is entered for the whole search.
        **search: the arguments of :class:`BatchSizeSearch`: ``mode``, ``init_val``, ``max_val``, ``margin`` and so on.

    Raises:
        NoBatchFitsError: nothing fits.
        OtherRankError: another rank failed with an error that is not out of memory.
    """
    if not callable(trial):
        raise TypeError(f"trial is a function of the batch size, not {trial!r}")
    refuse_deferred(trial, "search_batch_size")
    attempts = BatchSizeSearch(**search)
    scope: AbstractContextManager[Any] = nullcontext()
    if hasattr(trial, "__enter__") and hasattr(trial, "__exit__"):
        scope = trial
    with scope:
        for attempt in attempts:
            with attempt as batch_size:
                refuse_coroutine(trial(batch_size), trial, "search_batch_size")
    return attempts.result


def scale_batch_size(
    target: Any, trial: Callable[[], Any], *, batch_arg_name: str = "batch_size", **search: Any
) -> int:
    """Finds the largest batch size for an object that has it as an attribute, and sets it there.

    For Lightning modules, data modules and configurations: each attempt sets the attribute and calls the trial, which
    should make its data loader anew and train a few steps.

    ::

        def three_steps():
            trainer = L.Trainer(max_steps=3, logger=False, enable_checkpointing=False)
            trainer.fit(copy.deepcopy(model), datamodule=data)

        scale_batch_size(data, three_steps, mode="binsearch", margin=0.05, max_val=8192)

    Args:
        target: the object. The attribute is looked for in it, then in its ``hparams`` and its ``datamodule``.
        trial: called without arguments.
        batch_arg_name: the attribute's name; dots lead to attributes of attributes (``"data.batch_size"``).
        **search: the arguments of :class:`BatchSizeSearch`, ``mode`` and ``init_val`` among them.

    Returns:
        The batch size, which the attribute has now. If the search fails, it has what it had before.

    Raises:
        AttributeError: there is no such attribute.
        NoBatchFitsError: nothing fits.
    """
    refuse_deferred(trial, "scale_batch_size")
    holder, name = _holder(target, batch_arg_name)
    before = _get(holder, name)

    def attempt(batch_size: int) -> None:
        _set(holder, name, batch_size)
        refuse_coroutine(trial(), trial, "scale_batch_size")

    try:
        found = search_batch_size(attempt, **search).batch_size
    except BaseException:
        _set(holder, name, before)
        raise
    _set(holder, name, found)
    return found


def _holder(target: Any, path: str) -> tuple[Any, str]:
    """The object or mapping that has the attribute, and the attribute's name."""
    *way, name = path.split(".")
    for step in way:
        target = _get(target, step)
    for place in (target, getattr(target, "hparams", None), getattr(target, "datamodule", None)):
        if place is not None and (name in place if isinstance(place, Mapping) else hasattr(place, name)):
            return place, name
    raise AttributeError(
        f"{type(target).__name__} has no {name!r}, nor have its hparams or its datamodule: "
        "give the attribute's name as batch_arg_name="
    )


def _get(holder: Any, name: str) -> Any:
    return holder[name] if isinstance(holder, Mapping) else getattr(holder, name)


def _set(holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, Mapping):
        try:
            holder[name] = value  # type: ignore[index]
        except TypeError as error:
            raise VramwiseError(f"{name!r} cannot be set: {type(holder).__name__} is read-only") from error
    else:
        setattr(holder, name, value)
