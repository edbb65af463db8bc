"""Tensors of the emulated device as the value layer sees them: memory at an address, which the CPU can read."""

import ctypes
import functools

import torch
from vramwise_emulator import entry

# Elements up to which tensors are computed: indices and masks decide what a program does, and a mask of tokens may be of
# floating-point numbers. Random ones decide nothing but as scalars and the like.
MOST_INTEGERS = 1 << 20
MOST_FLOATS = 1 << 18
MOST_RANDOM_FLOATS = 4096

PLAIN = (torch.Tensor, torch.nn.Parameter)
# Tensors that stand for others while shapes are worked out.
WITHOUT_MEMORY = ("FakeTensor", "FunctionalTensor")


def tensors(values):
    """The tensors with memory of their own: a sparse one is its indices and its values."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided:
                if type(value) in PLAIN and not value.is_nested and value.device.type != "meta":
                    yield value
            else:
                yield from _parts(value)
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def _parts(tensor):
    if type(tensor) not in PLAIN or tensor.device.type == "meta":
        return ()
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


@functools.cache
def backed():
    """Whether device memory can be read: where the system refuses so much address space, it is addresses alone."""
    told = entry("vramwise_is_backed")
    return told is None or bool(told())


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def _most(tensor, floats=MOST_FLOATS):
    return floats if tensor.is_floating_point() or tensor.is_complex() else MOST_INTEGERS


def small(tensor):
    if tensor.is_quantized:
        return False  # the CPU has no such tensor over memory that is given
    return tensor.numel() <= _most(tensor)


def of_large(tensor):
    """Whether it is a part of memory that is too large to be looked after."""
    return tensor.untyped_storage().nbytes() // tensor.element_size() > _most(tensor)


def few_enough_to_draw(tensors):
    """Whether random numbers for these tensors are worth drawing."""
    return all(small(tensor) and tensor.numel() <= _most(tensor, MOST_RANDOM_FLOATS) for tensor in tensors)


def alias(tensor):
    """A CPU tensor over the same memory."""
    if tensor.layout is torch.sparse_coo:
        parts = (alias(tensor._indices()), alias(tensor._values()))
        # It keeps the parts given: what is written into them is written into the original.
        return torch.sparse_coo_tensor(
            *parts, tensor.shape, is_coalesced=tensor.is_coalesced(), check_invariants=False
        )
    if tensor.layout is not torch.strided:
        parts = [alias(part) for part in _parts(tensor)]
        return torch.sparse_compressed_tensor(*parts, tensor.shape, layout=tensor.layout, check_invariants=False)
    storage = tensor.untyped_storage()
    size, item = storage.nbytes(), tensor.element_size()
    if tensor.numel() == 0 or size < item or not storage.data_ptr() or not backed():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    memory = (ctypes.c_char * size).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=tensor.dtype, count=size // item)
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def on_cpu(value):
    """An argument of an operation as the same operation on the CPU takes it."""
    if isinstance(value, torch.Tensor):
        return alias(value) if value.is_cuda else value
    if isinstance(value, (list, tuple)):
        return type(value)(on_cpu(v) for v in value)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, torch.Generator):
        return None
    return value


_clear = entry("vramwise_clear", ctypes.c_uint64, ctypes.c_uint64)


def clear(tensor):
    """Zeros instead of what memory happens to hold."""
    if not tensor.numel() or not small(tensor) or not backed():
        return
    if _clear and tensor.layout is torch.strided and tensor.is_contiguous():
        _clear(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    else:
        alias(tensor).zero_()
