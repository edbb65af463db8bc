"""A program that runs out of memory leaves a recording of how it came to that, and vramwise says why.

The list of losses keeps the graph of each step alive: a common fault. Needs a GPU, or `vramwise rehearse`.
"""

import shutil
import subprocess

import torch

import vramwise


def train(recorder: vramwise.Recorder) -> None:
    """A training with a fault."""
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(1000):
        loss = model(torch.randn(2048, 2048, device="cuda")).square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)  # what is wanted here is loss.item()
        recorder.step()


def main() -> None:
    """Runs out of memory and asks why."""
    # So that it ends soon on a large card.
    gib = torch.cuda.get_device_properties(0).total_memory / (1 << 30)
    torch.cuda.set_per_process_memory_fraction(min(1.0, 2.0 / gib))

    recorder = vramwise.record("snapshots", at_end=False)
    try:
        with recorder:
            train(recorder)
    except torch.OutOfMemoryError as error:
        print(f"after {recorder.steps} steps: {str(error).splitlines()[0][:80]}")

    for file in recorder.files:
        print("recorded:", file)
        if shutil.which("vramwise"):
            # The same in a shell: vramwise explain snapshots/oom_rank0_step*.pickle
            subprocess.run(["vramwise", "explain", file], check=False)
            subprocess.run(["vramwise", "leaks", file, "--marker", "vramwise.step"], check=False)


if __name__ == "__main__":
    main()
