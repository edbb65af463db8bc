"""The examples about recording, logging and settings, run as they stand with the real PyTorch on the emulated device."""

import importlib.util
import json
import os
import tempfile
import unittest
from pathlib import Path

import emulated

WHY_NOT = emulated.why_not()
HAS_PROGRAM = os.path.exists(emulated.PROGRAM)


def missing(*packages):
    return next((f"{name} is not installed" for name in packages if importlib.util.find_spec(name) is None), None)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Examples(unittest.TestCase):
    def run_example(self, name, **env):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        path = os.pathsep.join([str(Path(emulated.PROGRAM).parent), os.environ["PATH"]])
        done = emulated.run(emulated.REPOSITORY / "examples" / name, cwd=folder.name, env={"PATH": path, **env})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_record_and_explain_oom(self):
        said = self.run_example("record_and_explain_oom.py")
        self.assertRegex(said, r"after \d+ steps: CUDA out of memory")
        self.assertRegex(said, r"recorded: snapshots/oom_rank0_step\d+\.pickle")
        self.assertEqual(len(list(self.folder.glob("snapshots/*.pickle"))), 1)
        if HAS_PROGRAM:
            # What the cause is, the release's own sizes decide.
            self.assertIn("A replay reproduces this recording to the byte", said)
            self.assertRegex(said, r"leak: 64\.00 MiB more after each step, allocated at .*record_and_explain_oom\.py:\d+ train")

    def test_log_memory_loop(self):
        said = self.run_example("log_memory_loop.py")
        rows = [json.loads(line) for line in (self.folder / "memory.jsonl").read_text().splitlines()]
        self.assertEqual([row["step"] for row in rows], [1, 3, 5, 7, 9])
        self.assertIn("vramwise_torch_reserved_bytes{", (self.folder / "memory.prom").read_text())
        epochs = [line for line in said.splitlines() if line.startswith("epoch")]
        peaks = [float(line.split("(peak ")[1].split(" MiB")[0]) for line in epochs]
        self.assertGreater(peaks[1], peaks[2], "peaks are those of each epoch")
        self.assertIn("one block of 1 GiB: would fit", said)

    def test_schedule_settings(self):
        said = self.run_example("schedule_settings.py")
        self.assertIn("under 'expandable_segments:True'", said)
        self.assertIn("step 2: ''\nstep 3: 'roundup_power2_divisions:8'", said)
        self.assertIn("back to: ''", said)

    @unittest.skipIf(missing("transformers", "accelerate"), missing("transformers", "accelerate"))
    def test_trainer_callback(self):
        said = self.run_example("trainer_callback.py", HF_HUB_OFFLINE="1")
        self.assertIn("4 steps, recorded:", said)
        rows = [json.loads(line) for line in (self.folder / "memory.jsonl").read_text().splitlines()]
        self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4])

    @unittest.skipIf(missing("lightning"), missing("lightning"))
    def test_lightning_callback(self):
        said = self.run_example("lightning_callback.py")
        self.assertIn("8 steps, recorded: snapshots/end_rank0_step8.pickle", said)
        self.assertEqual(said.count("\nbatch "), said.count("batch ") - 1)

    @unittest.skipUnless(HAS_PROGRAM, "VRAMWISE_BIN does not name the program")
    def test_under_vramwise_rehearse_the_recorder_joins_its_recording(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = ("import torch, vramwise\n"
                   "with vramwise.record('snapshots') as recorder:\n"
                   "    torch.empty(1000, device='cuda'); recorder.step()\n"
                   "print(*recorder.notes)\n")
        Path(folder.name, "program.py").write_text(program)
        import subprocess
        import sys

        env = {**os.environ, "PYTHONPATH": str(emulated.PACKAGE), "TMPDIR": folder.name}
        done = subprocess.run([emulated.PROGRAM, "rehearse", "--values", "off", "--", sys.executable, "program.py"],
                              cwd=folder.name, env=env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the history was already on", done.stdout)
        self.assertTrue(Path(folder.name, "snapshots/end_rank0_step1.pickle").is_file())


if __name__ == "__main__":
    unittest.main()
