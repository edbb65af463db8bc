"""The pytest plugin, in pytest runs of their own: limits, report, and the emulated GPU."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from batch_support import HAS_PYTEST, PROGRAM, environment, needs_emulated_device, run_python

# A torch whose counters the tests set themselves.
FAKE_TORCH = """
class _Cuda:
    def __init__(self):
        self.allocated, self.reserved, self.emptied = [0, 0], [0, 0], 0
    def is_available(self):
        return True
    is_initialized = is_available
    def device_count(self):
        return 2
    def empty_cache(self):
        self.emptied += 1
    def reset_peak_memory_stats(self, device):
        self.allocated[device] = self.reserved[device] = 0
    def max_memory_allocated(self, device):
        return self.allocated[device]
    def max_memory_reserved(self, device):
        return self.reserved[device]

cuda = _Cuda()
"""

TESTS = """
import pytest, torch
MIB = 1 << 20

def use(device, allocated, reserved):
    torch.cuda.allocated[device] = max(allocated * MIB, torch.cuda.allocated[device])
    torch.cuda.reserved[device] = max(reserved * MIB, torch.cuda.reserved[device])

@pytest.fixture
def model():
    use(0, 900, 900)

def test_without_a_mark():
    use(0, 5000, 6000)

@pytest.mark.max_gpu_memory("2GiB")
def test_within():
    use(0, 100, 2048)

@pytest.mark.max_gpu_memory("2GiB")
def test_beyond_on_the_second_device():
    use(1, 100, 2049)

@pytest.mark.max_gpu_memory(200 * MIB, counter="allocated")
def test_counter():
    use(0, 200, 6000)

@pytest.mark.max_gpu_memory("800MiB")
def test_fixtures_count(model):
    pass

@pytest.mark.max_gpu_memory("1MiB")
def test_own_failure_stays():
    use(0, 10, 10)
    assert "one" == "two"

@pytest.mark.max_gpu_memory("1MiB")
@pytest.mark.xfail(strict=True)
def test_expected_to_be_beyond():
    use(0, 10, 10)
"""


@unittest.skipUnless(HAS_PYTEST, "pytest is not installed")
class InPytest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def pytest(self, *words, **more):
        line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "vramwise.pytest_plugin", *words]
        env = environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTHONDONTWRITEBYTECODE="1", **more)
        env["PYTHONPATH"] = f"{self.folder}{os.pathsep}{env['PYTHONPATH']}"
        env.pop("PYTEST_ADDOPTS", None)
        return subprocess.run(
            line, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300, env={**env, **more}
        )

    def outcomes(self, *words):
        done = self.pytest("--vramwise-report", "out/peaks.json", *words)
        report = json.loads((self.folder / "out" / "peaks.json").read_text())
        self.assertEqual(report["schema"], 1)
        return done, {test["test"].split("::")[1]: test for test in report["tests"]}

    def check(self, *words):
        self.write("torch.py", FAKE_TORCH)
        self.write("test_it.py", TESTS)
        done, tests = self.outcomes(*words)
        self.assertEqual(done.returncode, 1, done.stdout)
        wanted = {
            "test_without_a_mark": "passed",
            "test_within": "passed",
            "test_beyond_on_the_second_device": "failed",
            "test_counter": "passed",
            "test_fixtures_count": "failed",
            "test_own_failure_stays": "failed",
            "test_expected_to_be_beyond": "skipped",
        }
        self.assertEqual({name: test["outcome"] for name, test in tests.items()}, wanted)
        said = "2.00 GiB (2,148,532,224 bytes) on device 1, 1.00 MiB more than the limit of 2.00 GiB"
        self.assertIn("the peak of reserved GPU memory is " + said, done.stdout)
        self.assertIn("assert 'one' == 'two'", done.stdout)
        self.assertIn("device 0: 10.00 MiB allocated, 10.00 MiB reserved", done.stdout)
        self.assertIn("7 tests used a GPU", done.stdout)
        peak = {"device": 0, "allocated_bytes": 5000 << 20, "reserved_bytes": 6000 << 20}
        self.assertEqual(tests["test_without_a_mark"]["devices"], [peak])

    def test_limits_and_report(self):
        self.check()

    def test_limits_and_report_with_several_workers(self):
        try:
            import xdist  # noqa: F401
        except ImportError:
            self.skipTest("pytest-xdist is not installed")
        self.check("-p", "xdist", "-n", "2")

    def test_the_cache_is_emptied_before_each_test_that_is_measured_and_no_other(self):
        self.write("torch.py", FAKE_TORCH)
        self.write(
            "test_it.py",
            "import pytest, torch\n"
            "def test_a(): print('emptied', torch.cuda.emptied)\n"
            "@pytest.mark.max_gpu_memory('1GiB')\ndef test_b(): print('emptied', torch.cuda.emptied)\n"
            "def test_c(): print('emptied', torch.cuda.emptied)\n",
        )
        for words, emptied in (([], ["0", "1", "1"]), (["--vramwise-report", "peaks.json"], ["1", "2", "3"])):
            done = self.pytest("-rP", *words)
            self.assertEqual(done.returncode, 0, done.stdout)
            said = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("emptied")]
            self.assertEqual(said, emptied, words)

    def test_without_torch_marked_tests_are_skipped_with_the_reason(self):
        self.write("conftest.py", "import sys\nsys.modules['torch'] = None\n")
        self.write(
            "test_it.py",
            "import pytest\n@pytest.mark.max_gpu_memory('1GiB')\ndef test_a(): 1 / 0\ndef test_b(): pass\n",
        )
        done, tests = self.outcomes("-rs")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual((tests["test_a"]["outcome"], tests["test_b"]["outcome"]), ("skipped", "passed"))
        self.assertIn("max_gpu_memory: torch is not installed", done.stdout)

    def test_a_mark_that_is_wrong_is_an_error(self):
        self.write("torch.py", FAKE_TORCH)
        for mark in ("()", "('much')", "('1GiB', counter='active')", "('1GiB', 3)", "(-1)"):
            self.write("test_it.py", f"import pytest\n@pytest.mark.max_gpu_memory{mark}\ndef test_a(): pass\n")
            done = self.pytest()
            self.assertEqual(done.returncode, 1, mark)
            self.assertIn("write @pytest.mark.max_gpu_memory('2GiB')", done.stdout, mark)

    def test_a_report_that_cannot_be_written_is_told(self):
        self.write("test_it.py", "def test_a(): pass\n")
        self.write("way", "a file where a folder should be")
        done = self.pytest("--vramwise-report", "way/peaks.json")
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertIn("way/peaks.json cannot be written", done.stdout)

    def test_nothing_is_imported_where_nothing_is_used(self):
        self.write("test_it.py", "import sys\ndef test_a(): assert 'torch' not in sys.modules\n")
        done = self.pytest("--strict-markers", "-W", "error")
        self.assertEqual(done.returncode, 0, done.stdout)
        done = run_python("-c", "import sys; sys.modules['pytest'] = None; import vramwise.pytest_plugin")
        self.assertEqual(done.returncode, 0, done.stderr)

    def program(self, text):
        self.write("vramwise", f"#!{sys.executable}\nimport os, subprocess, sys\n{text}")
        (self.folder / "vramwise").chmod(0o755)
        return {"VRAMWISE_BIN": str(self.folder / "vramwise")}

    def test_rehearsing_runs_the_tests_once_and_passes_the_status_on(self):
        # In place of the emulated GPU: says how it was called, and ends with a status of its own.
        fake = self.program(
            "at = sys.argv.index('--')\n"
            "open('called', 'a').write(' '.join(sys.argv[1:at]) + '\\n')\n"
            "subprocess.run(sys.argv[at + 1:])\nsys.exit(1)\n"
        )
        tests = "def test_a(): open('ran', 'a').write('x')\ndef test_b(): assert {}\n"
        for option, options in (
            (["--vramwise-rehearse=a100:24GiB", "tests"], "--gpu a100 --memory 24GiB"),
            (["tests", "--vramwise-rehearse"], ""),
            (["--vramwise-rehearse", "tests"], ""),
            (["--vramwise-rehearse=2GiB", "tests"], "--memory 2GiB"),
        ):
            for verdict, status in (("True", 0), ("False", 1)):
                self.write("tests/test_it.py", tests.format(verdict))
                for name in ("ran", "called"):
                    (self.folder / name).unlink(missing_ok=True)
                done = self.pytest(*option, **fake)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                self.assertEqual((self.folder / "ran").read_text(), "x")
                called = (self.folder / "called").read_text().strip()
                self.assertEqual(called, f"rehearse --values one {options}".strip())
        done = self.pytest("--vramwise-rehearse", "-k", "nothing_of_this_name", **fake)
        self.assertEqual(done.returncode, 5, "no tests were collected")

    def test_a_report_that_cannot_be_written_is_the_status_of_a_rehearsal_too(self):
        fake = self.program("at = sys.argv.index('--')\nsubprocess.run(sys.argv[at + 1:])\n")
        self.write("test_it.py", "def test_a(): pass\n")
        self.write("way", "a file where a folder should be")
        done = self.pytest("--vramwise-rehearse=2GiB", "--vramwise-report=way/peaks.json", **fake)
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertIn("way/peaks.json cannot be written", done.stdout)
        # Whatever changes it at the end, the status is passed on.
        self.write("conftest.py", "def pytest_sessionfinish(session): session.exitstatus = 77\n")
        done = self.pytest("--vramwise-rehearse=2GiB", **fake)
        self.assertEqual(done.returncode, 77, done.stdout)

    def test_the_option_may_stand_in_a_file_of_settings(self):
        fake = self.program("at = sys.argv.index('--')\nprint(sys.argv[1:at])\nsubprocess.run(sys.argv[at + 1:])\n")
        self.write("pytest.ini", "[pytest]\naddopts = --vramwise-rehearse=t4\n")
        self.write("test_it.py", "def test_a(): pass\n")
        done = self.pytest(**fake)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("1 passed"), 1)
        self.assertIn("'--gpu', 't4'", done.stdout)

    def test_a_rehearsal_that_cannot_begin_is_told(self):
        self.write("test_it.py", "def test_a(): pass\n")
        done = self.pytest("--vramwise-rehearse", VRAMWISE_BIN=str(self.folder / "nowhere"))
        self.assertEqual((done.returncode, "was not found" in done.stderr), (4, True))
        done = self.pytest("--vramwise-rehearse", **self.program("sys.exit(2)\n"))
        self.assertEqual((done.returncode, "before pytest did" in done.stderr), (4, True))

    @needs_emulated_device
    def test_on_the_emulated_gpu(self):
        self.write(
            "test_it.py",
            "import pytest, torch\n"
            "@pytest.mark.max_gpu_memory('40MiB')\n"
            "def test_within():\n    torch.zeros(4 << 20, device='cuda')\n"
            "@pytest.mark.max_gpu_memory('40MiB')\n"
            "def test_beyond():\n    torch.zeros(16 << 20, device='cuda')\n"
            "def test_out_of_memory():\n"
            "    with pytest.raises(torch.OutOfMemoryError):\n        torch.zeros(1 << 30, device='cuda')\n",
        )
        done, tests = self.outcomes("--vramwise-rehearse=2GiB")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("1 failed, 2 passed", done.stdout)
        self.assertEqual(tests["test_within"]["devices"][0]["allocated_bytes"], 16 << 20)
        self.assertEqual(tests["test_beyond"]["outcome"], "failed")
        self.assertTrue(PROGRAM)


if __name__ == "__main__":
    unittest.main()
