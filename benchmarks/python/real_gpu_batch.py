"""On a real GPU: is the batch size that is found the largest that trains, and are micro-batches' gradients the same?

    python benchmarks/python/real_gpu_batch.py [--memory-gib 16] > batch.json

Prints one JSON object, progress on standard error. Exit status 0 if everything holds, 1 if not.
"""

# ruff: noqa: D102, D103 (a script; names say it)

from __future__ import annotations

import argparse
import copy
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import torch
from torch import nn

from vramwise import MicroBatcher
from vramwise.batch_size import TrainingTrial, search_batch_size
from vramwise.oom import free_after_oom, is_oom_error

STEPS = 50


class Mlp(nn.Module):
    """Wide layers: activations of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(one for _ in range(6) for one in (nn.Linear(4096, 4096), nn.GELU())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Convolutions(nn.Module):
    """Convolutions with group normalisation: cuDNN's workspaces."""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for inside, outside in ((3, 64), (64, 128), (128, 256), (256, 256)):
            blocks += [nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(8, outside), nn.ReLU(), nn.MaxPool2d(2)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(256, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean(dim=(2, 3)))


class Transformer(nn.Module):
    """A small language model: attention, and logits that are larger than all else."""

    def __init__(self, width: int = 768, layers: int = 6, words: int = 32_000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 12, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(ids)))


Batch = tuple[torch.Tensor, torch.Tensor]


def mlp(n: int) -> Batch:
    return torch.randn(n, 4096, device="cuda"), torch.randn(n, 4096, device="cuda")


def images(n: int) -> Batch:
    return torch.randn(n, 3, 224, 224, device="cuda"), torch.randint(0, 100, (n,), device="cuda")


def text(n: int) -> Batch:
    ids = torch.randint(0, 32_000, (n, 512), device="cuda")
    return ids, ids.roll(-1, dims=1)


def mean_square(model: nn.Module, batch: Batch) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def classes(model: nn.Module, batch: Batch) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]).flatten(0, -2), batch[1].flatten())


WORKLOADS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Batch], Callable[..., torch.Tensor]]] = {
    "mlp": (Mlp, mlp, mean_square),
    "convolutions": (Convolutions, images, classes),
    "transformer": (Transformer, text, classes),
}


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def trains(name: str, size: int) -> bool:
    """Whether a model made anew trains 50 steps with the size."""
    make, make_batch, loss_fn = WORKLOADS[name]
    free_after_oom()
    failure: Exception | None = None
    try:
        model = make().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(STEPS):
            loss_fn(model, make_batch(size)).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
    except RuntimeError as error:
        if not is_oom_error(error):
            raise
        failure = error
    model = optimizer = None  # type: ignore[assignment]
    free_after_oom(failure)
    return failure is None


def largest_batch(name: str, limit_bytes: int) -> dict[str, Any]:
    """The search's answer and what 50 steps say to it."""
    make, make_batch, loss_fn = WORKLOADS[name]
    model = make().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    began = time.perf_counter()
    found = search_batch_size(TrainingTrial(model, optimizer, make_batch, loss_fn), max_val=1 << 20, max_trials=60)
    seconds = time.perf_counter() - began
    del model, optimizer
    gc.collect()
    torch.cuda.empty_cache()
    left = torch.cuda.memory_allocated()
    works, next_works = trains(name, found.batch_size), trains(name, found.batch_size + 1)
    say(f"{name}: {found.batch_size} of {limit_bytes >> 20} MiB, {works=}, {next_works=}, {seconds:.1f} s")
    return {
        "found": found.batch_size,
        "trials": len(found.tried),
        "seconds": round(seconds, 2),
        "found_trains_50_steps": works,
        "next_trains_50_steps": next_works,
        "allocated_after_search_bytes": left,
        "holds": works and not next_works,
    }


def relative(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


def limited_step(model: nn.Module, batch: Batch, loss_fn: Callable[..., torch.Tensor], before: int, peak: int) -> Any:
    """One step of a MicroBatcher under a limit that the whole batch does not pass: ever less until one is found."""
    total = torch.cuda.get_device_properties(0).total_memory
    for share in (0.75, 0.6, 0.45, 0.3):
        for one in model.parameters():
            one.grad = None
        free_after_oom()
        torch.cuda.set_per_process_memory_fraction((before + (peak - before) * share) / total)
        try:
            outcome = MicroBatcher(lambda part: loss_fn(model, part), model).backward(batch)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        if outcome.retries:
            break
    return outcome


def same_gradients(name: str, samples: int) -> dict[str, Any]:
    """Gradients of micro-batches after a true out-of-memory error, against those of the whole batch."""
    make, make_batch, loss_fn = WORKLOADS[name]
    torch.manual_seed(0)
    model = make().cuda()
    batch = make_batch(samples)
    loss_fn(model, batch).backward()
    whole = [one.grad for one in model.parameters()]
    for one in model.parameters():
        one.grad = None
    reference = copy.deepcopy(model).double()
    doubles = tuple(one.double() if one.is_floating_point() else one for one in batch)
    loss_fn(reference, doubles).backward()
    exact = [one.grad for one in reference.parameters()]
    del reference, doubles
    gc.collect()
    torch.cuda.empty_cache()
    # Not enough for the whole batch, by a limit on this process alone.
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss_fn(model, batch).backward()
    peak = torch.cuda.max_memory_reserved()
    outcome = limited_step(model, batch, loss_fn, before, peak)
    got = [one.grad for one in model.parameters()]
    error = max(relative(a, b) for a, b in zip(got, whole, strict=True))
    micro = max(relative(a, b) for a, b in zip(got, exact, strict=True))
    plain = max(relative(a, b) for a, b in zip(whole, exact, strict=True))
    together = relative(torch.cat([one.flatten() for one in got]), torch.cat([one.flatten() for one in whole]))
    say(f"{name}: {outcome.sizes=} {together=:.2e} worst {error:.2e}, to fp64 {micro:.2e} (whole batch {plain:.2e})")
    return {
        "samples": samples,
        "sizes": outcome.sizes,
        "retries": outcome.retries,
        "relative_error": together,
        "relative_error_worst_parameter": error,
        "to_fp64_worst_parameter": micro,
        "whole_batch_to_fp64_worst_parameter": plain,
        "holds": outcome.retries > 0 and together <= 1e-6,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--memory-gib", type=float, default=16.0, help="limit of this process, so that it is quick")
    parser.add_argument("--only", choices=sorted(WORKLOADS))
    args = parser.parse_args()
    if not torch.cuda.is_available():
        say("there is no CUDA device")
        return 2
    warnings.simplefilter("ignore")
    # TF32 would round as much as the difference that is looked for.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    total = torch.cuda.get_device_properties(0).total_memory
    limit = min(int(args.memory_gib * (1 << 30)), total)
    names = [args.only] if args.only else list(WORKLOADS)
    report: dict[str, Any] = {
        "schema": 1,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "limit_bytes": limit,
        "largest_batch": {},
        "gradients": {},
    }
    torch.cuda.set_per_process_memory_fraction(limit / total)
    for name in names:
        report["largest_batch"][name] = largest_batch(name, limit)
    torch.cuda.set_per_process_memory_fraction(1.0)
    for name in names:
        report["gradients"][name] = same_gradients(name, {"mlp": 4096, "convolutions": 64, "transformer": 16}[name])
        gc.collect()
        torch.cuda.empty_cache()
    rows = [*report["largest_batch"].values(), *report["gradients"].values()]
    report["holds"] = all(row["holds"] for row in rows)
    print(json.dumps(report, indent=2))  # noqa: T201 (the result)
    return 0 if report["holds"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
