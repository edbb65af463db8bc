"""Starts the parts of a rehearsal inside the program's own Python; nothing here imports torch.

Python runs this file at start-up, since its directory stands first in PYTHONPATH. It passes on to a
sitecustomize that was there before, and waits for modules to be imported: each gets its hook when its own
code has run. What fails here is noted in the rehearsal's directory and never stops the program.
"""

import importlib.machinery
import importlib.util
import json
import os
import random
import sys
import traceback

_HERE = os.path.dirname(os.path.abspath(__file__))
_SEED = 0
_ROOM = os.environ.get("VRAMWISE_REHEARSAL", "")


def _note_failure():
    try:
        with open(os.path.join(_ROOM, f"bootstrap.{os.getpid()}.log"), "a") as file:
            file.write(traceback.format_exc())
    except OSError:
        pass


def _pass_on():
    """Runs the sitecustomize that this one hides."""
    paths = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class _Loader:
    """Loads a module as its own loader does, then calls the hook."""

    def __init__(self, inner, hook):
        self.inner, self.hook = inner, hook

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.inner
        self.inner.exec_module(module)
        try:
            self.hook(module)
        except Exception:
            _note_failure()


class _Finder:
    """Finds the modules that have hooks, by asking everybody else."""

    def __init__(self, hooks):
        self.hooks = hooks

    def find_spec(self, name, path=None, target=None):
        hook = self.hooks.get(name)
        if hook is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if finder is not self and find else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, hook)
                return spec
        return None


def _hooks(config):
    """The hooks that this rehearsal needs, by module."""
    learns = config.get("values", {}).get("mode") == "learn"

    def torch(module):
        import vramwise_record

        generator = getattr(module, "default_generator", None)
        if generator is not None:
            generator.manual_seed(_SEED)
        vramwise_record.install(module, config, _ROOM)
        if learns:
            import vramwise_layer

            vramwise_layer.install(module, _ROOM, config.get("assume") or {})
        if config.get("strategies"):
            import vramwise_strategies

            vramwise_strategies.install(module, config["strategies"])

    def distributed(module):
        import vramwise_ranks

        vramwise_ranks.install(module, config)

    def data_parallel(module):
        import vramwise_ranks

        vramwise_ranks.install_data_parallel(module)

    def eval_frame(module):
        if learns:
            import vramwise_compile

            vramwise_compile.install_first(module)

    def constant_folding(module):
        if not learns:
            import vramwise_compile

            vramwise_compile.install_second(module)

    hooks = {
        "torch": torch,
        "torch._dynamo.eval_frame": eval_frame,
        "torch._inductor.constant_folding": constant_folding,
        "numpy.random": lambda module: module.seed(_SEED),
        "torch.distributed.distributed_c10d": distributed,
        "torch.nn.parallel.distributed": data_parallel,
    }
    if "checkpoint" in (config.get("strategies") or []):
        import vramwise_strategies

        hooks["transformers.modeling_utils"] = vramwise_strategies.install_checkpointing
    return hooks


def _start():
    with open(os.path.join(_ROOM, "emulator.json")) as file:
        config = json.load(file)
    # Both passes are to draw the same numbers; a program that seeds its generators does so later.
    random.seed(_SEED)
    sys.meta_path.insert(0, _Finder(_hooks(config)))


try:
    if _ROOM:
        _start()
except Exception:
    _note_failure()
_pass_on()
