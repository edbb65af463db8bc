"""Puts the value layer where it is needed: into every thread, and behind what torch does without an operation."""

import atexit
import contextlib
import functools
import os
import sys
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from vramwise_tensors import PLAIN, address
from vramwise_values import Values


class _InThread(TorchDispatchMode):
    """The same layer in another thread: each has modes of its own."""

    def __init__(self, values):
        super().__init__()
        self.values = values

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.values.__torch_dispatch__(func, types, args, kwargs)


# Threads of torch's own that compute nothing: in the layer they would be killed between C++ and Python when the
# program ends, which ends in an abort.
_NO_LAYER = {"torch.utils.data._utils.pin_memory"}


def _in_each_thread(values):
    def started(_frame, _event, _argument):
        sys.setprofile(None)
        work = getattr(threading.current_thread(), "_target", None)
        if getattr(work, "__module__", None) not in _NO_LAYER:
            _InThread(values).__enter__()

    threading.setprofile(started)


def _after(kind, name, then):
    """Has `then(self)` called after each call of a method."""
    inner = getattr(kind, name, None)
    if inner is None:
        return

    def both(self, *args, **kwargs):
        result = inner(self, *args, **kwargs)
        then(self)
        return result

    both.__doc__ = inner.__doc__
    setattr(kind, name, both)


def _made_of_numbers(holder, name, values):
    """Has `values` told of tensors that a function makes of the program's numbers."""
    inner = getattr(holder, name)

    def make(*args, **kwargs):
        made = inner(*args, **kwargs)
        if isinstance(made, torch.Tensor) and made.is_cuda and not any(made is a for a in args):
            source = args[1] if holder is torch.Tensor and len(args) > 1 else args[0] if args else None
            if not isinstance(source, torch.Tensor):
                values.given(made)
        return made

    make.__doc__ = inner.__doc__
    setattr(holder, name, make)


def _ctc_without_mode(module, values):
    """Under a mode such as this torch computes CTC in a way of its own, which reads other things: it gets none."""
    inner = module.ctc_loss

    def ctc_loss(*args, **kwargs):
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if any(type(tensor) not in PLAIN for tensor in given):
            return inner(*args, **kwargs)
        values.read_inside("aten::ctc_loss", [t for t in given if t.is_cuda and not t.is_floating_point()])
        with _disable_current_modes():
            loss = inner(*args, **kwargs)
            for tensor in [loss, *_saved(loss.grad_fn, {tensor.grad_fn for tensor in given})]:
                if tensor.is_cuda and not any(address(tensor) == address(t) for t in given):
                    values.unknown(tensor)
        return loss

    ctc_loss.__doc__ = inner.__doc__
    module.ctc_loss = ctc_loss


def _saved(node, ends):
    """What the steps of autograd keep, from one back to others that are there already."""
    hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    if hooks is None or hooks(True) is not None:
        return  # a look would have them computed again
    seen, ahead = {None, *ends}, [node]
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        ahead.extend(before for before, _ in node.next_functions)
        kept = (getattr(node, name, None) for name in dir(node) if name.startswith("_saved_"))
        yield from (value for value in kept if isinstance(value, torch.Tensor))


def _saved_to_file(module, values):
    """What torch.save reads are bytes, of whatever type the tensors are."""
    inner = module.save

    @functools.wraps(inner)
    def save(*args, **kwargs):
        before, values.saving = values.saving, True
        try:
            return inner(*args, **kwargs)
        finally:
            values.saving = before

    module.save = save


def _let_go_of(module):
    """Has autograd's threads drop what they hold of the last backward pass, the layer among it.

    Each does so when it takes up the next one. Left to the end of the process, that can come while Python ends, where a
    thread that asks for the interpreter is killed between C++ and Python, which ends in an abort.
    """
    if not module.cuda.is_initialized():
        return
    for device in range(module.cuda.device_count()):
        # A card that is full, or a context that an error has broken, has nothing to wait for.
        with contextlib.suppress(Exception):
            (module.ones((), device=f"cuda:{device}", requires_grad=True) * 1).backward()


def install(module, room, assume):
    """Switches the layer on, for the whole process."""
    values = Values(assume)
    values.__enter__()
    _in_each_thread(values)
    _after(module.cuda.CUDAGraph, "replay", lambda _graph: values.replayed())
    _after(module.UntypedStorage, "resize_", lambda storage: values.known.pop(storage.data_ptr(), None))
    _ctc_without_mode(module, values)
    _saved_to_file(module, values)
    for holder, name in ((module, "as_tensor"), (module, "asarray"), (module.Tensor, "new_tensor")):
        _made_of_numbers(holder, name, values)
    owner = os.getpid()

    def finish():
        if os.getpid() == owner:
            values.report(room)
            # What is freed while Python ends must not come here any more.
            values.__exit__(None, None, None)
            _let_go_of(module)

    atexit.register(finish)
