"""Runs programs with the real PyTorch on the emulated device, each in a process of its own.

Found by `VRAMWISE_LIB_DIR`, or beside the program that `VRAMWISE_BIN` names; `cargo xtask test` sets both. PyTorch is the
one of the Python that runs the tests, where it has one.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "python"
PROGRAM = os.environ.get("VRAMWISE_BIN", str(REPOSITORY / "target" / "debug" / "vramwise"))
EMULATOR, COMPILER = "libvramwise_emulator.so", "libvramwise_nvrtc.so"
GIB = 1 << 30
MIB = 1 << 20


def _libraries():
    for folder in (os.environ.get("VRAMWISE_LIB_DIR"), str(Path(PROGRAM).parent)):
        if folder and (Path(folder) / EMULATOR).is_file():
            return Path(folder)
    return None


def _cuda():
    """The CUDA version that PyTorch is built for, read without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    text = (Path(next(iter(spec.submodule_search_locations))) / "version.py").read_text()
    found = re.search(r"^cuda[^=]*=\s*'([\d.]+)'", text, re.MULTILINE)
    return found.group(1) if found else None


LIBRARIES, CUDA = _libraries(), _cuda()


def why_not():
    """Why nothing can be run here, or None."""
    if sys.platform != "linux":
        return "the emulated device is for Linux"
    if LIBRARIES is None:
        return "neither VRAMWISE_LIB_DIR nor VRAMWISE_BIN leads to the emulated device"
    if CUDA is None:
        return f"{sys.executable} has no PyTorch that is built for CUDA"
    return None


def run(*command, total_bytes=8 * GIB, devices=1, cwd=None, env=None, timeout=300):
    """Runs `python COMMAND...` with a card of so many bytes; gives the finished process, with its output as text."""
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
            (room / name).symlink_to(LIBRARIES / EMULATOR)
        if CUDA.startswith("13."):
            (room / "libnvrtc.so.13").symlink_to(LIBRARIES / COMPILER)
        profile = {"name": "A Card", "total_bytes": total_bytes, "compute_capability": [8, 9]}
        config = {"profile": profile, "context_bytes": 300 * MIB, "cuda": CUDA, "devices": devices}
        (room / "emulator.json").write_text(json.dumps(config))
        around = {
            **os.environ,
            "VRAMWISE_REHEARSAL": folder,
            "LD_PRELOAD": str(room / "libcuda.so.1"),
            "LD_LIBRARY_PATH": folder,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")])),
            **(env or {}),
        }
        for name in ("CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "RANK", "LOCAL_RANK"):
            if name not in (env or {}):
                around.pop(name, None)
        return subprocess.run([sys.executable, *map(str, command)], cwd=cwd, env=around, timeout=timeout,
                              capture_output=True, text=True, check=False)


def vramwise(*arguments):
    """Runs the program `vramwise`."""
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
