"""An optimizer step that may run out of memory: again with less, or an honest error where half of it is done.

The first step makes the optimizer's state; if that does not fit, nothing has been updated, and the step can be taken
again without the temporaries of the foreach implementation. Later steps update state and parameters in place before
they ask for temporaries. What was written to is known from the tensors' version counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .._say import warn
from ..oom import OomWitness, add_note, free_after_oom

_HALFWAY = (
    "vramwise: memory ran out in the middle of the optimizer's step: parameters or its state are partly updated. Go on "
    "from a checkpoint, with fused=True or foreach=False in the optimizer (both need no temporaries of the size of the "
    "parameters), or with a smaller model state"
)
_TWICE = (
    "vramwise: the optimizer's step ran out of memory twice, the second time without foreach; nothing was updated. Its "
    "state does not fit beside parameters and gradients: a smaller batch does not help. Use an optimizer with less "
    "state (8-bit, Adafactor, SGD), shard it (ZeRO, FSDP), or offload it"
)


def guarded_step(optimizer: Any, step: Callable[[], Any]) -> Any:
    """Takes an optimizer's step; where it runs out of memory before anything is updated, once more with less.

    The second time, groups that leave ``foreach`` open or set it use a loop over the parameters, which has the same
    results up to rounding, and keep doing so.

    Args:
        optimizer: the optimizer that steps.
        step: takes the step: ``optimizer.step``, or ``lambda: scaler.step(optimizer)``.

    Returns:
        What the step returned.

    Raises:
        Exception: the out-of-memory error, with a note that says what state things are in.
    """
    before = _Marks(optimizer)
    witness = OomWitness()
    failure: Exception | None = None
    try:
        return step()
    except Exception as error:
        if not witness.saw_oom(error):
            raise
        if not before.untouched(optimizer):
            add_note(error, _HALFWAY)
            raise
        failure = error
    before.drop_new_state(optimizer)
    free_after_oom(failure)
    if _without_foreach(optimizer):
        warn("the optimizer's step ran out of memory, and goes on with foreach=False: slower, without temporaries")
    try:
        return step()
    except Exception as error:
        if witness.saw_oom(error):
            add_note(error, _TWICE if before.untouched(optimizer) else _HALFWAY)
        raise


class _Marks:
    """How far everything is that an optimizer writes to."""

    def __init__(self, optimizer: Any) -> None:
        self._parameters = [(one, one._version) for one in _parameters(optimizer)]
        self._with_state = {id(one) for one in optimizer.state}
        self._state = list(_values(optimizer, self._with_state))

    def untouched(self, optimizer: Any) -> bool:
        """Whether nothing that was there has been written to."""
        if any(parameter._version != version for parameter, version in self._parameters):
            return False
        now = list(_values(optimizer, self._with_state))
        return len(now) == len(self._state) and all(
            new[0] is old[0] and new[1] == old[1] for new, old in zip(now, self._state, strict=True)
        )

    def drop_new_state(self, optimizer: Any) -> None:
        """Removes the state of parameters that had none: the next step makes it anew."""
        for parameter in list(optimizer.state):
            if id(parameter) not in self._with_state:
                del optimizer.state[parameter]


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _values(optimizer: Any, of: set[int]) -> Iterator[tuple[Any, Any]]:
    """Each entry of the state with what changes when it is written to."""
    for parameter, state in optimizer.state.items():
        if id(parameter) in of and isinstance(state, dict):
            for value in state.values():
                yield (value, value._version) if hasattr(value, "_version") else (None, repr(value))


def _without_foreach(optimizer: Any) -> bool:
    """Switches the foreach implementation off; whether any group might have used it."""
    changed = False
    for group in optimizer.param_groups:
        if "foreach" in group and group["foreach"] is not False and not group.get("fused"):
            group["foreach"] = False
            changed = True
    return changed
