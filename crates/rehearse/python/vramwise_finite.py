"""Masks that are true everywhere where all numbers are finite: `torch.isfinite` of tensors that nobody computes."""

import math

import torch
from vramwise_tensors import address

BOTH = {"aten::mul", "aten::logical_and", "aten::bitwise_and", "aten::__and__"}


def true_everywhere(name, args, masks):
    """Whether an operation gives true wherever numbers are finite; `masks` has the storages of which that is known."""
    tensors = [a for a in args[:2] if isinstance(a, torch.Tensor)]
    if name == "aten::eq":
        return len(tensors) == 2 and _is_same(*tensors)
    if name == "aten::ne":
        return len(tensors) == 1 and isinstance(args[1], float) and math.isinf(args[1])
    if name in BOTH:
        return len(tensors) == 2 and all(t.dtype is torch.bool and address(t) in masks for t in tensors)
    return name == "aten::all" and address(args[0]) in masks


def _is_same(one, other):
    place = lambda t: (address(t), t.storage_offset(), t.shape, t.stride())
    return one is other or one.numel() and place(one) == place(other)
