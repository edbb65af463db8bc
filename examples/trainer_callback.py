"""Recording and logging inside of the Trainer of Hugging Face's transformers.

Needs transformers with accelerate, and a GPU or `vramwise rehearse`.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import vramwise
from vramwise.callbacks.transformers import MemoryCallback


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    """Rows of tokens."""
    tokens = torch.randint(0, 1000, (count, 64))
    return [{"input_ids": row, "labels": row} for row in tokens]


def main() -> None:
    """Trains a small GPT-2 on noise."""
    # Before the model is moved to the device, so that the history has it too.
    recorder = vramwise.start_recording("snapshots", every=2, keep=1)
    callback = MemoryCallback(
        recorder=recorder,
        monitor=vramwise.log_memory([print, "memory.jsonl"]),
        schedule=vramwise.SettingsSchedule({"train": "", "eval": "expandable_segments:True"}),
    )
    model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_positions=64, n_embd=128, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        output_dir="trainer",
        max_steps=4,
        per_device_train_batch_size=4,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=batches(16), eval_dataset=batches(8), callbacks=[callback]
    )
    trainer.train()
    recorder.stop()
    print(f"{recorder.steps} steps, recorded:", *recorder.files)


if __name__ == "__main__":
    main()
