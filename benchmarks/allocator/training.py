"""Step times, first step, losses and memory of real training, under PyTorch's allocator and under vramwise's.

    python benchmarks/allocator/training.py [--steps 40] [--rounds 3] [--only REGEX] [--json]
    python benchmarks/allocator/training.py --steps 12 --rounds 20 --seconds 200 --arms native native= vramwise=handle_share:128

An arm is `native` or `vramwise`, and settings after an equals sign; `expandable` is short for native with expandable
segments. The first arm is what the others are held against; `native=` is the default once more, which shows the spread.

Each model trains in a process of its own, the arms in turn, round after round, so that what else a machine does meets all of
them. Times are of whole steps with a synchronisation at their end: the first one, the median and the p99 without the first
five, and the median of the later half, when the allocator has settled; of several rounds the median is shown, and the ratio
to the first arm of the same round, median and range, and for the first step also the ratio of the fastest ones: what else
a machine does makes a step longer, never shorter. Losses must be equal bit for bit to the first arm's; its runs in other
rounds tell whether they are among equals. An unmeasured run before each model fills the caches of files, and each run is
told on standard error as it ends. Needs torchvision and transformers for the models, and a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

from models import MODELS

# Steps before the measured ones.
WARM = 5
ARMS = ("native", "expandable", "vramwise")


def driver_time() -> float:
    """Milliseconds that vramwise's allocator has spent in calls to the driver; 0 for PyTorch's, which does not tell."""
    import vramwise.allocator

    return sum(call.total_ns for call in vramwise.allocator.driver_calls()) / 1e6


def child(name: str, arm: str, steps: int) -> None:
    kind, _, settings = arm.partition("=")
    if kind == "vramwise":
        import vramwise

        vramwise.install_allocator(settings or None, required=True)
    import torch

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    for kind in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{kind}_sdp")(False)
    times, losses, calls = [], [], []

    def step(run):
        torch.cuda.synchronize()
        for number in range(steps):
            if number in (0, 1, WARM, steps // 2):
                calls.append(driver_time())
            start = time.perf_counter()
            loss = run()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            losses.append(loss.item().hex())
        calls.append(driver_time())

    MODELS[name](torch, step)
    stats = torch.cuda.memory_stats()
    rest = sorted(times[WARM:])
    row = {
        "first_ms": times[0] * 1e3,
        "median_ms": statistics.median(rest) * 1e3,
        "later_ms": statistics.median(times[len(times) // 2 :]) * 1e3,
        "p99_ms": rest[min(len(rest) - 1, len(rest) * 99 // 100)] * 1e3,
        "losses": losses,
        # Milliseconds in calls to the driver: in the first step, and in each of those that are measured.
        "driver_first_ms": calls[1] - calls[0],
        "driver_ms": (calls[-1] - calls[2]) / max(1, steps - WARM),
        "driver_later_ms": (calls[-1] - calls[-2]) / max(1, steps - steps // 2),
        "reserved": stats["reserved_bytes.all.peak"],
        "requested": stats["requested_bytes.all.peak"],
    }
    print("ROW " + json.dumps(row), flush=True)


def run_once(name: str, arm: str, steps: int) -> dict | None:
    """One process; None if it failed, which is said."""
    kind, _, settings = arm.partition("=")
    conf = "expandable_segments:True" if kind == "expandable" else settings if kind == "native" else ""
    command = [sys.executable, __file__, "--steps", str(steps), "--child", name, arm]
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    line = next((line for line in done.stdout.splitlines() if line.startswith("ROW ")), None)
    if line is None:
        print(f"{name} {arm}: {done.stderr[-1500:]}", file=sys.stderr)
        return None
    return json.loads(line[4:])


def middle(rows: list[dict], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def against(rows: list[dict], base: list[dict], key: str) -> str:
    ratios = [row[key] / other[key] for row, other in zip(rows, base, strict=True)]
    return f"x {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def fastest(rows: list[dict], base: list[dict], key: str) -> float:
    return min(row[key] for row in rows) / min(row[key] for row in base)


def show(rows: dict[str, list[dict]]) -> None:
    base = next(iter(rows.values()))
    for arm, runs in rows.items():
        first = runs[0]
        print(
            f"  {arm:{max(map(len, rows))}}  step {middle(runs, 'median_ms'):7.2f} ms {against(runs, base, 'median_ms')}"
            f"  later {middle(runs, 'later_ms'):7.2f} {against(runs, base, 'later_ms')}"
            f"  p99 {middle(runs, 'p99_ms'):6.1f}"
            f"  first {middle(runs, 'first_ms'):7.1f} {against(runs, base, 'first_ms')}"
            f" fastest {fastest(runs, base, 'first_ms'):.3f}"
            f"  held {first['reserved'] / 2**20:.0f} MiB R {first['reserved'] / first['requested']:.3f}"
            f"  driver {middle(runs, 'driver_first_ms'):.1f} ms, then {middle(runs, 'driver_ms'):.2f} a step,"
            f" {middle(runs, 'driver_later_ms'):.2f} in the later half",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="of a run, at least 12")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="for a model: no new round after so many, whatever --rounds")
    parser.add_argument("--only", default=".")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), metavar="ARM[=SETTINGS]")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2)
    args = parser.parse_args()
    if args.child:
        child(*args.child, args.steps)
        return 0
    report, different = {}, 0
    for name in filter(re.compile(args.only).search, MODELS):
        rows: dict[str, list[dict]] = {arm: [] for arm in args.arms}
        if run_once(name, args.arms[0], args.steps) is None:
            return 1
        began = time.monotonic()
        for number in range(args.rounds):
            if args.seconds and number and time.monotonic() - began >= args.seconds:
                break
            for arm, runs in rows.items():
                row = run_once(name, arm, args.steps)
                if row is None:
                    return 1
                runs.append(row)
                # What is measured is not lost where a long run is ended.
                told = {"model": name, "arm": arm, **{key: row[key] for key in row if key != "losses"}}
                print(json.dumps(told), file=sys.stderr, flush=True)
        losses = {arm: [row.pop("losses") for row in runs] for arm, runs in rows.items()}
        expected = losses[args.arms[0]][0]
        repeats = all(each == expected for each in losses[args.arms[0]])
        equal = all(each == expected for arm, runs in losses.items() for each in runs if arm.startswith("vramwise"))
        different += repeats and not equal
        report[name] = {"repeatable": repeats, "losses_equal": equal, **rows}
        if not args.json:
            verdict = (
                "equal bit for bit" if equal else "DIFFER" if repeats else "differ, as two runs of PyTorch's own do"
            )
            print(f"{name}: losses {verdict}")
            show(rows)
    if args.json:
        print(json.dumps(report, indent=1))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
