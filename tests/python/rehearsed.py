"""A test case that runs programs with the real PyTorch under `vramwise rehearse`."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import emulated


class Rehearsed(unittest.TestCase):
    """Each test has a folder, `room`, of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.room = Path(folder.name)

    def rehearse(self, *options, program, arguments=(), status=0, **environment):
        """The report and what the program printed."""
        (self.room / "program.py").write_text(program)
        around = {**os.environ, "TMPDIR": str(self.room), "VRAMWISE_LIB_DIR": str(emulated.LIBRARIES)}
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "RANK", "WORLD_SIZE"):
            around.pop(name, None)
        around.update(environment)
        command = [emulated.PROGRAM, "rehearse", "--emulate-anyway", "--json", *options, "--"]
        done = subprocess.run([*command, sys.executable, "program.py", *arguments], cwd=self.room, env=around,
                              timeout=300, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout), done.stderr
