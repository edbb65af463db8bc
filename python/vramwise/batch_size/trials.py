"""A trial that is like training: forward, backward and optimizer step, several times; then everything is as before.

Forward alone says little. The backward pass holds activations and gradients together, the optimizer makes its state in
the first step, and from the second step on that state is there while the forward pass runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._rng import RngState
from .._torch_access import torch_if_loaded

if TYPE_CHECKING:
    from typing_extensions import Self


class TrainingTrial:
    """A few steps of training with a batch of a given size; callable with the size.

    An optimizer that has no state yet loses what it makes after each attempt. State is made in the first step, in
    memory that the backward pass has left in pieces; were it there before, other sizes would fit than in training.

    Used as a context manager (which :func:`vramwise.batch_size.search_batch_size` does), it puts parameters, buffers,
    gradients, the optimizer's state and the random number generators back at the end, from copies in host memory.

    Args:
        model: the module that is trained, on its device.
        optimizer: its optimizer.
        make_batch: called with the batch size; gives a batch as training has it, on the device or not. Lengths that
            vary should be the longest that occur: the search holds for no other.
        loss_fn: called with the model and a batch; gives the loss, a scalar. ``None`` calls ``model(**batch)`` for a
            mapping and takes its ``loss``, as models of Transformers have it.
        steps: how many steps. Three, because the second is the first that starts with the optimizer's state, and the
            third meets what the second left in the cache.
        autocast: makes the context for forward passes, such as
            ``lambda: torch.autocast("cuda", torch.bfloat16)``; ``None`` for none.
        scaler: a ``torch.amp.GradScaler``, if training has one.
        backward: called with the loss instead of ``loss.backward()``, such as ``accelerator.backward``.
        restore: whether to put everything back at the end.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        make_batch: Callable[[int], Any],
        loss_fn: Callable[[Any, Any], Any] | None = None,
        *,
        steps: int = 3,
        autocast: Callable[[], AbstractContextManager[Any]] | None = None,
        scaler: Any = None,
        backward: Callable[[Any], None] | None = None,
        restore: bool = True,
    ) -> None:
        if steps < 1:
            raise ValueError(f"steps={steps}: a trial has at least one step")
        self._model, self._optimizer = model, optimizer
        self._make_batch = make_batch
        self._loss_fn = loss_fn or _loss_of
        self._steps = steps
        self._autocast = autocast or nullcontext
        self._scaler = scaler
        self._backward = backward
        self._restore = restore
        self._begins = not optimizer.state
        self._saved: _Saved | None = None

    def __call__(self, batch_size: int) -> None:
        """Trains so many samples a step; the gradients are gone afterwards, whatever happened."""
        try:
            for _ in range(self._steps):
                self._step(batch_size)
            _wait_for_device()
        finally:
            self._optimizer.zero_grad(set_to_none=True)
            self._model.zero_grad(set_to_none=True)
            if self._begins:
                self._optimizer.state.clear()

    def _step(self, batch_size: int) -> None:
        batch = self._make_batch(batch_size)
        with self._autocast():
            loss = self._loss_fn(self._model, batch)
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        if self._backward is not None:
            self._backward(scaled)
        else:
            scaled.backward()
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)

    def __enter__(self) -> Self:
        self._saved = _Saved(self._model, self._optimizer, self._scaler) if self._restore else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._saved is not None:
            self._saved.put_back()
            self._saved = None


def _loss_of(model: Any, batch: Any) -> Any:
    """The loss of a model that computes it itself from a mapping with labels."""
    output = model(**batch)
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, dict):
        loss = output.get("loss")
    if loss is None:
        raise TypeError("the model's output has no loss: give loss_fn=, called with the model and a batch")
    return loss


def _wait_for_device() -> None:
    torch = torch_if_loaded()
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


class _Saved:
    """Copies, in host memory, of what training changes."""

    def __init__(self, model: Any, optimizer: Any, scaler: Any) -> None:
        self._model, self._optimizer, self._scaler = model, optimizer, scaler
        self._tensors = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self._named()}
        self._gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
        self._state = to_host(optimizer.state_dict())
        self._scale = None if scaler is None else copy.deepcopy(scaler.state_dict())
        self._rng = RngState()
        for parameter in model.parameters():
            parameter.grad = None

    def _named(self) -> list[tuple[str, Any]]:
        return [*self._model.named_parameters(), *self._model.named_buffers()]

    def put_back(self) -> None:
        import torch

        with torch.no_grad():
            for name, tensor in self._named():
                if name in self._tensors and tensor.shape == self._tensors[name].shape:
                    tensor.copy_(self._tensors[name])
        self._optimizer.load_state_dict(self._state)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        if self._scale:
            self._scaler.load_state_dict(self._scale)
        self._rng.restore()


def to_host(tree: Any) -> Any:
    """A copy of dictionaries, lists and tuples, with tensors copied to host memory."""
    import torch

    if isinstance(tree, torch.Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, dict):
        return {key: to_host(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)([to_host(value) for value in tree])
    return copy.deepcopy(tree)
