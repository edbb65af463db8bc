"""Nanoseconds of an allocation and its release: PyTorch's own allocator and vramwise's, in turns in one run.

    python benchmarks/allocator/latency.py [--rounds 3] [--json]

Needs PyTorch, a C++ compiler, vramwise, and a GPU or ``vramwise rehearse``. Each round runs a process an arm, one after the
other, so that both see the same machine; what is printed is the median round. Ratios are ours / PyTorch's.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
KIB, MIB = 1 << 10, 1 << 20
ARMS = ("native", "expandable", "vramwise")
FIELDS = ("median", "p99", "longest", "mean")


def build(directory: Path) -> Path:
    """Compiles the loops against the installed PyTorch."""
    import torch
    from vramwise.allocator import _compiler

    root = Path(torch.__file__).parent
    headers = [root / "include", *_compiler._cuda_headers(root)]
    minor = int(torch.__version__.split(".")[1])
    library = directory / "latency.so"
    command = ["g++", "-O2", "-fPIC", "-shared", "-w", "-pthread", f"-std=c++{20 if minor >= 14 else 17}"]
    for header in headers:
        command += ["-isystem", str(header)]
    command += [str(HERE / "latency.cpp"), f"-L{root / 'lib'}", "-lc10", "-lc10_cuda", "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def training_step(layers: int = 24, seed: int = 3) -> tuple[list[int], list[int], int]:
    """Sizes and slots of a program shaped like training: activations held to the backward pass, many temporaries."""
    rng = random.Random(seed)
    sizes, slots, free, count = [], [], [], 0

    def take(size: int) -> int:
        nonlocal count
        slot = free.pop() if free else count
        count = max(count, slot + 1)
        sizes.append(size)
        slots.append(slot)
        return slot

    def drop(slot: int) -> None:
        sizes.append(0)
        slots.append(slot)
        free.append(slot)

    for _ in range(20):
        held = []
        for _ in range(layers):
            for _ in range(12):
                held.append(take(rng.choice((16 * KIB, 768 * KIB, 3 * MIB, 12 * MIB))))
                drop(take(rng.choice((512, 4 * KIB, 2 * MIB, 8 * MIB))))
        while held:
            drop(take(rng.choice((4 * KIB, 3 * MIB))))
            drop(held.pop())
    return sizes, slots, count


def child(arm: str, library: str) -> None:
    """One arm, in a process of its own; prints a line of JSON."""
    if arm == "vramwise":
        import vramwise

        vramwise.install_allocator(required=True)
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    loops = ctypes.CDLL(library)
    out = (ctypes.c_double * 4)()
    i64 = ctypes.c_int64
    rows = {}

    def keep(name: str) -> None:
        rows[name] = dict(zip(FIELDS, list(out), strict=True))

    for threads in (1, 2, 4):
        for name, size in (("512 B", 512), ("64 KiB", 64 * KIB), ("4 MiB", 4 * MIB), ("64 MiB", 64 * MIB)):
            loops.latency_fixed(i64(size), i64(60_000), threads, out)
            keep(f"{name}, {threads} thread{'s'[: threads > 1]}")
        for name, live, high in (("1,000 small", 1000, MIB), ("1,000 mixed", 1000, 32 * MIB), ("10,000 small", 10_000, 256 * KIB)):
            loops.latency_churn(i64(live), i64(512), i64(high), i64(40_000), threads, out)
            keep(f"churn of {name}, {threads} thread{'s'[: threads > 1]}")
    sizes, slots, count = training_step()
    arrays = (ctypes.c_int64 * len(sizes))(*sizes), (ctypes.c_int32 * len(slots))(*slots)
    loops.latency_replay(*arrays, i64(len(sizes)), count, 10, out)
    keep("training-shaped program")
    print("ROWS " + json.dumps(rows), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        library = build(Path(directory))
        print("compiled", file=sys.stderr, flush=True)
        runs: dict[str, list[dict]] = {arm: [] for arm in ARMS}
        for _ in range(args.rounds):
            for arm in ARMS:
                environment = dict(os.environ)
                environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True" if arm == "expandable" else ""
                command = [sys.executable, __file__, "--child", arm, str(library)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                line = next((line for line in done.stdout.splitlines() if line.startswith("ROWS ")), None)
                if line is None:
                    print(done.stderr[-2000:], file=sys.stderr)
                    return 1
                runs[arm].append(json.loads(line[5:]))
                print(f"{arm} measured", file=sys.stderr, flush=True)
    middle = {
        arm: {
            name: {f: statistics.median(run[name][f] for run in of_arm) for f in FIELDS} for name in of_arm[0]
        }
        for arm, of_arm in runs.items()
    }
    if args.json:
        print(json.dumps(middle, indent=1))
        return 0
    print(f"{'ns a pair: median / p99 / longest':34}" + "".join(f"{arm:>26}" for arm in ARMS) + f"{'ratio':>8}")
    for name in middle["native"]:
        cells = []
        for arm in ARMS:
            row = middle[arm][name]
            cells.append(f"{row['median']:.0f} / {row['p99']:.0f} / {row['longest']:.0f}")
        ratio = middle["vramwise"][name]["median"] / middle["native"][name]["median"]
        print(f"{name:34}" + "".join(f"{cell:>26}" for cell in cells) + f"{ratio:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
