"""Installs vramwise's allocator in a program that `vramwise run` started; nothing here imports torch.

Python runs this file at start-up, since its directory stands first in PYTHONPATH, in the program and in the Python processes
that it starts. It waits for torch, and passes on to a sitecustomize that was there before. What fails here is told in a line
and never stops the program.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _autoload():
    try:
        from vramwise.allocator.autoload import autoload
    except ImportError:
        # This Python has no package vramwise, or an older one: the program's own.
        for name in [name for name in sys.modules if name.split(".")[0] == "vramwise"]:
            del sys.modules[name]
        sys.path.insert(0, os.path.join(_HERE, "package"))
        try:
            from vramwise.allocator.autoload import autoload
        finally:
            sys.path.remove(os.path.join(_HERE, "package"))
    autoload()


class _Loader:
    """Loads torch as its own loader does, then installs."""

    def __init__(self, inner):
        self.inner = inner

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.inner
        self.inner.exec_module(module)
        try:
            _autoload()
        except Exception as error:
            print(f"vramwise: its allocator cannot be installed: {error}", file=sys.stderr)


class _Finder:
    """Finds torch by asking those who come after it."""

    def __init__(self):
        self.asking = False

    def find_spec(self, name, path=None, target=None):
        # One of them may ask everybody in turn.
        if name != "torch" or self.asking:
            return None
        self.asking = True
        try:
            spec = self._ask(name, path, target)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader)
        return spec

    def _ask(self, name, path, target):
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None


def _pass_on(done):
    """Runs the sitecustomize that this one hides. That one may do the same, and come back here."""
    places = [os.path.abspath(path or ".") for path in sys.path]
    hidden = places[places.index(_HERE) + 1 :] if _HERE in places else places
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", [path for path in hidden if path not in done])
    if spec is not None and spec.loader is not None:
        done.add(os.path.dirname(os.path.abspath(spec.origin)))
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_done = sys.__dict__.setdefault("_vramwise_start_files", set())
if _HERE not in _done:
    _done.add(_HERE)
    # Others that wait for torch come before this one in the list, and so after it in time: they find the allocator in place.
    sys.meta_path.insert(0, _Finder())
_pass_on(_done)
