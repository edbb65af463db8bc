"""What recording costs a training step: the ratio of step times with and without, in one run.

Kinds of recording take turns, a few steps each, so that a clock that changes hits all of them. A ratio is that of the
medians of one round, to the middle of the two kinds that record nothing, which begin and end a round; what is printed is
the median over the rounds, with the quartiles. Beside it is the ratio of the fastest quarters of all steps: what else a
machine does makes steps longer, never shorter, so that these tell kinds apart where rounds differ by more than the kinds
do. A step that is bound by the host (small batches, many small kernels) shows the most; use --batch and --width to make it so.

The history is bounded so that it is full after a step, as it is in a long run: each entry takes the place of one.

With stacks="auto" few steps have stacks. They are measured by themselves, and the ratio over a run is put together
from both, one step in twenty with stacks.

Needs a GPU, or an emulated one (then the host's part is all there is to a step: the worst case). Not under `vramwise
rehearse`: that records too, so that nothing here would be switched on or off.

    python benchmarks/python/recorder_overhead.py --seconds 60
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
from vramwise.recorder import history, sampling


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


AUTO = "record"
NOTHING = ("nothing", "nothing, once more")
PROCESSOR, WALL = time.process_time, time.perf_counter

Kind = Callable[[], contextlib.AbstractContextManager[Callable[[], object]]]


def kinds(folder: Path, entries: int) -> dict[str, Kind]:
    """What is compared: each gives what is to be called at the end of a step."""

    @contextlib.contextmanager
    def nothing() -> Iterator[Callable[[], object]]:
        yield lambda: None

    @contextlib.contextmanager
    def recorded(**options: object) -> Iterator[Callable[[], object]]:
        with vramwise.record(folder, at_end=False, max_entries=entries, **options) as recorder:  # type: ignore[arg-type]
            yield recorder.step

    @contextlib.contextmanager
    def logged() -> Iterator[Callable[[], object]]:
        yield vramwise.log_memory(folder / "memory.jsonl").step

    return {
        "nothing": nothing,
        AUTO: recorded,
        'record, stacks="python"': lambda: recorded(stacks="python"),
        "record, no stacks": lambda: recorded(context=None),
        "record, stacks of frees too": lambda: recorded(stacks="python", context="all"),
        "record, no stacks, threshold": lambda: recorded(context=None, above=1.0),
        "log_memory every step": logged,
        "nothing, once more": nothing,
    }


def measure(step: Callable[[], None], kind: Kind, steps: int, clock: Callable[[], float]) -> dict[bool, list[float]]:
    """Seconds of each step, the device's work included, of those with and without stacks."""
    times: dict[bool, list[float]] = {True: [], False: []}
    with kind() as end_of_step:
        for number in range(steps + 1):
            torch.cuda.synchronize()
            with_stacks = history.stacks_now()
            begin = clock()
            step()
            end_of_step()
            torch.cuda.synchronize()
            # The first one after a change meets cold caches.
            if number:
                times[with_stacks].append(clock() - begin)
    return times


def over_a_run(kind: str, times: dict[bool, list[float]], of: Callable[[list[float]], float]) -> float:
    """Seconds that a step takes over a long run: a statistic of those with and without stacks, in their shares."""
    if kind != AUTO:
        return of(times[True] + times[False])
    share = 1 / sampling.EVERY
    return share * of(times[True]) + (1 - share) * of(times[False])


def fastest_quarter(times: list[float]) -> float:
    """The step that a quarter of them is as fast as."""
    return statistics.quantiles(times, n=4)[0]


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
    parser.add_argument("--steps", type=int, default=10, help="steps of each kind in a round, at least 5")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, help="no new round after so many seconds, instead of --rounds")
    parser.add_argument("--cpu", action="store_true", help="count the processor's time: steadier on a busy machine")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if history.is_on(torch):
        parser.error("somebody records already (vramwise rehearse does), so that every kind would cost the same")

    step = training_step(arguments.layers, arguments.width, arguments.batch, arguments.length)
    for _ in range(5):
        step()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    step()
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"] - before
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A request, a release and its completion.
        compared = kinds(folder, 3 * allocations)
        rounds: list[dict[str, dict[bool, list[float]]]] = []
        began = time.perf_counter()
        clock = PROCESSOR if arguments.cpu else WALL
        steps = max(5, arguments.steps)
        while True:
            rounds.append({kind: measure(step, make, steps, clock) for kind, make in compared.items()})
            seconds = time.perf_counter() - began
            if seconds >= arguments.seconds if arguments.seconds is not None else len(rounds) >= arguments.rounds:
                break
        entries, seconds = dump_seconds(step, folder, 5 * arguments.steps)
        start = time.perf_counter()
        for _ in range(100):
            vramwise.headroom()
        headroom = (time.perf_counter() - start) / 100

    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "clock": "processor" if arguments.cpu else "wall",
        "rounds": len(rounds),
        "allocations_a_step": allocations,
        "kinds": {kind: summary(kind, rounds) for kind in compared},
        "dump": {"entries": entries, "seconds": round(seconds, 3)},
        "headroom_ms": round(headroom * 1e3, 3),
    }
    if arguments.json:
        print(json.dumps(report, indent=1))
        return
    print(f"{report['device']}, PyTorch {report['torch']}, {allocations:,} allocations a step, {len(rounds)} rounds")
    for kind, each in report["kinds"].items():
        low, high = each["ratio_quartiles"]
        print(
            f"  {kind:30} {each['step_ms']:9.3f} ms a step   x {each['ratio']:.4f}   ({low:.4f} to {high:.4f})"
            f"   fastest quarter x {each['ratio_fastest_quarter']:.4f}"
        )
        for what, value in each.items():
            if what.startswith("ratio of"):
                print(f"    {what:28} {'':12}            x {value:.4f}")
    print(f"writing a recording of {entries:,} entries: {seconds:.2f} s; headroom(): {headroom * 1e3:.3f} ms")


def summary(kind: str, rounds: list[dict[str, dict[bool, list[float]]]]) -> dict[str, object]:
    """A kind over all rounds, against the same rounds without recording."""

    def in_the_middle(kind: str) -> list[float]:
        return [over_a_run(kind, each[kind], statistics.median) for each in rounds]

    def fastest(kind: str) -> float:
        pooled = {flag: [time for each in rounds for time in each[kind][flag]] for flag in (True, False)}
        return over_a_run(kind, pooled, fastest_quarter)

    plain = [statistics.mean(pair) for pair in zip(*map(in_the_middle, NOTHING), strict=True)]

    def ratio(times: list[float]) -> list[float]:
        return [round(one / other, 4) for one, other in zip(times, plain, strict=True)]

    times = in_the_middle(kind)
    ratios = ratio(times)
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    found: dict[str, object] = {
        "step_ms": round(statistics.median(times) * 1e3, 3),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_quartiles": [round(quarters[0], 4), round(quarters[2], 4)],
        "ratio_fastest_quarter": round(fastest(kind) / statistics.mean(map(fastest, NOTHING)), 4),
    }
    if kind == AUTO:
        for with_stacks, name in ((True, "with stacks"), (False, "without stacks")):
            found[f"ratio of steps {name}"] = statistics.median(
                ratio([statistics.median(each[kind][with_stacks]) for each in rounds])
            )
    return found


if __name__ == "__main__":
    main()
