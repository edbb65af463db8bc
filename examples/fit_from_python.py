"""Asks, from Python and without a GPU, how large a batch of this very script fits on several cards.

python examples/fit_from_python.py                       # prints a table
python examples/fit_from_python.py --train --batch 64    # what is tried: needs a card, or is rehearsed on one
"""

# ruff: noqa: D103 (a script to read)

import argparse
import sys

from vramwise.batch_size import Prediction, predict_batch_size
from vramwise.errors import NoBatchFitsError


def train(batch_size: int) -> None:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(1024, 8192), nn.GELU(), nn.Linear(8192, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        x = torch.randn(batch_size * 256, 1024, device="cuda")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--cards", default="t4,rtx4090", help="names of `vramwise devices`")
    parser.add_argument("--memory", help="another size of memory, such as 2GiB")
    parser.add_argument("--max", type=int, default=1024)
    args = parser.parse_args()
    if args.train:
        train(args.batch)
        return
    command = [sys.executable, __file__, "--train", "--batch", "{batch}"]
    for card in args.cards.split(","):
        prediction = Prediction(command, gpu=card, memory=args.memory, steps=3)
        try:
            print(f"{card}: batch size {predict_batch_size(prediction, highest=args.max)}")
        except NoBatchFitsError:
            print(f"{card}: does not fit")


if __name__ == "__main__":
    main()
