"""SIGTERM to a process that waits for a program of this package ends the program's children too."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import emulated
from batch_support import environment

WHY_NOT = emulated.why_not()


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Terminated(unittest.TestCase):
    def test_no_child_outlives_a_search_that_was_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder) / "pid"
            program = Path(__file__).resolve().parent / "programs" / "waits_for_prediction.py"
            around = environment(VRAMWISE_BIN=emulated.PROGRAM, VRAMWISE_LIB_DIR=str(emulated.LIBRARIES))
            with subprocess.Popen([sys.executable, str(program), str(told)], env=around, stderr=subprocess.PIPE,
                                  text=True) as parent:
                self.addCleanup(parent.kill)
                pid = self.until(lambda: told.is_file() and told.read_text(), 120)
                self.assertTrue(pid, "the command was never started")
                parent.send_signal(signal.SIGTERM)
                self.assertEqual(parent.wait(60), -signal.SIGTERM, parent.stderr.read())
            ended = self.until(lambda: not is_running(int(pid)), 10)
            if not ended:
                os.kill(int(pid), signal.SIGKILL)
            self.assertTrue(ended, "the command that was tried runs on")

    @staticmethod
    def until(found, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = found()
            if answer:
                return answer
            time.sleep(0.05)
        return None


if __name__ == "__main__":
    unittest.main()
