"""What recording costs a training step: the ratio of step times with and without, in one run.

Kinds of recording take turns, a few steps each, so that a clock that changes hits all of them. The ratio is that
of medians. A step that is bound by the host (small batches, many small kernels) shows the most; use --batch and
--width to make it so. Needs a GPU.

    python benchmarks/python/recorder_overhead.py
    python benchmarks/python/recorder_overhead.py --layers 24 --width 1024 --batch 8 --json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import vramwise


def training_step(layers: int, width: int, batch: int, length: int) -> Callable[[], None]:
    """A step of a transformer of the usual form, as a function."""
    layer = torch.nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(batch, length, width, device="cuda")

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


Kind = Callable[[], contextlib.AbstractContextManager[Callable[[], object]]]


def kinds(folder: Path) -> dict[str, Kind]:
    """What is compared: each gives what is to be called at the end of a step."""

    @contextlib.contextmanager
    def nothing() -> Iterator[Callable[[], object]]:
        yield lambda: None

    @contextlib.contextmanager
    def recorded(**options: object) -> Iterator[Callable[[], object]]:
        with vramwise.record(folder, at_end=False, **options) as recorder:  # type: ignore[arg-type]
            yield recorder.step

    @contextlib.contextmanager
    def logged() -> Iterator[Callable[[], object]]:
        yield vramwise.log_memory(folder / "memory.jsonl").step

    return {
        "nothing": nothing,
        "record": recorded,
        "record, no stacks": lambda: recorded(context=None),
        "record, stacks of frees too": lambda: recorded(context="all"),
        "record, threshold": lambda: recorded(above=1.0),
        "log_memory every step": logged,
        "nothing, once more": nothing,
    }


def measure(step: Callable[[], None], kind: Kind, steps: int) -> list[float]:
    """Seconds of each step, the device's work included."""
    times = []
    with kind() as end_of_step:
        for number in range(steps + 1):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            step()
            end_of_step()
            torch.cuda.synchronize()
            # The first one after a change meets cold caches.
            if number:
                times.append(time.perf_counter() - begin)
    return times


def dump_seconds(step: Callable[[], None], folder: Path, steps: int) -> tuple[int, float]:
    """Entries of a recording, and the seconds that writing it takes: so long a failed allocation waits."""
    with vramwise.record(folder, at_end=False) as recorder:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        file = recorder.dump()
        seconds = time.perf_counter() - begin
        about = json.loads(file.with_suffix(".info").read_text()) if file is not None else {}
        return sum(about.get("recording", {}).get("entries", [])), seconds


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10, help="steps of each kind in a round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    step = training_step(arguments.layers, arguments.width, arguments.batch, arguments.length)
    for _ in range(5):
        step()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compared = kinds(folder)
        times: dict[str, list[float]] = {kind: [] for kind in compared}
        for _ in range(arguments.rounds):
            for kind, make in compared.items():
                times[kind] += measure(step, make, arguments.steps)
        entries, seconds = dump_seconds(step, folder, 5 * arguments.steps)
        start = time.perf_counter()
        for _ in range(100):
            vramwise.headroom()
        headroom = (time.perf_counter() - start) / 100

    medians = {kind: statistics.median(each) for kind, each in times.items()}
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "step_ms": {kind: round(seconds * 1e3, 3) for kind, seconds in medians.items()},
        "ratio": {kind: round(seconds / medians["nothing"], 4) for kind, seconds in medians.items()},
        "dump": {"entries": entries, "seconds": round(seconds, 3)},
        "headroom_ms": round(headroom * 1e3, 3),
    }
    if arguments.json:
        print(json.dumps(report, indent=1))
        return
    print(f"{report['device']}, PyTorch {report['torch']}")
    for kind, each in medians.items():
        print(f"  {kind:28} {each * 1e3:9.3f} ms a step   x {each / medians['nothing']:.4f}")
    print(f"writing a recording of {entries:,} entries: {seconds:.2f} s; headroom(): {headroom * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
