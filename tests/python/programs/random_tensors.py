"""Random tensors on random streams, for programs that look at what is left then."""

import torch

MIB = 1 << 20


def allocate(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def fill(rnd, streams):
    live = []
    for _ in range(rnd.randint(5, 100)):
        with torch.cuda.stream(rnd.choice(streams)):
            size = rnd.choice([rnd.randint(1, MIB), rnd.randint(MIB, 30 * MIB), rnd.randint(30 * MIB, 400 * MIB)])
            try:
                live.append(allocate(size))
            except torch.OutOfMemoryError:
                pass
        while live and rnd.random() < 0.5:
            live.pop(rnd.randrange(len(live)))
    return live
