"""Batch search and micro-batches where PyTorch's own allocator runs out of memory, on the emulated device; the examples."""

import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

from batch_support import EXAMPLES, HAS_PYTEST, needs_emulated_device, rehearse, run_python

SEARCH = """
import gc, json, torch
from torch import nn
from vramwise.batch_size import BatchSizeSearch, TrainingTrial, find_executable_batch_size, search_batch_size

MIB = 1 << 20
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())

def make_batch(n):
    return torch.randn(n * 128, 1024, device="cuda")

def loss_fn(model, batch):
    return model(batch).square().mean()

# cuBLAS keeps its workspaces from its first use on.
loss_fn(model, make_batch(1)).backward()
model.zero_grad()
allocated = torch.cuda.memory_allocated()
trial = TrainingTrial(model, optimizer, make_batch, loss_fn)
found = search_batch_size(trial, max_val=4096)
assert torch.cuda.memory_allocated() == allocated, "everything is as before"
assert not optimizer.state
result = {"found": found.batch_size, "too_large": found.too_large}

def train(n, steps=50):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        loss_fn(model, make_batch(n)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

train(found.batch_size)
torch.cuda.empty_cache()
try:
    train(found.batch_size + 1)
    raise SystemExit("one more sample fits too")
except torch.OutOfMemoryError:
    pass
gc.collect()
torch.cuda.empty_cache()

# Forward passes alone say another thing.
def forward_only(n):
    with torch.no_grad():
        loss_fn(model, make_batch(n))

result["forward_only"] = search_batch_size(forward_only, max_val=4096).batch_size

# What is left free beside a batch is the margin.
margin = 300 * MIB
with_margin = search_batch_size(trial, max_val=4096, margin=margin).batch_size
torch.cuda.empty_cache()
ballast = torch.empty(margin, dtype=torch.uint8, device="cuda")
trial(with_margin)
torch.cuda.empty_cache()
try:
    trial(with_margin + 1)
    raise SystemExit("one more sample fits beside the margin too")
except torch.OutOfMemoryError:
    pass
del ballast
gc.collect()
assert with_margin < found.batch_size

# The decorator: nothing of a failed attempt is left when the next one starts.
left = []
@find_executable_batch_size(starting_batch_size=512, reduce_batch_size_fn=lambda n: n // 2)
def decorated(batch_size):
    left.append(torch.cuda.memory_allocated() - allocated)
    kept = [make_batch(batch_size) for _ in range(8)]
    kept.append(kept)
    return batch_size

result["decorated"] = decorated()
assert len(left) > 1 and not any(left), left
json.dump(result, open("result.json", "w"))
"""

MICRO = """
import gc, json, torch
from torch import nn
from vramwise import MicroBatcher

MIB = 1 << 20

def build(width=1024):
    model = nn.Sequential(nn.Linear(1024, width), nn.GELU(), nn.Linear(width, 1024)).cuda()
    return model, torch.optim.AdamW(model.parameters())

result = {}
# Forward pass: a batch whose activations alone are larger than the card.
model, optimizer = build(4096)
step_fn = lambda part: model(part.cuda()).square().mean()
batcher = MicroBatcher(step_fn, model, optimizer)
batch = torch.randn(96 * 1024, 1024)
outcome = batcher.step(batch)
result["forward"] = [outcome.retries, len(outcome.sizes)]
allocated = torch.cuda.memory_allocated()
assert batcher.step(batch).retries == 0
assert torch.cuda.memory_allocated() == allocated
del model, optimizer, batcher, outcome, step_fn
torch.cuda.empty_cache()

# Backward pass: the forward pass fits, its gradient does not.
model, optimizer = build(1024)
stages = []
class Large(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.samples = len(x)
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        stages.append(ctx.samples)
        torch.empty(ctx.samples * MIB, dtype=torch.uint8, device="cuda")
        return gradient
batcher = MicroBatcher(lambda part: Large.apply(model(part.cuda())).square().mean(), model, optimizer)
outcome = batcher.step(torch.randn(4096, 1024))
result["backward"] = [outcome.retries, stages[0], outcome.sizes[0]]

# Giving up: all of it comes back, and the error says what was tried.
for one in model.parameters():
    one.grad = torch.ones_like(one)
before = torch.cuda.memory_allocated()
hungry = MicroBatcher(lambda part: (model(part.cuda()).mean(), torch.empty(4 << 30, device="cuda")), model)
try:
    hungry.backward(torch.randn(4, 1024))
    raise SystemExit("it fitted")
except torch.OutOfMemoryError as error:
    result["notes"] = error.__notes__
assert torch.cuda.memory_allocated() == before, (before, torch.cuda.memory_allocated())
del model, optimizer, batcher, hungry, outcome, one
torch.cuda.empty_cache()

# Optimizer: gradients and two states fit beside the parameters, the temporaries of foreach as well do not.
def step(kind):
    gc.collect()
    torch.cuda.empty_cache()
    # Room for four and a half times the parameters.
    room = int(4.5 * 256 * MIB)
    ballast = torch.empty(torch.cuda.mem_get_info()[0] - room, dtype=torch.uint8, device="cuda")
    weights = [nn.Parameter(torch.zeros(4 * MIB, device="cuda")) for _ in range(16)]
    optimizer = kind(weights, foreach=True)
    step_fn = lambda part: sum(one.sum() for one in weights) * part.mean()
    try:
        MicroBatcher(step_fn, None, optimizer).step(torch.ones(2))
        return optimizer.param_groups[0]["foreach"]
    except torch.OutOfMemoryError as error:
        return error.__notes__[0]

result["optimizer"] = step(torch.optim.Adam)
# With weight decay the parameters have been written to when it fails.
result["halfway"] = step(torch.optim.AdamW)
json.dump(result, open("result.json", "w"))
"""

MIXED = """
import json, torch
from torch import nn
from vramwise import MicroBatcher

torch.cuda.set_per_process_memory_fraction((512 << 20) / torch.cuda.get_device_properties(0).total_memory)
model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(32768, 1024, device="cuda")
result = {}
for name, scaler in (("bfloat16", None), ("float16", torch.amp.GradScaler("cuda"))):
    def step_fn(part):
        with torch.autocast("cuda", dtype=getattr(torch, name)):
            return model(part).float().square().mean()
    batcher = MicroBatcher(step_fn, model, optimizer, scaler=scaler, max_grad_norm=1.0)
    def step():
        one = batcher.step(batch)
        return [one.retries, len(one.sizes), sum(one.sizes), one.stepped]
    result[name] = [step(), step()]
    allocated = torch.cuda.memory_allocated()
    result[name].append(step())
    assert torch.cuda.memory_allocated() == allocated, "nothing stays of a step"
json.dump(result, open("result.json", "w"))
"""

PREDICTED = """
import sys
from vramwise.batch_size import Prediction, find_executable_batch_size

@find_executable_batch_size(starting_batch_size=3, predict=Prediction(gpu="h200", memory="2GiB", steps=1))
def train(batch_size):
    import torch
    if not torch.cuda.is_available():
        print("tried", batch_size)       # out here there is no card
        return
    weight = torch.nn.Parameter(torch.zeros(1024, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    (weight.sum() * torch.zeros(batch_size * (600 << 18), device="cuda").sum()).backward()
    optimizer.step()

train()
"""


@needs_emulated_device
class OnTheEmulatedGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.folder = Path(folder.name)
        os.chdir(self.folder)

    def script(self, text):
        path = self.folder / "program.py"
        path.write_text(text)
        return path

    def result(self, text):
        done = rehearse(self.script(text))
        self.assertTrue(done.stdout.startswith("{"), done.stderr)
        self.assertEqual(json.loads(done.stdout)["exit_status"], 0, done.stderr)
        return json.loads((self.folder / "result.json").read_text())

    def test_the_search_finds_what_trains(self):
        result = self.result(SEARCH)
        self.assertEqual(result["too_large"], result["found"] + 1)
        # A search without backward pass and optimizer promises more than training can hold.
        self.assertGreater(result["forward_only"], 1.3 * result["found"])
        self.assertLess(result["decorated"], 512)

    def test_micro_batches_recover_everywhere(self):
        result = self.result(MICRO)
        self.assertGreaterEqual(result["forward"][0], 1)
        self.assertEqual(result["forward"][1], 2 ** result["forward"][0])
        retries, first, last = result["backward"]
        self.assertEqual((first, last), (4096, 4096 >> retries))
        self.assertGreaterEqual(retries, 2)
        self.assertIn("4, 2, 1 samples at once", result["notes"][0])
        self.assertIs(result["optimizer"], False)
        self.assertIn("partly updated", result["halfway"])

    def test_micro_batches_under_mixed_precision(self):
        for name, outcomes in self.result(MIXED).items():
            with self.subTest(name):
                retries, parts, samples, stepped = outcomes[0]
                self.assertGreaterEqual(retries, 1)
                self.assertEqual((parts, samples, stepped), (2**retries, 32768, True))
                self.assertEqual(outcomes[1:], [[0, parts, 32768, True]] * 2, "what fitted is remembered")

    def test_a_script_predicts_its_own_batch_size(self):
        done = run_python(self.script(PREDICTED), CUDA_VISIBLE_DEVICES="")
        self.assertEqual((done.returncode, done.stdout), (0, "tried 2\n"), done.stderr)

    def test_examples(self):
        done = rehearse(EXAMPLES / "find_batch_size.py", "--layers", "2", "--max", "64")
        self.assertEqual(json.loads(done.stdout)["exit_status"], 0, done.stderr)
        self.assertIn("MiB reserved at the peak", done.stderr)
        done = run_python(EXAMPLES / "fit_from_python.py", "--cards", "h200", "--memory", "2GiB", "--max", "2")
        self.assertEqual((done.returncode, done.stdout), (0, "h200: batch size 2\n"), done.stderr)

    def test_the_example_with_transformers(self):
        try:
            import transformers  # noqa: F401
        except ImportError:
            self.skipTest("transformers is not installed")
        done = rehearse(EXAMPLES / "microbatch_huggingface.py")
        self.assertEqual(json.loads(done.stdout)["exit_status"], 0, done.stderr)
        self.assertIn("step 0: 4 parts of at most 16, 2 retries", done.stderr)
        self.assertIn("step 3: 4 parts of at most 16, 0 retries", done.stderr)

    @unittest.skipUnless(HAS_PYTEST, "pytest is not installed")
    def test_the_example_for_pytest(self):
        words = ["-p", "no:cacheprovider", "-p", "vramwise.pytest_plugin", EXAMPLES / "test_memory_budget.py"]
        done = run_python(
            "-m", "pytest", *words, "--vramwise-rehearse=2GiB", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS=""
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("3 passed", done.stdout)
        self.assertTrue(sys.executable)


if __name__ == "__main__":
    unittest.main()
