"""The allocator's engine over the emulated driver, without PyTorch: random operations from several threads, every rule checked."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = os.environ.get("VRAMWISE_LIB_DIR")
EMULATOR, ENGINE = "libvramwise_emulator.so", "libvramwise_allocator.so"


def missing():
    if not sys.platform.startswith("linux"):
        return "the emulated device is for Linux"
    if not LIBRARIES or not all((Path(LIBRARIES) / name).is_file() for name in (EMULATOR, ENGINE)):
        return "VRAMWISE_LIB_DIR does not name the folder with the emulated device and the engine"
    return None


@unittest.skipIf(missing(), missing())
class EngineTest(unittest.TestCase):
    def test_random_operations_keep_every_rule(self):
        operations = os.environ.get("VRAMWISE_ENGINE_OPERATIONS", "6000")
        program = Path(__file__).with_name("programs_engine.py")
        with tempfile.TemporaryDirectory() as folder:
            driver = Path(folder) / "libcuda.so.1"
            driver.symlink_to(Path(LIBRARIES).resolve() / EMULATOR)
            profile = json.loads((ROOT / "crates/profile/profiles/h200.json").read_text())
            config = {"schema": 1, "profile": profile, "memory_bytes": 2 << 30, "context_bytes": 300 << 20, "devices": 2}
            config.update({"cuda": "13.0", "seed": 0, "values": {"mode": "off", "file": None}})
            (Path(folder) / "emulator.json").write_text(json.dumps(config))
            done = subprocess.run(
                [sys.executable, str(program), str(Path(LIBRARIES).resolve() / ENGINE), operations],
                env={**os.environ, "LD_PRELOAD": str(driver), "VRAMWISE_REHEARSAL": folder},
                capture_output=True,
                text=True,
                timeout=300,
            )
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "sound"), done.stderr[-2000:])


if __name__ == "__main__":
    unittest.main()
