"""PyTorch on the emulated device, for tests: what is needed, and a process in it."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = Path(__file__).resolve().parent
LIBRARIES = os.environ.get("VRAMWISE_LIB_DIR")
EMULATOR, NVRTC, ENGINE = "libvramwise_emulator.so", "libvramwise_nvrtc.so", "libvramwise_allocator.so"
GIB = 1 << 30


def missing():
    """Why PyTorch cannot be run on the emulated device here, or None."""
    if not sys.platform.startswith("linux"):
        return "the emulated device is for Linux"
    if not LIBRARIES or not (Path(LIBRARIES) / EMULATOR).is_file():
        return "VRAMWISE_LIB_DIR does not name the folder with the emulated device"
    if torch_version() is None:
        return "this Python has no torch built for CUDA"
    return None


def torch_version():
    """(version, CUDA's version) of this Python's torch, without importing it, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text()
    version = re.search(r"^__version__ = '([^']+)'", text, re.M)
    cuda = re.search(r"^cuda[^=]*= '([^']+)'", text, re.M)
    return (version.group(1), cuda.group(1)) if version and cuda else None


class Device:
    """A folder with an emulated card, in which processes run."""

    def __init__(self, devices=1, memory=8 * GIB):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        library = self.path / "lib"
        library.mkdir()
        for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
            (library / name).symlink_to(Path(LIBRARIES).resolve() / EMULATOR)
        cuda = torch_version()[1]
        own = f"libnvrtc.so.{cuda.split('.')[0]}"
        # The object's own name must be the one that is asked for; both have the same length.
        renamed = (Path(LIBRARIES) / NVRTC).read_bytes().replace(b"libnvrtc.so.13\0", own.encode() + b"\0")
        (library / own).write_bytes(renamed)
        profile = json.loads((ROOT / "crates/profile/profiles/h200.json").read_text())
        config = {"schema": 1, "profile": profile, "memory_bytes": memory, "context_bytes": 300 << 20, "devices": devices}
        config.update({"cuda": cuda, "seed": 0, "values": {"mode": "off", "file": None}})
        (self.path / "emulator.json").write_text(json.dumps(config))
        self.preload = f"{library / 'libcuda.so.1'}:{library / own}"

    def close(self):
        self.folder.cleanup()

    def environment(self, **more):
        """The variables of a process with the card; None takes one away."""
        library = str(self.path / "lib")
        variables = {**os.environ, "VRAMWISE_REHEARSAL": str(self.path), "LD_PRELOAD": self.preload}
        variables.update({"LD_LIBRARY_PATH": library, "TRITON_LIBCUDA_PATH": library, "PYTHONDONTWRITEBYTECODE": "1"})
        variables.update({"PYTHONPATH": f"{ROOT / 'python'}:{TESTS}"})
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "VRAMWISE_ALLOCATOR"):
            variables.pop(name, None)
        variables.update(more)
        return {name: str(value) for name, value in variables.items() if value is not None}

    def run(self, *arguments, seconds=600, **more):
        """Runs this Python; gives the finished process."""
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=self.environment(**more),
        )


def compiler():
    return shutil.which("g++")


def shared_object(source, output, *flags):
    subprocess.run([compiler(), "-std=c++17", "-O1", "-fPIC", "-shared", *flags, str(source), "-o", str(output)], check=True)
