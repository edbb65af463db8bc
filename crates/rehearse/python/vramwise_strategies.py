"""Switches ways of saving memory on in a program that does not use them, through the common interfaces."""

import contextlib


def install(torch, strategies):
    """Called when torch has been imported."""
    if "fused" in strategies:
        _fused(torch)
    if "amp" in strategies or "compile" in strategies:
        _wrap_outermost_call(torch, "amp" in strategies, "compile" in strategies)


def _fused(torch):
    """Optimizers that can be fused are."""
    import torch.optim as optim

    for name in ("Adam", "AdamW", "SGD", "Adagrad"):
        kind = getattr(optim, name, None)
        if kind is None:
            continue

        def init(self, *args, _inner=kind.__init__, **kwargs):
            if kwargs.get("foreach") is None and not kwargs.get("capturable"):
                try:
                    _inner(self, *args, **dict(kwargs, fused=True))
                    return
                except (TypeError, RuntimeError, ValueError):
                    pass
            _inner(self, *args, **kwargs)

        kind.__init__ = init


def _wrap_outermost_call(torch, amp, compiled):
    """The call of the outermost module in training runs under autocast, or compiled."""
    module = torch.nn.Module
    inner = module.__call__
    depth = [0]
    programs = {}

    def call(self, *args, **kwargs):
        if depth[0] or not _on_device(self) or isinstance(self, torch.nn.modules.loss._Loss):
            return inner(self, *args, **kwargs)
        depth[0] += 1
        try:
            with torch.autocast("cuda", dtype=torch.bfloat16) if amp else contextlib.nullcontext():
                if not compiled:
                    return inner(self, *args, **kwargs)
                program = programs.get(id(self))
                if program is None:
                    # The module's own forward is compiled, its hooks stay outside.
                    program = programs[id(self)] = torch.compile(self.forward)
                    self.forward = program
                return inner(self, *args, **kwargs)
        finally:
            depth[0] -= 1

    module.__call__ = call


def _on_device(module):
    parameter = next(module.parameters(), None)
    return parameter is not None and parameter.is_cuda


def install_checkpointing(modeling_utils):
    """Models of transformers checkpoint their layers; called when the library has been imported."""
    model = modeling_utils.PreTrainedModel
    train = model.train

    def train_checkpointed(self, mode=True):
        if mode and getattr(self, "supports_gradient_checkpointing", False):
            if not getattr(self, "is_gradient_checkpointing", False):
                self.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return train(self, mode)

    model.train = train_checkpointed
