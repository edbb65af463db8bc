"""What a program's memory comes to under each allocator: held at its peak, and that over what was asked for.

    python benchmarks/allocator/held.py [--json] -- train.py --batch 32

Runs the script three times, each in a process of its own: under PyTorch's default settings, with expandable segments, and
under vramwise's allocator. `held` is `reserved_bytes.all.peak`, `asked` is `requested_bytes.all.peak` of the default's run, in
bytes of the device that held the most; R is one over the other, 1 the limit, the first iteration included. Needs a GPU, or
`vramwise rehearse -- python benchmarks/allocator/held.py …`. Exit status 1 if a run failed.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

ARMS = {"default": "", "expandable": "expandable_segments:True", "vramwise": ""}


def child(arm: str, result: str, script: list[str]) -> None:
    """Runs the script in this process; at its end the peaks go to a file."""
    if arm == "vramwise":
        import vramwise

        vramwise.install_allocator(required=True)
    import torch

    def write() -> None:
        if torch.cuda.is_initialized():
            stats = [torch.cuda.memory_stats(n) for n in range(torch.cuda.device_count())]
            peaks = [{"held": s["reserved_bytes.all.peak"], "asked": s["requested_bytes.all.peak"]} for s in stats if s]
            Path(result).write_text(json.dumps(max(peaks, key=lambda peak: peak["held"])))

    atexit.register(write)
    sys.argv = script
    sys.path.insert(0, str(Path(script[0]).resolve().parent))
    runpy.run_path(script[0], run_name="__main__")


def run(arm: str, script: list[str]) -> dict[str, int] | None:
    """One arm; None where the script failed."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "peaks.json"
        around = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": ARMS[arm]}
        for name in ("PYTORCH_ALLOC_CONF", "VRAMWISE_ALLOCATOR"):
            around.pop(name, None)
        command = [sys.executable, __file__, "--child", arm, "--result", str(result), "--", *script]
        done = subprocess.run(command, env=around, stdout=sys.stderr, check=False)
        if done.returncode != 0 or not result.exists():
            return None
        return json.loads(result.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("script", nargs="+", help="behind --: the script and its arguments")
    args = parser.parse_args()
    if args.child:
        child(args.child, args.result, args.script)
        return 0
    rows = {arm: run(arm, args.script) for arm in ARMS}
    asked = rows["default"]["asked"] if rows["default"] else 0
    for row in filter(None, rows.values()):
        row["ratio"] = round(row["held"] / asked, 4) if asked else None
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        for arm, row in rows.items():
            said = f"{row['held'] / 2**20:10,.0f} MiB  R {row['ratio']}" if row else "failed"
            print(f"{arm:11} {said}")
        print(f"asked for   {asked / 2**20:10,.0f} MiB")
    return 0 if all(rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
