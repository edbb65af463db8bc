"""A training loop with a model of Transformers that goes on when a batch does not fit.

The batch that training is meant to have goes through the model in as many parts as memory asks for. Losses of language
models are means over the tokens that are not masked, so the parts are weighted by these.

    python examples/microbatch_huggingface.py
    vramwise rehearse --memory 4GiB -- python examples/microbatch_huggingface.py     # without a GPU
"""

# ruff: noqa: D103 (a script to read)

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from vramwise import MicroBatcher

DEVICE = "cuda"


def make_batch(batch_size: int, length: int, vocabulary: int) -> dict[str, torch.Tensor]:
    """Sequences of several lengths, padded; padding is masked in the labels."""
    ids = torch.randint(0, vocabulary, (batch_size, length))
    mask = torch.arange(length) < torch.randint(length // 2, length + 1, (batch_size, 1))
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": ids.masked_fill(~mask, -100)}


def counted_tokens(part: dict[str, torch.Tensor]) -> int:
    """What the mean of the part's loss was taken over: labels behind the first, since the model shifts them."""
    return int((part["labels"][:, 1:] != -100).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=4, n_embd=256, n_head=8, vocab_size=8192, n_positions=args.length, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step_fn(part: dict[str, torch.Tensor]) -> torch.Tensor:
        # The whole batch stays on the host; only the part that is computed goes to the card.
        part = {name: tensor.to(DEVICE) for name, tensor in part.items()}
        with torch.autocast(DEVICE, torch.bfloat16):
            return model(**part).loss

    batcher = MicroBatcher(step_fn, model, optimizer, weight_fn=counted_tokens, max_grad_norm=1.0)
    for step in range(args.steps):
        outcome = batcher.step(make_batch(args.batch, args.length, config.vocab_size))
        print(f"step {step}: {len(outcome.sizes)} parts of at most {outcome.sizes[0]}, {outcome.retries} retries")


if __name__ == "__main__":
    main()
