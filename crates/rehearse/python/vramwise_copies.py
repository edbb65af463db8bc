"""Copies to the host that do not read the tensor itself.

Where the numbers are not in the order or of the type that the host's tensor has, torch lets a kernel make a copy on
the device first, and reads that. Kernels do nothing here: the layer says what would be in it.
"""

import torch
from vramwise_operations import CARRIED
from vramwise_tensors import alias


def copied_first(name, args, kwargs):
    """The tensor that is copied so, and a function that gives the bytes (zeros where it is told that nothing is
    known); nothing where the tensor itself is read, or too much for the device to carry."""
    waits = not kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
    if name == "aten::copy_":
        target, source = args[0], args[1]
        if target.is_cuda or not source.is_cuda:
            return None, None
        dtype, shape = target.dtype, target.shape
        in_order = shape == source.shape and _strides(target) == _strides(source) and _is_dense(source)
    else:
        source, device = args[0], kwargs.get("device")
        if device is None or device.type == "cuda" or not source.is_cuda:
            return None, None
        dtype, shape = kwargs.get("dtype") or source.dtype, source.shape
        layout = kwargs.get("memory_format") or torch.preserve_format
        keeps = layout == torch.preserve_format
        in_order = _is_dense(source) if keeps else source.is_contiguous(memory_format=layout)
    if in_order and dtype == source.dtype or source.layout is not torch.strided:
        return None, None
    # Who waits for the copy has the numbers converted on the host.
    kind = source.dtype if waits else dtype
    size = shape.numel() * kind.itemsize
    if not 0 < size <= CARRIED:
        return None, None

    def numbers(known):
        if not known:
            return bytes(size)
        there = alias(source).to(kind).expand(shape).contiguous()
        return there.reshape(-1).view(torch.uint8).numpy().tobytes()

    return source, numbers


def _strides(tensor):
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def _is_dense(tensor):
    """Whether the elements lie in memory without gaps, in whatever order."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True
