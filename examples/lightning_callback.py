"""Recording and logging inside of Lightning.

Needs lightning, and a GPU or `vramwise rehearse`.
"""

import lightning.pytorch as pl
import torch

import vramwise
from vramwise.callbacks.lightning import MemoryCallback


class Model(pl.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """The loss of a batch."""
        return self.layers(batch[0]).square().mean()

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        """Runs a batch."""
        self.layers(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Of all layers."""
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    """Fits it, with a validation behind each epoch."""
    data = torch.utils.data.TensorDataset(torch.randn(64, 256))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    recorder = vramwise.record("snapshots")
    callback = MemoryCallback(recorder=recorder, monitor=vramwise.log_memory(print, every=4, label="batch"))
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="gpu",
        devices=1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), loader, loader)
    print(f"{recorder.steps} steps, recorded:", *recorder.files)


if __name__ == "__main__":
    main()
