"""On a real GPU: is the batch size that is found the largest that trains, and are micro-batches' gradients the same?

    python benchmarks/python/real_gpu_batch.py [--memory-gib 16] > batch.json
    python benchmarks/python/real_gpu_batch.py --gradients > gradients.json
    python benchmarks/python/real_gpu_batch.py --kinks

Prints one JSON object, progress on standard error. Exit status 0 if everything holds, 1 if not.

Gradients in fp32 proper are held against 1e-6. cuDNN chooses another algorithm for another batch size, with another
rounding: convolutions are judged with PyTorch's own kernels, whose arithmetic is the same for every batch size, and
shown with cuDNN, and with TF32, which is PyTorch's default there. Beside it stands what fp32 leaves open: how far the
gradients of the whole batch and of the parts are from those in fp64, and (`one_ulp`) how far they move where the input
differs in its last bit, which is much for a network with kinks (ReLU, max-pooling): another branch is taken here and
there.
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


class SmoothConvolutions(Convolutions):
    """The same without kinks: rounding moves its gradients by as much as rounding is."""

    def __init__(self) -> None:
        super().__init__()
        smooth = {nn.ReLU: nn.GELU(), nn.MaxPool2d: nn.AvgPool2d(2)}
        self.blocks = nn.Sequential(*(smooth.get(type(one), one) for one in self.blocks))


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
# Only for gradients: memory is that of their twins.
SMOOTH = {"convolutions_smooth": (SmoothConvolutions, images, classes)}
# By kernels: cuDNN or not, TF32 or not, judged or only shown.
KERNELS = {"": (False, False, True), "_cudnn": (True, False, False), "_cudnn_tf32": (True, True, False)}
SAMPLES = {"mlp": 4096, "convolutions": 64, "convolutions_smooth": 64, "transformer": 16}


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
        gc.collect()
        # The limit is on what is held, so nothing may lie in the cache.
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction((before + (peak - before) * share) / total)
        try:
            outcome = MicroBatcher(lambda part: loss_fn(model, part), model).backward(batch)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        if outcome.retries:
            break
    return outcome


def gradients(model: nn.Module, batch: Batch, loss_fn: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of a whole batch, taken away from the model and its device: there they would pin segments."""
    loss_fn(model, batch).backward()
    found = [one.grad.cpu() for one in model.parameters() if one.grad is not None]
    for one in model.parameters():
        one.grad = None
    return found


def apart(ones: list[torch.Tensor], others: list[torch.Tensor]) -> tuple[float, float]:
    """Relative distance of all gradients together, and of the parameter where it is largest."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ones, others = ([one.to(device) for one in each] for each in (ones, others))
    together = relative(torch.cat([one.flatten() for one in ones]), torch.cat([one.flatten() for one in others]))
    return together, max(relative(one, other) for one, other in zip(ones, others, strict=True))


def one_ulp_away(batch: Batch) -> Batch:
    """The same batch, each number of its input moved by at most one unit in the last place."""
    moves = torch.randint(-1, 2, batch[0].shape, device=batch[0].device)
    return batch[0] * (1 + torch.finfo(batch[0].dtype).eps * moves), batch[1]


def moved_by_one_ulp(
    model: nn.Module, batch: Batch, loss_fn: Callable[..., torch.Tensor], whole: list[torch.Tensor]
) -> float | None:
    """The most that gradients moved in four trials with the last bits of the input; ``None`` for whole numbers."""
    if not batch[0].is_floating_point():
        return None
    return max(apart(gradients(model, one_ulp_away(batch), loss_fn), whole)[0] for _ in range(4))


def kinks() -> dict[str, float | None]:
    """How far one unit in the last place of the input moves gradients: on the CPU, of small pictures."""
    moved: dict[str, float | None] = {}
    for name, make in (("convolutions", Convolutions), ("convolutions_smooth", SmoothConvolutions)):
        torch.manual_seed(0)
        model, batch = make(), (torch.randn(6, 3, 112, 112), torch.randint(0, 100, (6,)))
        whole = gradients(model, batch, classes)
        moved[name] = moved_by_one_ulp(model, batch, classes, whole)
    return moved


def same_gradients(name: str, samples: int, kernels: str) -> dict[str, Any]:
    """Gradients of micro-batches after a true out-of-memory error, against those of the whole batch."""
    make, make_batch, loss_fn = {**WORKLOADS, **SMOOTH}[name]
    torch.backends.cudnn.enabled, torch.backends.cudnn.allow_tf32, judged = KERNELS[kernels]
    torch.manual_seed(0)
    model = make().cuda()
    batch = make_batch(samples)
    whole = gradients(model, batch, loss_fn)
    one_ulp = moved_by_one_ulp(model, batch, loss_fn, whole)
    doubles = tuple(one.double() if one.is_floating_point() else one for one in batch)
    exact = gradients(copy.deepcopy(model).double(), doubles, loss_fn)  # type: ignore[arg-type]
    del doubles
    gc.collect()
    torch.cuda.empty_cache()
    # Not enough for the whole batch, by a limit on this process alone.
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gradients(model, batch, loss_fn)
    peak = torch.cuda.max_memory_reserved()
    outcome = limited_step(model, batch, loss_fn, before, peak)
    got = [one.grad for one in model.parameters() if one.grad is not None]
    torch.backends.cudnn.enabled, torch.backends.cudnn.allow_tf32 = True, False
    together, error = apart(got, whole)
    # What fp32 itself leaves open: how far the gradients of the whole batch are from those in fp64.
    of_parts, of_whole = apart(got, exact), apart(whole, exact)
    limit = 1e-6 if judged else None
    report = {
        "samples": samples,
        "sizes": outcome.sizes,
        "retries": outcome.retries,
        "relative_error": together,
        "relative_error_worst_parameter": error,
        "one_ulp": one_ulp,
        "to_fp64": of_parts[0],
        "whole_batch_to_fp64": of_whole[0],
        "to_fp64_worst_parameter": of_parts[1],
        "whole_batch_to_fp64_worst_parameter": of_whole[1],
        "limit": limit,
        "holds": outcome.retries > 0 and (limit is None or together <= limit),
    }
    say(f"{name}{kernels}: " + ", ".join(f"{k} {v}" for k, v in report.items()))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--memory-gib", type=float, default=16.0, help="limit of this process, so that it is quick")
    parser.add_argument("--only", choices=sorted({**WORKLOADS, **SMOOTH}))
    parser.add_argument("--gradients", action="store_true", help="leave the searches out")
    parser.add_argument("--kinks", action="store_true", help="only how far rounding moves gradients; needs no GPU")
    args = parser.parse_args()
    if args.kinks:
        print(json.dumps(kinks(), indent=2))
        return 0
    if not torch.cuda.is_available():
        say("there is no CUDA device")
        return 2
    warnings.simplefilter("ignore")
    # TF32 would round as much as the difference that is looked for.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    total = torch.cuda.get_device_properties(0).total_memory
    limit = min(int(args.memory_gib * (1 << 30)), total)
    names = [args.only] if args.only else [*WORKLOADS, *SMOOTH]
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
        if name in WORKLOADS and not args.gradients:
            report["largest_batch"][name] = largest_batch(name, limit)
    torch.cuda.set_per_process_memory_fraction(1.0)
    for name in names:
        for kernels in KERNELS if "convolutions" in name else ("",):
            report["gradients"][name + kernels] = same_gradients(name, SAMPLES[name], kernels)
            gc.collect()
            torch.cuda.empty_cache()
    rows = [*report["largest_batch"].values(), *report["gradients"].values()]
    report["holds"] = all(row["holds"] for row in rows)
    print(json.dumps(report, indent=2))
    return 0 if report["holds"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
