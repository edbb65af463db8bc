"""What is said once about models whose micro-batches differ from the whole batch."""

from __future__ import annotations

from typing import Any

from .._say import warn
from .parallel import Unsynchronised

_said: set[str] = set()


def warn_about_model(model: Any, parts: int, sync: Unsynchronised) -> None:
    """Warns, once for each reason and process, where parts are not the same as a whole."""
    if sync and sync.has_hooks():
        _once(
            "hooks",
            "communication hooks of DistributedDataParallel are not called with ddp_sync='agreed', which averages "
            "gradients itself",
        )
    if parts < 2 or model is None or not hasattr(model, "modules"):
        return
    for module in model.modules():
        names = [base.__name__ for base in type(module).__mro__]
        if "_BatchNorm" in names and module.training:
            _once(
                "batchnorm",
                "the model has batch normalisation in training: each micro-batch is normalised by its own statistics, "
                "and running statistics move once a part. Gradients are those of smaller batches there; use GroupNorm "
                "or LayerNorm, or put these layers into eval(), if they must not differ",
            )
        if "SyncBatchNorm" in names and sync:
            _once(
                "syncbatchnorm",
                "SyncBatchNorm communicates in the forward pass: if one rank runs out of memory there, the others wait "
                "for it. Take a micro_batch_size that surely fits",
            )


def warn_of_batch(samples: int, why: str | None) -> None:
    """Says, before memory runs out, that a batch cannot go in parts; or that there is nothing in it."""
    if samples == 0:
        _once("empty", "a batch has no samples: a loss that is a mean over them is no number, nor are its gradients")
    if why is not None:
        _once("whole", f"a batch can only go whole, so that running out of memory ends its step: {why}")


def _once(reason: str, message: str) -> None:
    if reason not in _said:
        _said.add(reason)
        warn(message)
