"""On a real GPU: recordings, headroom, logging, and settings that change while a program runs.

    python benchmarks/python/real_gpu_session.py [--states 40] > session.json

Prints one JSON object, progress on standard error. Exit status 0 if everything holds, 1 if not. What is measured beside
it: `recorder_overhead.py` (what recording costs), `real_gpu_batch.py` (batch sizes and micro-batches).
"""

# ruff: noqa: D103, S311 (a script; names say it; nothing here is a secret)

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import torch
from torch import nn

import vramwise

MIB = 1 << 20


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def fresh() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def train(model: nn.Module, rows: int) -> None:
    model(torch.randn(rows, 1024, device="cuda")).sum().backward()


def reproduced(file: Path) -> bool:
    found = vramwise.read(file).replay().verify
    return found is not None and found.first_divergence is None and found.allocs_exact == found.allocs > 0


def recording(room: Path) -> dict[str, Any]:
    """Memory runs out in a recorded step: the user's exception arrives, and what was written replays to the byte."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).cuda()
    raised = None
    torch.cuda.set_per_process_memory_fraction(0.02)
    try:
        with vramwise.record(room / "oom", stacks="python") as recorder:
            for rows in (1_000, 3_000, 2_000, 10_000_000):
                train(model, rows)
                recorder.step()
    except torch.OutOfMemoryError as error:
        raised = type(error).__name__
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    files = sorted((room / "oom").glob("*.pickle"))
    return {
        "raised": raised,
        "files": [file.name for file in files],
        "replayed": [reproduced(file) for file in files],
        "holds": raised == "OutOfMemoryError" and bool(files) and all(map(reproduced, files)),
    }


def changed_settings(room: Path) -> dict[str, Any]:
    """Settings that change twice: in force at once, noted by the recorder, applied by the replay."""
    kept = []
    with vramwise.record(room / "settings") as recorder:
        for step in range(6):
            if step == 2:
                vramwise.set_allocator_settings("expandable_segments:True")
            if step == 4:
                vramwise.set_allocator_settings("expandable_segments:False,max_split_size_mb:32")
            kept.append(block((3, 7, 30, 45, 120, 12)[step] * MIB))
            recorder.step()
    expandable = sum(segment.get("is_expandable", False) for segment in torch.cuda.memory_snapshot())
    (file,) = (room / "settings").glob("*.pickle")
    vramwise.set_allocator_settings("")
    return {"expandable_segments": expandable, "holds": expandable > 0 and reproduced(file)}


def schedule() -> dict[str, Any]:
    """Settings by step, and back at the end."""
    seen = []
    by_step = vramwise.SettingsSchedule({0: "", 2: "max_split_size_mb:64"})
    with by_step:
        for _ in range(4):
            seen.append(by_step.current)
            by_step.step()
    return {"seen": seen, "holds": "max_split_size_mb:64" not in seen[1] and "max_split_size_mb:64" in seen[2]}


def had(size: int) -> bool:
    try:
        block(size)
    except torch.OutOfMemoryError:
        return False
    return True


def largest(states: int) -> dict[str, Any]:
    """What headroom() calls the largest block can be had in random states, and one byte more cannot."""
    wrong = []
    for seed in range(states):
        rnd = random.Random(seed)
        torch.cuda.set_per_process_memory_fraction(rnd.choice([0.05, 0.1, 0.2]))
        live = [block(rnd.randint(1, 300 * MIB)) for _ in range(rnd.randint(5, 20))]
        live = [one for one in live if rnd.random() < 0.6]
        room = vramwise.headroom()
        if not had(room.largest_block_bytes) or had(vramwise.headroom().largest_block_bytes + 1):
            wrong.append(f"seed {seed}: {room}")
        live.clear()
        torch.cuda.set_per_process_memory_fraction(1.0)
        fresh()
    return {"states": states, "wrong": wrong, "holds": not wrong}


def logging(room: Path) -> dict[str, Any]:
    """A line of JSON a step, with the figures of memory_stats()."""
    path = room / "memory.jsonl"
    monitor = vramwise.log_memory(path)
    kept = [block(64 * MIB)]
    for _ in range(3):
        monitor.step()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del kept
    return {"lines": len(lines), "keys": sorted(lines[0])[:6], "holds": len(lines) == 3}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--states", type=int, default=40, help="random states in which headroom() is tried")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("there is no CUDA device\n")
        return 2
    report: dict[str, Any] = {"schema": 1, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "recording": lambda: recording(room),
            "changed_settings": lambda: changed_settings(room),
            "schedule": schedule,
            "headroom": lambda: largest(args.states),
            "logging": lambda: logging(room),
        }
        for name, part in parts.items():
            fresh()
            report[name] = part()
            sys.stderr.write(f"{name}: {report[name]}\n")
    report["holds"] = all(report[name]["holds"] for name in parts)
    print(json.dumps(report, indent=2))
    return 0 if report["holds"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
