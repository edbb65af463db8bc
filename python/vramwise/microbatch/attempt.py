"""Small parts of :mod:`vramwise.microbatch`: what a step function returns, what is said at the end, what is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# For an error in a part that DDP was synchronising.
NOT_RECOVERABLE = (
    "vramwise: this happened while DDP averaged gradients (ddp_sync='overlapped'), where other ranks wait for this "
    "one: it cannot be taken again. ddp_sync='agreed' can"
)


@dataclass
class StepOutcome:
    """What became of a batch.

    Attributes:
        loss: the loss of the whole batch, detached: the weighted mean of the parts' losses, or their sum.
        rest: for each part, what the step function returned besides the loss, tensors detached; ``None`` if nothing.
        sizes: samples of each part; one number if the batch went whole, which is 1 for one that cannot be measured.
        retries: how often the batch was taken again.
        stepped: whether the optimizer's step was taken too.
        synchronised: whether DDP has averaged the gradients by itself.
    """

    loss: Any
    rest: list[Any] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    retries: int = 0
    stepped: bool = False
    synchronised: bool = False


class GivenUpError(Exception):
    """There is no smaller part to try; with this rank's own error, if it is the one without memory, and the reason."""

    def __init__(self, failure: Exception | None, why: str | None = None) -> None:
        super().__init__()
        self.failure = failure
        self.why = why


def refuse_what_is_no_function(step_fn: Any, **others: Any) -> None:
    """Checks what a batcher calls, when it is made and not in the middle of a step; only the first one is needed.

    Raises:
        TypeError: one of them cannot be called.
    """
    for name, given in {"step_fn": step_fn, **others}.items():
        if not callable(given) and (given is not None or name == "step_fn"):
            raise TypeError(f"{name} is a function, not {given!r}")


def refuse_other_kinds(model: Any, optimizer: Any, scaler: Any, recorder: Any) -> None:
    """Checks the objects that a batcher works with, when it is made.

    Raises:
        TypeError: one of them is something else.
    """
    needed = {
        "model": (model, ("parameters", "named_buffers"), "a torch.nn.Module"),
        "optimizer": (optimizer, ("param_groups", "step", "zero_grad"), "a torch.optim.Optimizer"),
        "scaler": (scaler, ("scale", "step", "update"), "a torch.amp.GradScaler"),
        "recorder": (recorder, ("dump", "options"), "a vramwise.Recorder"),
    }
    for name, (given, attributes, what) in needed.items():
        if given is not None and not all(hasattr(given, attribute) for attribute in attributes):
            raise TypeError(f"{name} is {what}, not {given!r}")


def loss_and_rest(returned: Any) -> tuple[Any, Any]:
    """The loss in what a step function returned, and what else there is.

    Raises:
        TypeError: there is no loss.
        ValueError: it is no scalar, or nothing was differentiated.
    """
    loss, rest = returned, None
    if isinstance(returned, tuple) and not hasattr(returned, "_fields") and returned:
        loss, rest = returned[0], returned[1] if len(returned) == 2 else returned[1:]
    elif isinstance(returned, Mapping) and "loss" in returned:
        loss, rest = returned["loss"], {key: value for key, value in returned.items() if key != "loss"}
    elif not hasattr(returned, "backward") and hasattr(returned, "loss"):
        loss = returned.loss
    if not hasattr(loss, "backward"):
        raise TypeError(
            f"the step function returned {type(returned).__name__} without a loss: return the loss, a scalar tensor, "
            "alone or as the first item of a tuple"
        )
    if loss.numel() != 1:
        raise ValueError(
            f"the step function's loss has shape {tuple(loss.shape)}: reduce it to a scalar, and name how in reduction="
        )
    return loss, rest


def detached(tree: Any) -> Any:
    """The same without graphs, which would keep activations: tensors in tuples, lists, dictionaries, dataclasses."""
    if hasattr(tree, "detach"):
        return tree.detach()
    if isinstance(tree, dict):
        return {key: detached(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [detached(item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return {one.name: detached(getattr(tree, one.name)) for one in dataclasses.fields(tree)}
    return tree


def notes_for(tried: list[int], stage: str, whole_only: str | None, *, sharded: bool) -> list[str]:
    """What is added to an error that ends it all."""
    sizes = ", ".join(map(str, tried))
    notes = [f"vramwise: ran out of memory in the {stage} with {sizes} samples at once; the gradients are as before"]
    if whole_only is not None:
        notes[0] = f"vramwise: ran out of memory in the {stage}, and the batch cannot go in parts: {whole_only}"
    else:
        notes.append(
            "vramwise: the smallest part does not fit either: what remains is a smaller model state, checkpointing of "
            "activations, shorter sequences or another precision; `vramwise explain` shows what holds the memory"
        )
    if sharded:
        notes.append("vramwise: with FSDP, go on from a checkpoint: a rank may have been interrupted in a collective")
    return notes


def keep_snapshot(recorder: Any, failure: Exception | None) -> None:
    """Lets recorders at work write a snapshot of a failed attempt, unless the failed allocation made them write one."""
    if failure is None:
        return
    from ..recorder import attempts

    attempts.keep(recorder)
