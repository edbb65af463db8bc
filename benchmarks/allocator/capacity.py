"""The largest batch that trains 50 steps within a limit: PyTorch's allocator, expandable segments, and vramwise's.

    python benchmarks/allocator/capacity.py [--limit 4] [--steps 50] [--only REGEX]

The limit is set_per_process_memory_fraction's, in GiB. Each arm runs in a process of its own, which bisects: a batch counts
if a new model trains all its steps, with lengths that change from step to step. Needs transformers for GPT-2, and a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys

ARMS = ("native", "expandable", "vramwise")


def lstm(torch, batch, steps):
    model = torch.nn.LSTM(512, 1024, 2, batch_first=True).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        x = torch.randn(batch, 50 + step * 37 % 400, 512, device="cuda")
        loss = model(x)[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def gpt2(torch, batch, steps):
    import transformers

    config = transformers.GPT2Config(n_layer=6, n_embd=512, n_head=8, use_cache=False)
    model = transformers.GPT2LMHeadModel(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for step in range(steps):
        ids = torch.randint(0, config.vocab_size, (batch, 64 + step * 29 % 192), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


MODELS = {"lstm": lstm, "gpt2": gpt2}


def trains(torch, model, batch, steps):
    torch.manual_seed(0)
    try:
        model(torch, batch, steps)
        torch.cuda.synchronize()
        return True
    except torch.OutOfMemoryError:
        return False
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def child(name, arm, limit, steps):
    if arm == "vramwise":
        import vramwise

        vramwise.install_allocator(required=True)
    import torch

    torch.cuda.set_per_process_memory_fraction(limit * (1 << 30) / torch.cuda.mem_get_info()[1])
    good, bad = 0, 1
    while trains(torch, MODELS[name], bad, min(steps, 12)):
        good, bad = bad, 2 * bad
    good = 0 if not good else good // 2
    # Near the limit, to within a hundredth.
    while bad - good > max(1, bad // 100):
        middle = (good + bad) // 2
        if trains(torch, MODELS[name], middle, steps):
            good = middle
        else:
            bad = middle
    print("ROW " + json.dumps({"largest": good, "refused": bad}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=4)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--only", default=".")
    parser.add_argument("--child", nargs=2)
    args = parser.parse_args()
    if args.child:
        child(*args.child, args.limit, args.steps)
        return 0
    for name in filter(re.compile(args.only).search, MODELS):
        told = []
        for arm in ARMS:
            environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True" if arm == "expandable" else ""}
            command = [sys.executable, __file__, "--child", name, arm, "--limit", str(args.limit), "--steps", str(args.steps)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            row = next((line for line in done.stdout.splitlines() if line.startswith("ROW ")), None)
            if row is None:
                print(f"{name} {arm}: {done.stderr[-1500:]}", file=sys.stderr)
                return 1
            row = json.loads(row[4:])
            told.append(f"{arm} {row['largest']} (not {row['refused']})")
        print(f"{name}, {args.limit:g} GiB, {args.steps} steps: largest batch {', '.join(told)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
