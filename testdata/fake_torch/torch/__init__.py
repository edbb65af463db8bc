"""As much of torch as a rehearsal hooks: names, an allocator that counts, and a place for hooks."""

import sys
import types

from torch import version
from torch.version import __version__


class Tensor:
    pass


class OutOfMemoryError(RuntimeError):
    pass


def _module(name, **names):
    module = types.ModuleType(f"torch.{name}")
    module.__dict__.update(names)
    sys.modules[module.__name__] = module
    return module


class _Mode:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


nn = _module("nn", Parameter=type("Parameter", (Tensor,), {}))
utils = _module("utils")
utils._python_dispatch = _module("utils._python_dispatch", TorchDispatchMode=_Mode)
backends = _module("backends", cudnn=_module("backends.cudnn", version=lambda: 91900))
_hooks = []
optim = _module("optim")
optim.optimizer = _module("optim.optimizer", register_optimizer_step_post_hook=_hooks.append)

from torch import _device as _device  # noqa: E402

cuda = _device.cuda
_C = _device.interface


class Optimizer:
    """Steps that call the hooks."""

    def step(self):
        for hook in _hooks:
            hook(self, (), {})


optim.Optimizer = Optimizer
