"""Allocator exercises for PyTorch: each one is recorded, for a replay that must come to the same result.

    python programs.py DIRECTORY [PROGRAM ...]
    python programs.py --list

Every program runs in a process of its own, forked before CUDA is started, and leaves in the directory

    PROGRAM.snapshot.pickle.gz   PyTorch's own snapshot without stacks: state and history from an empty cache
    PROGRAM.stats.json.gz        memory_stats() at the end, the limit, the release of PyTorch

Only sizes, lifetimes, streams and pools matter, so the tensors are never computed with. It needs PyTorch's CUDA
build and a GPU, which may be an emulated one. The settings are those of PYTORCH_CUDA_ALLOC_CONF.
"""

import gc
import gzip
import json
import os
import pickle
import random
import sys
import traceback

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Exercise:
    """Random allocations and frees, with everything that a program keeps alive."""

    def __init__(self, torch, seed):
        self.torch, self.random, self.live = torch, random.Random(seed), []

    def size(self):
        """Bytes, denser around the bounds at which the allocator decides otherwise."""
        pick = self.random.randint
        kind = pick(0, 99)
        if kind < 12:
            return pick(1, 8 * KIB)
        if kind < 45:
            return pick(1, 1 * MIB)
        if kind < 55:
            bound = self.random.choice([512, 1 * MIB, 10 * MIB, 20 * MIB, 32 * MIB, 64 * MIB, 128 * MIB])
            return bound + self.random.choice([-512, -1, 0, 1, 512])
        if kind < 78:
            return pick(1 * MIB, 12 * MIB)
        if kind < 95:
            return pick(10 * MIB, 180 * MIB)
        return pick(150 * MIB, 800 * MIB)

    def few_sizes(self):
        """One of a few sizes, so that many free blocks are equally large."""
        return self.random.choice([2 * KIB, 512 * KIB, 2 * MIB, 2 * MIB, 5 * MIB, 20 * MIB, 24 * MIB, 72 * MIB])

    def take(self, size):
        """Allocates; where memory runs out, frees a part of what lives."""
        try:
            self.live.append(self.torch.empty(size, dtype=self.torch.uint8, device="cuda"))
        except self.torch.OutOfMemoryError:
            for _ in range(1 + len(self.live) // 4):
                self.drop()

    def drop(self):
        if self.live:
            # The last one moves into the gap: no list of a hundred tensors is shifted.
            at = self.random.randrange(len(self.live))
            self.live[at], self.live[-1] = self.live[-1], self.live[at]
            self.live.pop()

    def step(self, size, most=120):
        if self.live and (len(self.live) > most or self.random.random() < 0.46):
            self.drop()
        else:
            self.take(size())
        if self.random.random() < 0.004:
            self.torch.cuda.empty_cache()


def sizes(torch):
    """All sizes on one stream; a limit that is met often."""
    work = Exercise(torch, "sizes")
    for _ in range(1500):
        work.step(work.size)


def equal(torch):
    """Free blocks of the same size in segments of all ages and addresses: which one is taken?"""
    work = Exercise(torch, "equal")
    for _ in range(1500):
        work.step(work.few_sizes, most=90)


def streams(torch):
    """Three streams whose tensors are used on each other's: frees that complete later."""
    work = Exercise(torch, "streams")
    kinds = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    for i in range(900):
        with torch.cuda.stream(work.random.choice(kinds)):
            work.step(work.size if i % 3 else work.few_sizes)
        if work.live and work.random.random() < 0.3:
            work.random.choice(work.live).record_stream(work.random.choice(kinds))
        if work.random.random() < 0.01:
            torch.cuda.synchronize()
    torch.cuda.synchronize()


def graphs(torch):
    """CUDA graphs in pools of their own and in shared ones, dropped in between, beside ordinary work."""
    work = Exercise(torch, "graphs")
    shared, captured = torch.cuda.graph_pool_handle(), []
    for i in range(10):
        for _ in range(25):
            work.step(work.size, most=30)
        graph, inside = torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(graph, pool=shared if i % 3 == 0 else None):
            for _ in range(30):
                if inside and work.random.random() < 0.4:
                    inside.pop(work.random.randrange(len(inside)))
                else:
                    size = min(work.size(), 60 * MIB)
                    inside.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        captured.append((graph, inside[:3]))
        del graph, inside
        if i % 4 == 2:
            # The first one stays: a shared pool whose graphs are all gone cannot be used again.
            del captured[1]
        if i % 5 == 3:
            torch.cuda.empty_cache()
    captured.clear()
    gc.collect()
    torch.cuda.empty_cache()


def pools(torch):
    """Short-lived pools of the user's, some at a time. Their tensors go before them: under expandable segments
    PyTorch does not survive a tensor that outlives its pool."""
    work, opened = Exercise(torch, "pools"), []
    for i in range(12):
        opened.append((torch.cuda.MemPool(), Exercise(torch, f"pool {i}")))
        for _ in range(3):
            pool, inside = work.random.choice(opened)
            with torch.cuda.use_mem_pool(pool):
                for _ in range(10):
                    inside.step(lambda: work.random.randint(1, 30 * MIB))
            for _ in range(8):
                work.step(work.few_sizes, most=60)
            del pool, inside
        if len(opened) > 3:
            opened[work.random.randrange(len(opened))][1].live.clear()
            opened = [(pool, inside) for pool, inside in opened if inside.live]
        if i % 5 == 4:
            torch.cuda.empty_cache()
    work.live.clear()
    while opened:
        opened[-1][1].live.clear()
        opened.pop()
    torch.cuda.empty_cache()


def training(torch):
    """The lifetimes of a training run: a stack of activations in every step, of another length each time."""
    work = Exercise(torch, "training")
    weights = [work.random.randint(64 * KIB, 30 * MIB) for _ in range(40)]
    for size in weights:
        work.take(size)
    for step in range(8):
        length = work.random.randint(100, 1000)
        activations, gradients = [], []
        for i in range(60):
            scratch = torch.empty(length * 3001, dtype=torch.uint8, device="cuda")
            activations.append(torch.empty(length * (1 + i % 4) * 8192, dtype=torch.uint8, device="cuda"))
            del scratch
        while activations:
            gradients.append(torch.empty(weights[len(activations) % 40], dtype=torch.uint8, device="cuda"))
            activations.pop()
        if step == 0:
            for size in weights:
                work.take(2 * size)


def card(torch):
    """Memory runs out because the card is full, not because of a limit."""
    work = Exercise(torch, "card")
    for i in range(400):
        work.step(work.size if i % 2 else lambda: work.random.randint(100 * MIB, 1200 * MIB), most=200)


# Each with the bytes that the process may hold.
PROGRAMS = {
    "sizes": (sizes, 4 * GIB),
    "equal": (equal, None),
    "streams": (streams, 5 * GIB),
    "graphs": (graphs, None),
    "pools": (pools, 3 * GIB),
    "training": (training, 6 * GIB),
    "card": (card, None),
}


def bare(value):
    """The snapshot without stacks and times, which say nothing about the allocator."""
    if isinstance(value, dict):
        return {key: bare(part) for key, part in value.items() if key not in ("frames", "time_us")}
    return [bare(part) for part in value] if isinstance(value, list) else value


def write(place, data):
    with open(place + ".tmp", "wb") as file:
        # No name and no time, so that the same recording is the same file.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            packed.write(data)
    os.replace(place + ".tmp", place)


def record(name, directory):
    import torch

    program, limit = PROGRAMS[name]
    total = torch.cuda.get_device_properties(0).total_memory
    if limit is not None:
        torch.cuda.set_per_process_memory_fraction(limit / total)
    torch.cuda.memory._record_memory_history(context=None, max_entries=2_000_000)
    program(torch)
    snapshot, final = torch.cuda.memory._snapshot(), dict(torch.cuda.memory_stats())
    report = {
        "torch": torch.__version__,
        "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "limit_bytes": None if limit is None else int(limit / total * total),
        "total_bytes": total,
        "final": final,
    }
    place = os.path.join(directory, name)
    write(place + ".stats.json.gz", json.dumps(report).encode())
    # Last: where it is, all is there.
    write(place + ".snapshot.pickle.gz", pickle.dumps(bare(snapshot), protocol=4))


def main(directory, names):
    import torch  # noqa: F401  imported once, for all

    failed = []
    for name in names or PROGRAMS:
        child = os.fork()
        if child == 0:
            status = 0
            try:
                record(name, directory)
            except BaseException:
                traceback.print_exc()
                status = 1
            os._exit(status)
        if os.waitpid(child, 0)[1] != 0:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        print("\n".join(PROGRAMS))
    else:
        main(sys.argv[1], sys.argv[2:])
