"""`vramwise rehearse` and `probe` with the real PyTorch on the emulated device: what its reports say of real programs."""

import gzip
import json
import os
import subprocess
import sys
import unittest

import emulated
from rehearsed import Rehearsed

MOE = """
import torch

class Experts(torch.nn.Module):
    def __init__(self, width=64, experts=4):
        super().__init__()
        self.gate = torch.nn.Linear(width, experts)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).topk(1, -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, slot = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(0, token, expert(x[token]).repeat(1, 8).view(-1, 8, 64).sum(1) * weight[token, slot, None])
        return x + out

model = Experts().cuda()
for _ in range(2):
    model(torch.randn(40000, 64, device="cuda")).square().mean().backward()
"""

FORKS = """
import os, sys
import torch

x = torch.ones(1 << 20, device="cuda")
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
"""

PROCESSES = """
import sys, time
import torch, torch.multiprocessing as mp

def child(number):
    time.sleep(0 if "slow" not in sys.argv else 0.4 * (2 - number))
    x = torch.arange(10 + number, device="cuda")
    print("child", number, (x % 2 == number % 2).nonzero().shape[0], int(x.sum().item()), flush=True)

if __name__ == "__main__":
    print("parent", int(torch.arange(100, device="cuda").sum().item()), flush=True)
    children = [mp.get_context("spawn").Process(target=child, args=(n,)) for n in range(2)]
    for one in children:
        one.start()
    for one in children:
        one.join()
"""

# One after the other, and the last asks for too much.
CROWDED = """
import subprocess, sys
for size in (300, 1, 600):
    code = f"import torch; x = torch.empty({size} << 20, dtype=torch.uint8, device='cuda')"
    print(size, subprocess.run([sys.executable, "-c", code], capture_output=True).returncode)
"""

# A group of processes is asked to end as a whole: the program by its group, and by what started it.
ASKED_TWICE = """
import os, signal, threading, time, torch
x = torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
small = [torch.empty(600, dtype=torch.uint8, device="cuda") for _ in range(20000)]
if os.environ["VRAMWISE_REHEARSAL"] and '"pass": "2"' in open(os.path.join(os.environ["VRAMWISE_REHEARSAL"], "emulator.json")).read():
    outside = os.getppid()
    if os.fork() == 0:
        os.kill(outside, signal.NUMBER)
        for _ in range(60):
            os.kill(os.getppid(), signal.NUMBER)
            time.sleep(0.05)
        os._exit(0)
    time.sleep(30)
"""

VISIBLE = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "2"
import torch
x = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
"""

LIMITED = """
import torch

torch.cuda.set_per_process_memory_fraction((256 << 20) / torch.cuda.get_device_properties(0).total_memory)
held = []
while True:
    held.append(torch.empty(30 << 20, dtype=torch.uint8, device="cuda"))
"""

HOLDER = """
import torch

def big():
    return torch.empty(100 << 20, dtype=torch.uint8, device="cuda")

kept = big()
"""

SHARED = """
import torch, torch.multiprocessing as mp

def child(queue, done):
    tensor = queue.get()
    print("child has", tensor.numel(), tensor.device, torch.cuda.memory_reserved(), flush=True)
    del tensor
    done.put(1)

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, done = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, done))
    process.start()
    tensor = torch.ones(30 << 20, device="cuda")
    queue.put(tensor)
    done.get()
    process.join()
    assert process.exitcode == 0
"""


@unittest.skipIf(emulated.why_not(), emulated.why_not() or "")
class RehearsedPrograms(Rehearsed):
    def test_hints_say_how_tokens_are_routed_and_draws_give_a_range(self):
        report, _ = self.rehearse(program=MOE)
        drawn = [(run["topk"], run["peak_allocated_bytes"]) for run in report["draws"]["runs"]]
        self.assertEqual([topk for topk, _ in drawn], ["uniform", "worst", "balanced", "skewed", "skewed"])
        self.assertNotEqual(drawn[3], drawn[4], "each draw is another one")
        runs = dict(drawn)
        low, high = report["draws"]["peak_allocated_bytes_range"]
        self.assertLess(low, high)
        self.assertTrue(all(low <= peak <= high for peak in runs.values()), runs)
        # All tokens at one expert are more at a time than a quarter at each of four.
        self.assertGreater(runs["worst"], runs["balanced"])
        self.assertFalse(report["exact"])
        hinted, _ = self.rehearse("--draws", "1", "--assume", "topk=worst", program=MOE)
        self.assertEqual(hinted["peak_allocated_bytes"], runs["worst"])

    def test_each_process_gets_its_own_values_whichever_is_first(self):
        for arguments in ((), ("slow",)):
            _, said = self.rehearse(program=PROCESSES, arguments=arguments)
            lines = sorted(line for line in said.splitlines() if line.startswith(("child", "parent")))
            self.assertEqual(lines, ["child 0 5 45", "child 1 5 55", "parent 4950"])

    def test_a_child_that_was_forked_takes_nothing_of_the_card(self):
        alone, forks = (self.rehearse("--gpu", "h200", "--values", "off", program=FORKS, arguments=[str(number)])[0]
                        for number in (0, 3))
        for key in ("peak_device_bytes", "context_bytes"):
            self.assertGreater(alone[key], 0)
            self.assertEqual(alone[key], forks[key])

    def test_whether_processes_fit_together_is_not_known_where_their_peaks_do_not(self):
        report, said = self.rehearse("--gpu", "h200", "--memory", "1GiB", program=CROWDED, status=1)
        self.assertIn("300 0\n1 0\n600 1", said)
        self.assertIsNone(report["fits"])
        self.assertGreater(report["peak_device_bytes"], report["total_bytes"])
        self.assertIn("3 processes used the device", " ".join(report["uncertain"]))

    def test_what_was_recorded_is_written_however_often_the_program_is_asked_to_end(self):
        for name, status in (("SIGINT", 130), ("SIGTERM", 143)):
            report, _ = self.rehearse(program=ASKED_TWICE.replace("NUMBER", name), status=status)
            self.assertGreaterEqual(report["peak_allocated_bytes"], 300 << 20)

    def test_what_the_program_says_of_visible_devices_hides_no_memory(self):
        report, _ = self.rehearse(program=VISIBLE)
        self.assertEqual(report["peak_allocated_bytes"], 30 << 20)

    def test_a_limit_of_the_program_s_own_is_replayed(self):
        report, _ = self.rehearse("--values", "off", program=LIMITED, status=1)
        self.assertFalse(report["fits"])
        self.assertLessEqual(report["peak_reserved_bytes"], 256 << 20)
        self.assertIsNotNone(report["peak_reserved_bytes_range"])
        self.assertNotIn("could not be replayed", " ".join(report["uncertain"]))

    def test_the_line_that_holds_an_expandable_segment_is_named(self):
        for conf in ("", "expandable_segments:True"):
            report, _ = self.rehearse("--values", "off", "--conf", conf, program=HOLDER)
            self.assertIn("program.py:5 big", report["holders"][0]["place"], conf)

    def test_tensors_are_handed_to_another_process(self):
        for conf in ("", "expandable_segments:True"):
            _, said = self.rehearse("--values", "off", "--conf", conf, program=SHARED)
            self.assertIn(f"child has {30 << 20} cuda:0 0", said, conf)

    def probe(self, *options):
        """The report of a probe of the emulated H200."""
        around = {**os.environ, "TMPDIR": str(self.room), "VRAMWISE_LIB_DIR": str(emulated.LIBRARIES)}
        probe = [emulated.PROGRAM, "probe", "--python", sys.executable, "--into", str(self.room / "cards"), "--quick",
                 "-o", str(self.room / "probe.json"), "--json", *options]
        command = [emulated.PROGRAM, "rehearse", "--emulate-anyway", "--values", "off", "--gpu", "h200"]
        done = subprocess.run([*command, "--python", sys.executable, "--", *probe], cwd=self.room, env=around, timeout=300,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.room / "probe.json").read_text())

    def test_a_probe_of_the_emulated_card_gives_its_profile_back(self):
        report = self.probe("--no-workspaces")
        self.assertTrue(report["emulated"])
        self.assertEqual(report["differences"], [])
        profile = json.loads((self.room / "cards" / "h200.json").read_text())
        self.assertFalse(profile["measured"])
        self.assertEqual(profile["context_bytes"], 552_402_944)
        self.assertIsNone(report["workspaces"])

    @unittest.skipUnless(emulated.LIBRARIES and (emulated.LIBRARIES / "libvramwise_probe.so").is_file(),
                         "the library that watches cuDNN is not beside the emulated device")
    def test_a_probe_of_the_emulated_card_gives_its_workspaces_back(self):
        first = [[32, 3, 224, 224], [150528, 50176, 224, 1], [64, 3, 7, 7], [2, 2], [3, 3], [1, 1], False, [0, 0], 1,
                 [False, True, False], "fp32", "as"]
        jobs = [first, ["bn", [32, 64, 56, 56], "fp32"], ["ctc", 50, 4, 29, 20],
                ["rnn", "lstm", "fp32", 64, 128, 1, False, 50, 16, 0.0, False]]
        with gzip.open(self.room / "jobs.gz", "wt") as file:
            file.writelines(json.dumps(job) + "\n" for job in jobs)
        report = self.probe("--jobs", str(self.room / "jobs.gz"), "--workers", "1", "--seconds", "60s")
        table = report["table"]
        self.assertEqual((table["jobs_listed"], table["jobs_begun"], table["jobs_failed"]), (4, 4, 0), table)
        if table["built_in_entries"] is not None:  # this PyTorch has the cuDNN that was measured
            self.assertGreaterEqual(table["built_in_entries"], 5)
            self.assertEqual(table["built_in_entries"], table["built_in_entries_same"])
        program = ("import torch; c = torch.nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False).cuda();"
                   "c(torch.randn(32, 3, 224, 224, device='cuda')).sum().backward()")
        rehearsed, _ = self.rehearse("--values", "off", "--gpu", report["profile"], program=program)
        self.assertEqual(rehearsed["convolutions"]["unmeasured"], 0, "the table beside the profile is used")


if __name__ == "__main__":
    unittest.main()
