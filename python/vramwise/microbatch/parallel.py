"""Models in data parallel: what may be communicated when, so that a rank without memory leaves no other one waiting.

DistributedDataParallel communicates in the backward pass (gradients) and before the forward pass (buffers). A rank
that runs out of memory on the way would never come to these. So micro-batches run without either; when all ranks have
said that theirs are done, gradients are averaged here.

With FSDP every layer is a collective, forward and backward. There the ranks can only agree before an attempt, on the
number of micro-batches, and after it; see the guide for what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

# Small gradients travel together, in so many bytes.
_BUCKET_BYTES = 16 << 20


def is_ddp(module: Any) -> bool:
    """Whether the module is a ``DistributedDataParallel``."""
    return _has_base(module, "DistributedDataParallel", "torch.nn.parallel")


def is_sharded(module: Any) -> bool:
    """Whether the module, or a part of it, is sharded by FSDP (``FullyShardedDataParallel``, ``fully_shard``)."""
    inside = module.modules() if hasattr(module, "modules") else ()
    return any(_has_base(one, ("FullyShardedDataParallel", "FSDPModule"), "torch.distributed.fsdp") for one in inside)


def cannot_resume(module: Any) -> str | None:
    """Why an interrupted pass of a sharded model cannot be taken again; ``None`` if it can."""
    inside = module.modules() if hasattr(module, "modules") else ()
    if any(_has_base(one, "FullyShardedDataParallel", "torch.distributed.fsdp") for one in inside):
        return (
            "FullyShardedDataParallel cannot take an interrupted pass again; fully_shard can, or begin with a "
            "micro_batch_size that fits"
        )
    return None


def _has_base(module: Any, names: str | tuple[str, ...], home: str) -> bool:
    names = (names,) if isinstance(names, str) else names
    return any(base.__name__ in names and base.__module__.startswith(home) for base in type(module).__mro__)


class Unsynchronised:
    """The DDP modules of a step, kept from communicating until :meth:`synchronise`.

    Args:
        module: the model; ``None`` where none was given.
    """

    def __init__(self, module: Any) -> None:
        inside = module.modules() if hasattr(module, "modules") else ()
        # Where the program is inside no_sync() itself, it wants no synchronisation at this step.
        self._ddp = [one for one in inside if is_ddp(one) and one.require_backward_grad_sync]

    def __bool__(self) -> bool:
        return bool(self._ddp)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Nothing inside is communicated."""
        with ExitStack() as stack:
            for ddp in self._ddp:
                stack.enter_context(ddp.no_sync())
                # Or the first forward pass would broadcast the buffers.
                ddp.require_forward_param_sync = False
            yield

    def broadcast_buffers(self) -> None:
        """What DDP does before a forward pass: every rank gets the first one's buffers. A collective."""
        import torch

        distributed = _distributed()
        for ddp in self._ddp:
            if not getattr(ddp, "broadcast_buffers", False):
                continue
            first = distributed.get_global_rank(ddp.process_group, 0)
            ignored = set(getattr(ddp, "parameters_to_ignore", ()))
            buffers = [one.detach() for name, one in ddp.module.named_buffers() if name not in ignored]
            with torch.no_grad():
                give = partial(distributed.broadcast, src=first, group=ddp.process_group)
                for bucket in _buckets(buffers):
                    _together(bucket, give)

    def synchronise(self) -> None:
        """Averages the gradients over the ranks. A collective: only when all ranks have theirs."""
        import torch

        for ddp in self._ddp:
            ranks = _distributed().get_world_size(ddp.process_group)
            ignored = set(getattr(ddp, "parameters_to_ignore", ()))
            named = ddp.module.named_parameters()
            parameters = [one for name, one in named if one.requires_grad and name not in ignored]
            with torch.no_grad():
                gradients = self._gradients(parameters, ddp.process_group)
                for gradient in gradients:
                    gradient.div_(ranks)
                add = partial(_distributed().all_reduce, group=ddp.process_group)
                for bucket in _buckets(gradients):
                    _together(bucket, add)

    def _gradients(self, parameters: list[Any], group: Any) -> list[Any]:
        """The gradients of all parameters that have one on any rank, the same ones on every rank."""
        import torch

        if not parameters:
            return []
        device = parameters[0].device
        there = torch.tensor([one.grad is not None for one in parameters], dtype=torch.int32, device=device)
        _distributed().all_reduce(there, op=_distributed().ReduceOp.MAX, group=group)
        gradients = []
        for parameter, somewhere in zip(parameters, there.tolist(), strict=True):
            if somewhere:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        return gradients

    def has_hooks(self) -> bool:
        """Whether a communication hook is registered, which an averaging of our own leaves out."""
        return any(getattr(ddp, "_comm_hooks", None) for ddp in self._ddp)


def _distributed() -> Any:
    import torch.distributed

    return torch.distributed


def _buckets(gradients: list[Any]) -> Iterator[list[Any]]:
    """Tensors of one type and device in groups of some size; large and sparse ones alone."""
    waiting: dict[Any, list[Any]] = {}
    filled: dict[Any, int] = {}
    for gradient in gradients:
        size = gradient.numel() * gradient.element_size()
        if gradient.is_sparse or size >= _BUCKET_BYTES:
            yield [gradient]
            continue
        kind = (gradient.dtype, gradient.device)
        if filled.get(kind, 0) + size > _BUCKET_BYTES:
            yield waiting.pop(kind)
            filled[kind] = 0
        waiting.setdefault(kind, []).append(gradient)
        filled[kind] = filled.get(kind, 0) + size
    yield from waiting.values()


def _together(bucket: list[Any], communicate: Callable[[Any], Any]) -> None:
    """Communicates tensors as one, in place."""
    import torch

    if len(bucket) == 1 and (bucket[0].is_sparse or bucket[0].is_contiguous()):
        communicate(bucket[0])
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
    communicate(flat)
    start = 0
    for tensor in bucket:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()


def forget_sharded_attempt(module: Any) -> str | None:
    """After a failed attempt: lets every part that ``fully_shard`` manages start a new iteration.

    Parameters that were gathered are freed, gradients that were not reduced yet are dropped, and so are those that are
    there: whoever wants to keep earlier ones has set them aside. PyTorch 2.15 has a function for it. Before, it is done
    here.

    Returns:
        Why that cannot be done with this release, so that nothing may be tried again: what is left of the attempt would
        be added to the gradients. ``None`` where all is forgotten.
    """
    parts = [one for one in module.modules() if _has_base(one, "FSDPModule", "torch.distributed.fsdp")]
    try:
        for part in parts:
            if not hasattr(part, "reset_iter_state"):
                _forget_part(part)
            elif part._get_fsdp_state()._is_root:
                # For all that is within. Before the first forward pass there is no root, and nothing to forget.
                part.reset_iter_state()
    except Exception as error:  # noqa: BLE001 - internals of PyTorch, which may be anything
        return f"this release's fully_shard cannot forget an interrupted pass ({type(error).__name__}: {error})"
    return None


def _forget_part(part: Any) -> None:
    state = part._get_fsdp_state()
    _idle(state)
    context = state._state_ctx
    context.post_backward_final_callback_queued = False
    context.iter_forward_root = None
    # Several where the parameters of a module are on several meshes.
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    for group in groups:
        if group is not None:
            _forget_group(group)
    if state._is_root is not None:
        part.reshard()


def _forget_group(group: Any) -> None:
    _idle(group)
    for name in ("_all_gather_result", "_post_reduce_event", "_all_reduce_state"):
        if hasattr(group, name):
            setattr(group, name, None)
    with suppress(AttributeError):
        group._post_forward_indices.clear()
    for name in ("all_gather_state", "reduce_scatter_state"):
        if hasattr(group.comm_ctx, name):
            setattr(group.comm_ctx, name, None)
    with suppress(AttributeError):
        group.comm_ctx.reduce_scatter_states.clear()
    with suppress(AttributeError):
        group.comm_ctx.post_forward_order.clear()
    for parameter in group.fsdp_params:
        # First, since what accumulates may be a view of it without a setter of its own.
        unsharded = getattr(parameter, "_unsharded_param", None)
        if unsharded is not None:
            unsharded.grad = None
        with suppress(AttributeError):
            parameter.unsharded_accumulated_grad = None
        if getattr(parameter, "unsharded_accumulated_grad", None) is not None:
            raise RuntimeError("gradients that are accumulated unsharded stay")


def _idle(state: Any) -> None:
    if hasattr(state, "_training_state"):
        state._training_state = type(state._training_state).IDLE
