"""`benchmarks/rehearsal/recorded.py`: recorded runs are held against rehearsals, once each, and misses are told with their labels.

The program `vramwise` is a stand-in that writes the files of a rehearsal.
"""

import gzip
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DRIVER = Path(__file__).resolve().parents[2] / "benchmarks" / "rehearsal" / "recorded.py"

STAND_IN = """#!{python}
import json, pathlib, sys
given = sys.argv[1:]
kept = pathlib.Path(given[given.index("-o") + 1])
program, setting = given[given.index("--") + 2 :][:2]
with open({log!r}, "a") as file:
    file.write(program + " " + setting + chr(10))
if program == "broken":
    sys.exit("no such program")
kept.mkdir()
more = 4096 if program == "random" else 0
stats = {{"allocated_bytes.all.peak": 1000 + more, "reserved_bytes.all.peak": 2000, "num_ooms": 1}}
(kept / "torch.7.json").write_text(json.dumps({{"devices": [stats]}}))
said = ["12 values that the program read follow from indices"] if more else []
report = {{"torch": "2.11.0", "exact": not more, "uncertain": said, "notes": [], "values": None, "exit_status": 0,
           "peak_allocated_bytes_range": [1000 + more] * 2, "peak_reserved_bytes_range": [2000, 2000],
           "convolutions": {{"unmeasured": 0}}, "draws": None}}
if more:
    report["draws"] = {{"peak_allocated_bytes_range": [900, 6000], "peak_reserved_bytes_range": [2000, 2000]}}
(kept / "report.json").write_text(json.dumps(report))
"""


class RecordedRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.room = Path(folder.name)
        self.log, self.results = self.room / "log", self.room / "results.jsonl"
        program = self.room / "vramwise"
        program.write_text(STAND_IN.format(python=sys.executable, log=str(self.log)))
        program.chmod(0o755)
        (self.room / "runs").mkdir()

    def record(self, *names):
        final = {"allocated_bytes.all.peak": 1000, "reserved_bytes.all.peak": 2000, "num_ooms": 1}
        for name in names:
            with gzip.open(self.room / "runs" / f"{name}.stats.json.gz", "wt") as file:
                json.dump({"conf": "", "torch": "2.11.0", "final": final}, file)

    def run_driver(self, *options):
        line = [sys.executable, DRIVER, self.room / "runs", "--results", self.results, "--vramwise", self.room / "vramwise"]
        done = subprocess.run([*map(str, [*line, *options]), "--", "python", "{program}", "{setting}", "{out}"],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def lines(self):
        return [json.loads(line) for line in self.results.read_text().splitlines()]

    def test_each_run_is_rehearsed_once_and_misses_are_told_with_their_labels(self):
        self.record("plain__split32", "plain__default", "random__default__stacks", "broken__default")
        said = self.run_driver()
        self.assertEqual(self.log.read_text().split("\n")[:-1],
                         ["broken default", "plain default", "random default", "plain split32"])
        lines = {line["run"]: line for line in self.lines()}
        self.assertEqual(lines["plain__split32"]["recorded"], lines["plain__split32"]["rehearsed"])
        self.assertIn("no such program", lines["broken__default"]["failed"])
        self.assertIn("peak allocated: exact in 2 of 3", said)
        self.assertIn("peak reserved: exact in 3 of 3", said)
        self.assertRegex(said, r"random__default__stacks +allocated +\+4,096 .*within the range over draws; .*labelled values")
        self.assertIn("labelled exact and not exact: none", said)
        self.assertIn("failed: 1", said)

        self.record("other__default")
        self.run_driver()
        self.assertEqual(self.log.read_text().count("\n"), 5, "what has a line is not run again")
        self.run_driver("--only", "^plain", "--summary")
        self.assertEqual(self.log.read_text().count("\n"), 5)


if __name__ == "__main__":
    unittest.main()
