"""How the shim is compiled: which compiler, which headers, and the key under which the result is kept."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ..errors import NotAvailableError

# From this PyTorch on its headers are C++20.
_CXX20_SINCE = 14
_SECONDS = 600


@dataclass(frozen=True)
class Plan:
    """A compilation: everything but where the result goes."""

    command: tuple[str, ...]
    key: str

    def run(self, output: Path) -> None:
        """Compiles into this file.

        Raises:
            NotAvailableError: with the compiler's first complaint.
        """
        try:
            done = subprocess.run(
                [*self.command, "-o", str(output)],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
                env=_plain_environment(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotAvailableError(f"its shim cannot be compiled: {error}", missing="compiler") from error
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            complaint = next((line for line in lines if "error" in line), lines[-1] if lines else "no reason given")
            raise NotAvailableError(f"its shim cannot be compiled: {complaint.strip()}", missing="compiler")


def plan(torch: ModuleType, source: Path, minor: int) -> Plan:
    """Finds what is needed to compile for this PyTorch.

    Raises:
        NotAvailableError: something is not there.
    """
    compiler = _compiler(torch)
    root = Path(str(torch.__file__)).parent
    headers = _cuda_headers(root)
    if not (root / "include/c10/cuda/CUDACachingAllocator.h").is_file():
        raise NotAvailableError(f"{root} has no C++ headers to compile its shim with", missing="PyTorch's headers")
    version = f"{torch.__version__} {torch.version.git_version}"
    flags = [
        f"-std=c++{20 if minor >= _CXX20_SINCE else 17}",
        *("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-DVRAMWISE_TORCH_MINOR={minor}",
        f"-DVRAMWISE_TORCH={version}",
    ]
    for directory in [root / "include", *headers]:
        flags += ["-isystem", str(directory)]
    libraries = [f"-L{root / 'lib'}", "-lc10", "-lc10_cuda"]
    command = (compiler, *flags, str(source / "shim.cpp"), *libraries)
    key = hashlib.sha256()
    # A PyTorch that somebody built again has the same name, and perhaps another layout.
    library = (root / "lib/libc10_cuda.so").stat()
    for part in (*command, _version(compiler), platform.machine(), str(library.st_size), str(library.st_mtime_ns)):
        key.update(part.encode() + b"\0")
    for file in sorted(source.iterdir()):
        if file.suffix in (".h", ".cpp"):
            key.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return Plan(command, key.hexdigest()[:32])


def _compiler(torch: ModuleType) -> str:
    wanted = os.environ.get("CXX", "")
    for name in [wanted] if wanted else ["g++", "c++", "clang++"]:
        found = shutil.which(name)
        if found:
            return found
    if wanted:
        raise NotAvailableError(f"the compiler that CXX names is not there: {wanted}", missing="compiler")
    raise NotAvailableError(
        f"there is no ready-made shim for PyTorch {torch.__version__}, and no C++ compiler to make one (install g++, "
        "or name a compiler in CXX)",
        missing="compiler",
    )


def _version(compiler: str) -> str:
    try:
        done = subprocess.run(
            [compiler, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
            env=_plain_environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _plain_environment() -> dict[str, str]:
    """What is preloaded into this program is none of the compiler's business."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def _cuda_headers(torch_root: Path) -> list[Path]:
    """Directories that have CUDA's runtime headers, complete.

    Which CUDA they are of does not matter: nothing that differs between releases is used.
    """
    for group in _header_places(torch_root):
        present = [place for place in group if place.is_dir()]
        wanted = ("cuda_runtime_api.h", "crt/host_config.h")
        if all(any((place / name).is_file() for place in present) for name in wanted):
            return present
    raise NotAvailableError(
        "there is no ready-made shim for this PyTorch, and no CUDA headers to compile one: install the package triton, "
        "or set CUDA_HOME",
        missing="CUDA headers",
    )


def _header_places(torch_root: Path) -> Iterator[list[Path]]:
    for packages in dict.fromkeys([torch_root.parent, Path(sysconfig.get_path("purelib"))]):
        yield [packages / "triton/backends/nvidia/include"]
        nvidia = packages / "nvidia"
        yield [*(nvidia / name / "include" for name in ("cu13", "cuda_runtime", "cuda_nvcc", "cuda_crt"))]
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield [Path(os.environ[name]) / "include"]
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield [Path(nvcc).resolve().parent.parent / "include"]
    yield [Path("/usr/local/cuda/include")]
