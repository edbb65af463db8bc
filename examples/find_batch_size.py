"""Finds the largest batch that trains on this card, with backward passes and optimizer steps, and trains with it.

python examples/find_batch_size.py
vramwise rehearse --memory 8GiB -- python examples/find_batch_size.py     # without a GPU
"""

# ruff: noqa: D102, D103 (a script to read)

import argparse

import torch
from torch import nn

from vramwise.batch_size import TrainingTrial, search_batch_size

DEVICE = "cuda"


class Classifier(nn.Module):
    """A small transformer for sequences of vectors."""

    def __init__(self, width: int, layers: int, classes: int = 10) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, nhead=8, dim_feedforward=4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(dim=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=512, help="of a sequence; take the longest that occurs")
    parser.add_argument("--max", type=int, default=4096, help="the largest batch that would be of use")
    args = parser.parse_args()

    model = Classifier(args.width, args.layers).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(batch_size, args.length, args.width, device=DEVICE)
        return x, torch.randint(0, 10, (batch_size,), device=DEVICE)

    def loss_fn(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x, y = batch
        return nn.functional.cross_entropy(model(x), y)

    # Three steps an attempt; weights, optimizer and random numbers are afterwards as they were before.
    trial = TrainingTrial(model, optimizer, make_batch, loss_fn, steps=3)
    found = search_batch_size(trial, mode="binsearch", max_val=args.max, margin=0.05)
    print(f"batch size {found.batch_size} fits, {found.too_large} does not; tried {list(found.tried)}")

    for step in range(5):
        loss = loss_fn(model, make_batch(found.batch_size))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: {torch.cuda.max_memory_reserved() >> 20} MiB reserved at the peak")


if __name__ == "__main__":
    main()
