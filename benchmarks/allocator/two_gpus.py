"""Programs on two GPUs under vramwise's allocator: settings by device, peer copies, DDP over NCCL, tensors of another process.

    python benchmarks/allocator/two_gpus.py [NAME...]

Each program runs in a process of its own and checks its own results; DDP's losses are held against PyTorch's own allocator.
Prints a line a program; the exit status is the number that failed. Needs two GPUs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

GIB = 1 << 30


def install(settings=None):
    import vramwise

    status = vramwise.install_allocator(settings, required=True)
    assert status.installed, status


def settings_by_device():
    """A limit for each device, then exchanged while the program runs."""
    install({"cuda:0": "limit:1GiB", "cuda:1": "limit:8GiB"})
    import torch
    import vramwise

    def fits(device):
        try:
            torch.empty(2 * GIB, dtype=torch.uint8, device=device)
            return True
        except torch.OutOfMemoryError:
            return False
        finally:
            torch.cuda.empty_cache()

    first = fits("cuda:0"), fits("cuda:1")
    vramwise.set_settings("cuda:0", "limit:8GiB")
    vramwise.set_settings("cuda:1", "limit:1GiB")
    second = fits("cuda:0"), fits("cuda:1")
    assert (first, second) == ((False, True), (True, False)), (first, second)
    return f"2 GiB fit {first}, with the settings exchanged {second}"


def peer_copies():
    """Tensors go to the other device and back, on several streams, while their memory is recycled."""
    install()
    import torch

    generator = torch.Generator().manual_seed(3)
    streams = [torch.cuda.Stream(device=device) for device in (0, 1)]
    wrong = 0
    for number in range(200):
        size = int(torch.randint(1, 8 << 20, (1,), generator=generator))
        there = number % 2
        a = torch.full((size,), float(number), device=f"cuda:{there}")
        with torch.cuda.stream(streams[1 - there]):
            streams[1 - there].wait_stream(torch.cuda.current_stream(there))
            b = a.to(f"cuda:{1 - there}", non_blocking=True) * 2
            a.record_stream(streams[1 - there])
            wrong += int((b != 2 * number).sum())
        del a
    access = torch.cuda.can_device_access_peer(0, 1)
    assert wrong == 0, wrong
    return f"200 copies, 0 wrong elements (peer access: {access})"


def train(rank, arm, where):
    if arm == "vramwise":
        install()
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{where}", rank=rank, world_size=2)
    torch.manual_seed(0)
    sizes = [512, 2048, 2048, 512]
    layers = [torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.GELU()) for a, b in zip(sizes, sizes[1:], strict=False)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for step in range(20):
        torch.manual_seed(100 * step + rank)
        x = torch.randn(64 + 17 * (step % 5), 512, device="cuda")
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss)
        losses.append(loss.item().hex())
    gathered = [torch.empty(1 << 20, device="cuda") for _ in range(2)]
    dist.all_gather(gathered, torch.full((1 << 20,), float(rank), device="cuda"))
    assert [int(g.sum()) for g in gathered] == [0, 1 << 20]
    dist.destroy_process_group()
    print("LOSSES " + json.dumps(losses), flush=True)


def ddp():
    """DistributedDataParallel over NCCL, a process a device: the same losses as under PyTorch's own allocator."""
    losses = {}
    for arm in ("native", "vramwise"):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--rank"]
            rest = [arm, str(Path(folder) / "ranks")]
            ranks = [subprocess.Popen([*command, str(rank), *rest], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
            told = [rank.communicate(timeout=120)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], arm
        losses[arm] = next(line for line in told[0].splitlines() if line.startswith("LOSSES "))
    assert losses["native"] == losses["vramwise"], losses
    return "20 steps on two ranks, losses equal bit for bit"


def change(queue, answer):
    install()
    tensor = queue.get()
    tensor.add_(1)
    answer.put(float(tensor.sum()))
    del tensor


def other_process():
    """A tensor's memory is opened in another process, changed there, and seen here."""
    install()
    import torch
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    queue, answer = context.Queue(), context.Queue()
    child = context.Process(target=change, args=(queue, answer))
    child.start()
    padding = torch.zeros(1000, device="cuda:0")
    tensor = torch.zeros(3_000_000, device="cuda:0")
    queue.put(tensor)
    there = answer.get(timeout=120)
    child.join(60)
    here = float(tensor.sum())
    assert there == here == 3_000_000 and float(padding.sum()) == 0, (there, here)
    return "3,000,000 elements changed by the other process, and no others"


PROGRAMS = {function.__name__: function for function in (settings_by_device, peer_copies, ddp, other_process)}


def main() -> int:
    if sys.argv[1:2] == ["--rank"]:
        train(int(sys.argv[2]), *sys.argv[3:])
        return 0
    if sys.argv[1:2] == ["--one"]:
        print("TOLD " + PROGRAMS[sys.argv[2]](), flush=True)
        return 0
    failed = 0
    for name in sys.argv[1:] or PROGRAMS:
        done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, timeout=300)
        told = [line.removeprefix("TOLD ") for line in done.stdout.splitlines() if line.startswith("TOLD ")]
        failed += not told or done.returncode != 0
        what = told[0] if told and done.returncode == 0 else f"FAILED ({done.returncode})\n{done.stderr[-3000:]}"
        print(f"{name:20} {what}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
