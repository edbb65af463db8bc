"""First steps of real training, in many processes: what they cost under PyTorch's allocator and under vramwise's.

    python benchmarks/allocator/first_step.py [--rounds 20] [--seconds 200] [--only REGEX] [--arms ARM ...] [--json]

Models are those of `models.py`, arms those of `training.py`; the first arm is what the others are held against, and
`native=` is the default once more, which shows the spread. A first step happens once in a process and is spent on loading
kernels' code for the most part, which takes longer or shorter each time; so there must be many processes, and they must
be alike. A parent imports PyTorch and the models' libraries without touching the GPU; each first step happens in a child
forked from it, one at a time, the arms in a new order every round. Said of each arm: the median and the quarter points of
its first steps, the median of its ratios to the first arm of the same round with the interval that holds the true median
with a confidence of 95 % (order statistics, binomial), what the calls to the driver took of it, and the calls to the
device that PyTorch's own counters know. Needs torchvision and transformers for the models, a GPU, and a system that can
fork.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import statistics
import sys
import time
import traceback

from models import MODELS


def first_step(name: str, arm: str) -> dict:
    """In a child: one model, one step."""
    kind, _, settings = arm.partition("=")
    if kind == "vramwise":
        import vramwise

        vramwise.install_allocator(settings or None, required=True)
    import torch

    if kind == "expandable":
        settings = "expandable_segments:True"
    if kind != "vramwise" and settings:
        # PyTorch 2.10 has a new name for it.
        before = torch.cuda.memory._set_allocator_settings
        getattr(torch._C, "_accelerator_setAllocatorSettings", before)(settings)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    for backend in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{backend}_sdp")(False)
    row: dict = {}

    def step(run) -> None:
        torch.cuda.synchronize()
        calls, taken = driver_calls(), torch.cuda.memory_stats()["num_device_alloc"]
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        row["first_ms"] = (time.perf_counter() - start) * 1e3
        after = driver_calls()
        row["calls"] = {}
        for call, (count, ms) in after.items():
            earlier = calls.get(call, (0, 0.0))
            if count > earlier[0]:
                row["calls"][call] = (count - earlier[0], ms - earlier[1])
        row["driver_ms"] = sum(ms for _, ms in row["calls"].values())
        row["device_allocs"] = torch.cuda.memory_stats()["num_device_alloc"] - taken
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        row["second_ms"] = (time.perf_counter() - start) * 1e3
        row["second_driver_ms"] = sum(ms for _, ms in driver_calls().values()) - sum(ms for _, ms in after.values())

    MODELS[name](torch, step)
    row["reserved"] = torch.cuda.memory_stats()["reserved_bytes.all.peak"]
    return row


def driver_calls() -> dict[str, tuple[int, float]]:
    """By call of the driver: how many vramwise's allocator made, and their milliseconds; empty under PyTorch's."""
    import vramwise.allocator

    return {call.name: (call.count, call.total_ns / 1e6) for call in vramwise.allocator.driver_calls()}


def in_child(name: str, arm: str) -> dict | None:
    """Forks, waits, and reads what the child found; None if it failed, which it says itself."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as out:
                json.dump(first_step(name, arm), out)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if status == 0 else None


def interval(values: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """Bounds of the median of what the values are drawn from: order statistics, by the binomial distribution."""
    ordered, count = sorted(values), len(values)
    below, tail = 0, 0.0
    while below < count // 2:
        tail += math.comb(count, below) / 2**count
        if tail > (1 - confidence) / 2:
            break
        below += 1
    below = max(below - 1, 0)
    return ordered[below], ordered[count - 1 - below]


def show(rows: dict[str, list[dict]]) -> None:
    base = next(iter(rows.values()))
    for arm, runs in rows.items():
        times = sorted(row["first_ms"] for row in runs)
        ratios = [row["first_ms"] / other["first_ms"] for row, other in zip(runs, base, strict=True)]
        low, high = interval(ratios)
        middle = {key: statistics.median(row[key] for row in runs) for key in runs[0] if key != "calls"}
        print(
            f"  {arm:{max(map(len, rows))}}  {middle['first_ms']:7.1f} ms"
            f" ({times[len(times) // 4]:.1f} to {times[len(times) * 3 // 4]:.1f}, least {times[0]:.1f})"
            f"  x {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}),"
            f" of the medians {middle['first_ms'] / statistics.median(row['first_ms'] for row in base):.3f},"
            f" of the fastest {times[0] / min(row['first_ms'] for row in base):.3f}"
            f"  driver {middle['driver_ms']:.1f} ms, {middle['device_allocs']:.0f} device allocations"
            f"  second {middle['second_ms']:.1f} ms, driver {middle['second_driver_ms']:.1f}  held {middle['reserved'] / 2**20:.0f} MiB",
            flush=True,
        )
        for call in dict.fromkeys(name for row in runs for name in row["calls"]):
            counts, times = zip(*(row["calls"].get(call, (0, 0.0)) for row in runs), strict=True)
            print(f"      {call}: {statistics.median(counts):.0f}, {statistics.median(times):.2f} ms", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, help="for a model: no new round after so many, whatever --rounds")
    parser.add_argument("--only", default="gpt2_checkpointed|resnet50$")
    parser.add_argument("--arms", nargs="+", default=["native", "native=", "expandable", "vramwise"], metavar="ARM[=SETTINGS]")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    os.environ.pop("PYTORCH_ALLOC_CONF", None)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

    import torch  # noqa: F401 - before the fork, so that no child pays for it
    import torchvision  # noqa: F401
    import transformers.models.gpt2.modeling_gpt2  # noqa: F401

    report, order = {}, random.Random(0)
    for name in filter(re.compile(args.only).search, MODELS):
        rows: dict[str, list[dict]] = {arm: [] for arm in args.arms}
        # Not measured: it fills the caches of files.
        if in_child(name, args.arms[0]) is None:
            return 1
        began = time.monotonic()
        for number in range(args.rounds):
            if args.seconds and number and time.monotonic() - began >= args.seconds:
                break
            found = {}
            for arm in order.sample(args.arms, len(args.arms)):
                row = in_child(name, arm)
                if row is None:
                    return 1
                found[arm] = row
                print(json.dumps({"model": name, "arm": arm, **row}), file=sys.stderr, flush=True)
            for arm, row in found.items():
                rows[arm].append(row)
        report[name] = rows
        if not args.json:
            print(f"{name}: {len(rows[args.arms[0]])} first steps of each")
            show(rows)
    if args.json:
        print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
