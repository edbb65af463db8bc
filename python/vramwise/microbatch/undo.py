"""What a failed attempt changes, and how it is put back: gradients, buffers, random number generators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Literal

from .._rng import RngState

# Larger buffers are tables (masks, rotary embeddings) rather than running statistics.
_LARGEST_BUFFER_BYTES = 16 << 20


class Undo:
    """Remembers gradients, changing buffers and generators as they are; the attempt then starts without gradients.

    Gradients that are there already are set aside, not copied, and those of the attempt are added to them at the end.
    So they come back bit by bit after a failure, and cost memory only in programs that accumulate over steps.

    Args:
        parameters: tensors whose ``grad`` the attempt adds to.
        buffers: named buffers that it may change.
        changing: names of the buffers that earlier attempts changed; ``None`` before the first.
        keep_on: where gradients that are there wait: ``"device"``, or ``"cpu"`` to leave the device's memory to the
            attempt, for the price of two copies.
        rng: whether the generators' states are remembered.
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        buffers: Iterable[tuple[str, Any]],
        *,
        changing: set[str] | None,
        keep_on: Literal["device", "cpu"],
        rng: bool,
    ) -> None:
        # What may fail comes first, while nothing is changed yet.
        self._buffers = [(name, tensor, tensor._version) for name, tensor in buffers]
        self._copies = {
            name: tensor.detach().clone()
            for name, tensor, _ in self._buffers
            if (changing is None or name in changing)
            and tensor.numel() * tensor.element_size() <= _LARGEST_BUFFER_BYTES
        }
        self._rng = RngState() if rng else None
        self._held: list[tuple[Any, Any, Any]] = []
        self._bare: list[Any] = []
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                self._bare.append(parameter)
            else:
                waits = gradient.to("cpu", copy=True) if keep_on == "cpu" else gradient
                self._held.append((parameter, waits, gradient.device))
        for parameter, _, _ in self._held:
            parameter.grad = None

    def changed_buffers(self) -> set[str]:
        """Names of the buffers that were written to since."""
        return {name for name, tensor, version in self._buffers if tensor._version != version}

    def roll_back(self) -> None:
        """Everything as before the attempt, ready for another one: the gradients that were there still wait."""
        import torch

        for parameter in self._all():
            parameter.grad = None
        with torch.no_grad():
            for name, tensor, version in self._buffers:
                if name in self._copies and tensor._version != version:
                    tensor.copy_(self._copies[name])
        self._buffers = [(name, tensor, tensor._version) for name, tensor, _ in self._buffers]
        if self._rng is not None:
            self._rng.restore()

    def give_up(self) -> None:
        """Everything as before, with the gradients that were there."""
        self.roll_back()
        for parameter, waits, device in self._held:
            parameter.grad = waits if waits.device == device else waits.to(device)

    def keep(self) -> None:
        """The attempt was fine: its gradients are added to those that were there, as PyTorch would have added them."""
        import torch

        with torch.no_grad():
            for parameter, waits, device in self._held:
                old = waits if waits.device == device else waits.to(device)
                new = parameter.grad
                if new is not None:
                    old = old.add_(new) if old.layout == new.layout else old + new
                parameter.grad = old
        self._held.clear()

    def _all(self) -> Iterator[Any]:
        yield from self._bare
        for parameter, _, _ in self._held:
            yield parameter


def tensors_with_gradients(batch: Any) -> list[Any]:
    """The batch's own leaves that want gradients (soft prompts, adversarial inputs): the attempt adds to theirs too."""
    found: list[Any] = []
    pending = [batch]
    while pending:
        one = pending.pop()
        if getattr(one, "requires_grad", False) and getattr(one, "is_leaf", False):
            found.append(one)
        elif isinstance(one, (list, tuple)):
            pending += one
        else:
            with suppress(Exception):
                pending += dict(one).values() if hasattr(one, "keys") else vars(one).values() if _is_data(one) else []
    return found


def _is_data(one: Any) -> bool:
    return hasattr(type(one), "__dataclass_fields__")
