"""Other allocator settings for training than for evaluation, and others again from some step on.

Sequences of changing length are what expandable segments are good at; the training's batches are all alike. What
is best for a program, `vramwise tune` finds out from a recording; `SettingsSchedule.from_tune` reads its reports.
Under vramwise's own allocator, which these settings are not for, a schedule warns and changes nothing.
Needs a GPU, or `vramwise rehearse`.
"""

import torch

import vramwise


def main() -> None:
    """Two schedules: by phase and by step."""
    model = torch.nn.Linear(1024, 1024).cuda()
    schedule = vramwise.SettingsSchedule(
        {
            "train": "max_split_size_mb:256",
            "eval": "expandable_segments:True",
        }
    )
    with schedule:
        for epoch in range(2):
            with schedule.phase("train"):
                for _ in range(3):
                    model(torch.randn(4096, 1024, device="cuda")).sum().backward()
            with schedule.phase("eval"), torch.no_grad():
                for length in (1000, 3000, 2000):
                    model(torch.randn(length * (epoch + 1), 1024, device="cuda"))
                print(f"epoch {epoch}: {torch.cuda.memory_reserved() >> 20} MiB reserved, under {schedule.current!r}")

    by_step = vramwise.SettingsSchedule({0: "", 3: "roundup_power2_divisions:8"}, release_cache=True)
    with by_step:
        for step in range(5):
            torch.empty(100_000_000 + step, device="cuda")
            print(f"step {step}: {by_step.current!r}")
            by_step.step()
    print("back to:", repr(by_step.current))


if __name__ == "__main__":
    main()
