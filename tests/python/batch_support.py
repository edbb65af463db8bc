"""What the tests of batch search, micro-batches and the pytest plugin share: paths, torch if there is one, errors."""

import gc
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python"
EXAMPLES = ROOT / "examples"
if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))

HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_PYTEST = importlib.util.find_spec("pytest") is not None
PROGRAM = os.environ.get("VRAMWISE_BIN")

NO_TORCH = "torch is not installed"
needs_torch = unittest.skipUnless(HAS_TORCH, NO_TORCH)


def less_garbage():
    """Each attempt collects garbage; what modules are made of need not be looked through each time."""
    gc.collect()
    gc.freeze()


def cuda_build():
    """Why programs cannot run on the emulated device here; None if they can."""
    if not sys.platform.startswith("linux"):
        return "the emulated device needs Linux"
    if not PROGRAM:
        return "VRAMWISE_BIN does not name the program"
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return NO_TORCH
    version = Path(spec.origin).parent / "version.py"
    facts = {}
    exec(compile(version.read_text(), str(version), "exec"), facts)
    if not facts.get("cuda"):
        return "this torch is built without CUDA"
    return None


needs_emulated_device = unittest.skipIf(cuda_build(), cuda_build() or "")


# Everything that children leave: their caches, and what rehearsals keep. It goes with this process.
_ROOM = tempfile.TemporaryDirectory(prefix="vramwise-tests-")


def environment(**more):
    """The environment of a child: the package importable, its results kept apart from the user's."""
    paths = [str(PACKAGE), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), **more}
    env.setdefault("VRAMWISE_CACHE_DIR", tempfile.mkdtemp(prefix="cache-", dir=_ROOM.name))
    env.update({"TMPDIR": _ROOM.name, **more})
    return env


def run_python(*arguments, **more):
    """Runs this Python in a process of its own."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment(**more),
    )


def rehearse(*arguments, memory="2GiB", options=(), **more):
    """Runs this Python on the emulated card, once; its output is in `stderr`, the report in `stdout`."""
    line = [PROGRAM, "rehearse", "--json", "--memory", memory, "--emulate-anyway", "--values", "off", *options]
    return subprocess.run(
        [*line, "--", sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment(**more),
    )


def out_of_memory(text="CUDA out of memory. Tried to allocate 2.00 GiB."):
    """The error as torch raises it; without torch, one with its text."""
    if HAS_TORCH:
        import torch

        return torch.OutOfMemoryError(text)
    return RuntimeError(text)
