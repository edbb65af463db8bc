"""A loop that says what memory is in use: on the screen, in a file of JSON lines, and for Prometheus.

Needs a GPU, or `vramwise rehearse`.
"""

import torch

import vramwise
from vramwise.callbacks.loop import steps


def main() -> None:
    """Steps, then epochs, then what is left."""
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batches = [torch.randn(512, 1024) for _ in range(10)]

    # Every second step, to three places.
    monitor = vramwise.log_memory([print, "memory.jsonl", "memory.prom"], every=2)
    for batch in steps(batches, monitor=monitor):
        model(batch.cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    # Epochs, each with its own peak.
    @vramwise.log_memory(print, label="epoch", reset_peaks=True)
    def evaluate(size: int) -> None:
        with torch.no_grad():
            model(torch.randn(size, 1024, device="cuda"))

    for size in (256, 8192, 256):
        evaluate(size)

    room = vramwise.headroom()
    print(room)
    print("one block of 1 GiB:", "would fit" if room.fits(1 << 30) else "would not fit")


if __name__ == "__main__":
    main()
