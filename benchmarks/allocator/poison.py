"""Whether memory ever serves two tensors at a time, on a real GPU: random sizes, streams and frees, contents checked.

    python benchmarks/allocator/poison.py [--operations 1000000] [--seconds 120] [--arm vramwise|native]

Each tensor is filled with a number of its own on its stream and compared with it before it is freed; a part is used on
other streams as well, with ``record_stream``. Sizes change all the time, so that pages are recycled all the time. Long
kernels keep the streams busy behind the host. Prints one line of JSON; exit status 1 if a tensor was overwritten.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--arm", choices=("vramwise", "native"), default="vramwise")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--live", type=int, default=6 << 30, help="bytes that may be in use at one time")
    args = parser.parse_args()
    if args.arm == "vramwise":
        import vramwise

        vramwise.install_allocator(required=True)
    import torch

    rng = random.Random(args.seed)
    streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(3))]
    wrong = torch.zeros(len(streams), dtype=torch.int64, device="cuda")
    slow = torch.ones(1024, 1024, device="cuda")
    torch.cuda.synchronize()
    live: list[tuple[torch.Tensor, int, int]] = []
    in_use, tag, done, peak_held, peak_live = 0, 0, 0, 0, 0
    ends = time.monotonic() + args.seconds

    def check(tensor: torch.Tensor, value: int, on: int) -> None:
        wrong[on] += (tensor != value).sum()

    while done < args.operations and time.monotonic() < ends:
        done += 1
        if in_use < args.live and (not live or rng.random() < 0.53):
            kind = rng.random()
            top = 18 if kind < 0.5 else 24 if kind < 0.95 else 28
            size = int(2 ** rng.uniform(9, top)) // 4
            on, tag = rng.randrange(len(streams)), (tag + 1) % (1 << 30)
            with torch.cuda.stream(streams[on]):
                if rng.random() < 0.02:
                    slow @ slow
                tensor = torch.full((size,), tag, dtype=torch.int32, device="cuda")
            live.append((tensor, tag, on))
            in_use += size * 4
            peak_live = max(peak_live, in_use)
        else:
            at = rng.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            tensor, value, on = live.pop()
            if rng.random() < 0.2:
                other = rng.randrange(len(streams))
                streams[other].wait_stream(streams[on])
                with torch.cuda.stream(streams[other]):
                    check(tensor, value, other)
                tensor.record_stream(streams[other])
            with torch.cuda.stream(streams[on]):
                check(tensor, value, on)
            in_use -= tensor.numel() * 4
            del tensor
        if done % 4096 == 0:
            peak_held = max(peak_held, torch.cuda.memory_reserved())
            if rng.random() < 0.02:
                torch.cuda.empty_cache()
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    found = int(wrong.sum())
    print(
        json.dumps(
            {
                "arm": args.arm,
                "operations": done,
                "wrong_elements": found,
                "peak_reserved": stats["reserved_bytes.all.peak"],
                "peak_requested": stats["requested_bytes.all.peak"],
                "device_calls": stats["num_device_alloc"] + stats["num_device_free"],
            }
        )
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
