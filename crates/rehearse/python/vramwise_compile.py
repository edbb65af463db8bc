"""Keeps both passes alike where a program uses torch.compile.

Only the pass that counts compiles: with the value layer on, torch leaves functions as they are. So the first one tells
code inside such functions that it is compiled, by which it decides what to ask of values. In the other one the compiler
itself reads constants from the device, which it computes there: they get their values, and take none from the log.
"""

import contextlib
import ctypes
import functools

from vramwise_emulator import entry


def install_first(eval_frame):
    """For the first pass; called when torch._dynamo.eval_frame has been imported."""
    import torch

    if not hasattr(torch.compiler, "_is_compiling_flag"):
        return
    for name, inside in (("OptimizeContext", True), ("DisableContext", False)):
        kind = getattr(eval_frame, name, None)
        if kind is not None:
            kind.__call__ = _marking(torch, kind.__call__, inside)


def _marking(torch, inner, inside):
    """What makes a function into one that is compiled, or left as it is."""

    def wrap(self, function):
        made = inner(self, function)
        # A module's forward comes here by itself.
        return made if isinstance(made, (torch.nn.Module, type)) else _marked(torch.compiler, made, inside)

    return wrap


def _marked(compiler, function, inside):
    """The function, with `torch.compiler.is_compiling()` as it is inside."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        before, compiler._is_compiling_flag = compiler._is_compiling_flag, inside
        try:
            return function(*args, **kwargs)
        finally:
            compiler._is_compiling_flag = before

    return call


@contextlib.contextmanager
def _with_values():
    from vramwise_values import Values

    told = entry("vramwise_compiling", ctypes.c_int)
    if told is None:
        yield
        return
    told(1)
    try:
        with Values({}):
            yield
    finally:
        told(0)


def install_second(constant_folding):
    """For the pass that counts; called when torch._inductor.constant_folding has been imported."""
    kind = constant_folding.ConstantFolder
    inner = kind.run

    def run(self, *args, **kwargs):
        with _with_values():
            return inner(self, *args, **kwargs)

    kind.run = run
