"""Which allocator settings would have been best for a program that was recorded, and how is that known?

Needs neither torch nor a GPU. Give it a snapshot of your own, from `vramwise.record` or from
`torch.cuda.memory._dump_snapshot()`; without one it takes the recording of an LSTM whose sequences change in length.

    python examples/tune_settings.py [SNAPSHOT] [CAPACITY]
"""

import sys
from pathlib import Path

import vramwise

RECORDED = Path(__file__).parents[1] / "testdata" / "snapshots" / "lstm_varlen__default.snapshot.pickle.gz"


def gib(size: int) -> str:
    """Bytes for people."""
    return f"{size / (1 << 30):.2f} GiB"


def main(file: str | Path = RECORDED, capacity: str | None = None) -> None:
    """Tunes, and proves the answer by a replay."""
    snapshot = vramwise.read(file)
    report = snapshot.tune(capacity=capacity)
    best = report.recommended
    before = report.baseline
    print(f"recorded:     {gib(before.peak_reserved_bytes)} reserved under {before.conf or 'no settings'}")
    print(f"recommended:  {gib(best.peak_reserved_bytes)} reserved: {best.env or 'as it is'}")
    print(f"no less than: {gib(report.limit.peak_live_bytes)}, which the program's tensors take")

    # The recommendation is a replay of this history; here is the same one by itself.
    replayed = snapshot.replay(conf=best.conf, capacity=capacity)
    print(f"replayed:     {gib(replayed.stats['reserved_bytes.all.peak'])}, out of memory: {len(replayed.oom)} times")

    print("the first three of", len(report.candidates), "that were tried")
    for candidate in report.candidates[:3]:
        driver = f"{candidate.device_call_ms:8.1f} ms in the driver"
        print(f"  {gib(candidate.peak_reserved_bytes)}  {driver}  {candidate.conf}")


if __name__ == "__main__":
    main(*sys.argv[1:])
