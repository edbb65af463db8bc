"""`vramwise rehearse` with the real PyTorch: both passes read the same values, and programs decide by them as on a GPU."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import unittest

import emulated
from rehearsed import Rehearsed

CTC = """
import itertools
import torch
import torch.nn.functional as F

frames, classes, batch, longest = 50, 20, 6, 30
kinds = (torch.long, torch.int32)
for reduction, kind, place, flat, lengths in itertools.product(
        ("mean", "sum"), kinds, ("cpu", "cuda"), (False, True), ("cpu", "cuda", "numbers")):
    scores = torch.randn(frames, batch, classes, device="cuda", requires_grad=True)
    length = torch.randint(10, longest, (batch,), dtype=kind)
    targets = torch.randint(1, classes, (int(length.sum()),) if flat else (batch, longest), dtype=kind, device=place)
    given = [torch.full((batch,), frames, dtype=kind), length]
    given = [g.tolist() for g in given] if lengths == "numbers" else [g.to(lengths) for g in given]
    try:
        F.ctc_loss(scores.log_softmax(2), targets, *given, reduction=reduction).backward()
        print(reduction, kind, place, flat, lengths, "works")
    except RuntimeError as error:
        print(reduction, kind, place, flat, lengths, error)
print(int(torch.arange(10, device="cuda").sum()))
"""

# As beam search goes: scores of candidates among all that a model says, until none can become better than what is done.
BEAMS = """
import torch

model = torch.nn.Linear(256, 50000).cuda()
scores, done = torch.zeros(2, 4, device="cuda"), torch.full((2, 4), -1e9, device="cuda")
length = 0
while length < 12:
    length += 1
    hidden = torch.randn(2 * 4 * length, 256, device="cuda")
    words = model(hidden).log_softmax(-1)[:8].view(2, 4, -1) + scores[:, :, None]
    words = words.view(2, -1)
    if "SAMPLED":
        chosen = torch.multinomial(words.softmax(-1), 4)
        scores = words.gather(1, chosen)
    else:
        scores, chosen = words.topk(4)
    assert bool((chosen < 4 * 50000).all())
    if not bool((scores[:, :1] / length > done.min(1, keepdim=True).values).any()):
        break
print("went on for", length)
"""

# Between the passes, only one of which compiles, only the code knows which questions are asked.
COMPILED = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).cuda()

def forward(x, keep):
    if not torch.compiler.is_compiling() and bool(keep.all()):
        keep = None
    y = model(x) + torch.full((8, 10), 1.0, device="cuda")
    return y if keep is None else y * keep

compiled = torch.compile(forward)
for step in range(2):
    x, keep = torch.randn(8, 64, device="cuda"), torch.ones(8, 10, dtype=torch.bool, device="cuda")
    compiled(x, keep).sum().backward()
    print(step, int(keep.sum()), bool((keep[:, 0] > step).any()), torch.compiler.is_compiling())
    forward(x, keep)
"""

FINITE = """
import torch

loss = torch.randn(100, 100, device="cuda").sum()
print(bool(torch.isnan(loss)), bool(torch.isinf(loss)))
"""

ALL_FINITE = """
import torch

for size in 1000, 2000:
    x = torch.randn(size, size, device="cuda")
    y = x @ x
    assert torch.isfinite(y).all() and y.isfinite().all(0).all()
    assert not torch.isnan(y).any() and not (~torch.isfinite(y)).any()
print("other masks", bool((y > 0).all()), bool((y == x).all()), bool((torch.isfinite(y) & (y > 0)).all()))
mask = torch.isfinite(y)
mask[0] = False
print("written", bool(mask.all()))
"""

REPEATED = """
import torch

x = torch.randn(100, 100, device="cuda")
with torch.inference_mode():
    y = x.repeat_interleave(3, dim=0), x.repeat_interleave(torch.arange(100, device="cuda"), dim=0)
print([tuple(t.shape) for t in y])
"""

SCALED = """
import torch

model = torch.nn.Linear(256, 256).cuda()
optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.amp.GradScaler("cuda")
for step in range(4):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.randn(8, 256, device="cuda")).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(step, len(optimizer.state), scaler.get_scale())
"""

LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (20 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
import torch

x = torch.arange(10, device="cuda")
print("sum", int(x.sum()), (x % 2 == 0).nonzero().shape[0])
"""

SAVED = """
import torch

model = torch.nn.Linear(128, 128).cuda()
model(torch.randn(8, 128, device="cuda")).sum().backward()
torch.save([model.state_dict(), [p.grad for p in model.parameters()]], "model.pt")
"""

STALE = """
import torch

mask = torch.randn(32, 64, device="cuda").half() > 0
# The block that a number of the program was copied to is used again for a count.
number = torch.tensor(1058981217, device="cuda")
del number
print("count", mask.sum().item(), mask.nonzero().shape[0])
fresh = torch.tensor([3, 4], device="cuda")
print("fresh", fresh.tolist())
"""

READ = """
import torch

x = torch.arange(10, device="cuda")
print("sum", int(x.sum()), x[x % 3 == 0].tolist(), (x % 2).bool().any().item())
pinned = torch.empty(20, dtype=torch.int64, pin_memory=True)
pinned.copy_(torch.arange(20, device="cuda"), non_blocking=True)
torch.cuda.synchronize()
print("pinned", int(pinned.sum()))
columns = torch.arange(24, device="cuda").reshape(4, 6)[:, :3].cpu()
print("columns", int(columns.sum()), torch.randn(200, 200, device="cuda").cpu().shape)
"""

DRAWN = """
import torch

here = torch.randint(0, 1000, (500,)).cuda()
print("drawn here", here.unique().numel())
if DRAW_THERE:
    there = torch.randint(0, 1000, (500,), device="cuda")
    print("drawn there", there.unique().numel())
"""

# Under inference_mode torch does not take such operations apart before the value layer sees them.
INFERENCE = """
import torch

with torch.inference_mode():
    x = torch.arange(100, device="cuda")
    print("where", torch.where(x > 39)[0].shape[0], (x % 3 == 0).argwhere().shape[0])
    print("none", torch.where(x[:0] > 0)[0].shape[0], torch.where(x > 100)[0].shape[0])
    print("pairs", torch.combinations(x[:5]).shape[0], "last", x.argsort(descending=True)[0].item())
    print("same", torch.allclose(x, x), torch.allclose(x, x + 1))
    print("classes", torch.nn.functional.one_hot(x[:7]).shape[1], [len(part) for part in x.tensor_split(x[10:40:15].cpu())])
    unknown = torch.randn(200, 100, device="cuda").relu().sum(1)
    print("half", torch.where(unknown > 50)[0].shape[0])
"""

# Kernels put such numbers in order, or convert them, before they are copied to the host.
READ_THROUGH = """
import torch

x = torch.arange(100, device="cuda")
print("strided", x[10:40:15].cpu().tolist(), x.view(10, 10).t()[3].tolist())
print("dense", x[:6].view(2, 3).t().cpu().tolist(), x[:6].view(2, 3).t().cpu().stride())
print("converted", x[:3].to("cpu", torch.float32).tolist(), x[::40].to("cpu", torch.int16).tolist())
print("later", x[1:4].to("cpu", torch.float16, non_blocking=True).tolist(), x[::30].to("cpu", non_blocking=True).tolist())
host = torch.empty(4, 2, dtype=torch.int32)
host.t().copy_(x[::50].view(2, 1).expand(2, 4))
print("copied", host.tolist(), x[7].expand(3).tolist(), (x > 50)[::40].tolist())
print("numpy", x.view(10, 10)[:, 1].cpu().numpy()[:3])
large = torch.randn(3000, 3000, device="cuda")
print("unknown", (large @ large)[::1000, 1].tolist())
"""

# What an operation reads inside itself, where the layer does not know how to say it.
INSIDE = """
import torch

x = torch.arange(1 << 16, device="cuda")
print("isin", torch.isin(x, x[:70:2]).sum().item(), torch.isin(x, x[:4]).sum().item())
batch = torch.randn(16, 64, 64, device="cuda")
try:
    torch.linalg.matrix_exp(batch @ batch)
except Exception as error:
    print(type(error).__name__)
print("quantized", torch.quantize_per_tensor(batch, 0.1, 0, torch.qint8).shape[0])
"""

# A thread that pins memory is there until the program ends.
PINNED = """
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.arange(400)), batch_size=4, num_workers=2, pin_memory=True, persistent_workers=True)
batches = iter(loader)
for _ in range(20):
    batch = next(batches)[0].cuda(non_blocking=True)
print("sum", batch.sum().item())
"""

# A child ends while the parent has read what is not written yet.
FORKED = """
import os
import torch

x = torch.arange(200, device="cuda")
print([int(x[n]) for n in range(100)])
for status in (0, 1):
    child = os.fork()
    if not child:
        os._exit(status) if status else exit(0)
    os.waitpid(child, 0)
print([int(x[n]) for n in range(100, 200)])
"""

GROUP = """
import os
import torch, torch.distributed as dist

if "RANK" in os.environ:
    dist.init_process_group("nccl")
else:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(1000, device="cuda")
dist.all_reduce(x)
print("ranks", dist.get_world_size())
"""

# As SyncBatchNorm gathers its statistics: what comes out has the shape of one row.
GATHERED = """
import torch, torch.distributed as dist

dist.init_process_group("nccl")
row = torch.empty(1, 4 * 129, device="cuda")
dist.all_gather_into_tensor(row, torch.ones(129, device="cuda"))
norm = torch.nn.SyncBatchNorm(8).cuda()
norm(torch.randn(4, 8, 6, 6, device="cuda")).sum().backward()
print("ranks", dist.get_world_size(), norm.weight.grad.shape[0])
"""

# As a mixture of experts whose experts are spread over the ranks sends its tokens.
EXCHANGED = """
import torch, torch.distributed as dist

dist.init_process_group("nccl")
ranks = dist.get_world_size()
send = torch.tensor([10, 20, 30, 40], device="cuda")
receive = torch.empty_like(send)
dist.all_to_all_single(receive, send)
print("receive", receive.tolist())
part = torch.empty(2, dtype=torch.long, device="cuda")
dist.reduce_scatter_tensor(part, torch.arange(2 * ranks, device="cuda"))
print("part", part.tolist())
dist.recv(part, 0)
print("sent", part.tolist())
"""

# As evaluation and checkpoints exchange results and plans.
OBJECTS = """
import torch, torch.distributed as dist

dist.init_process_group("nccl")
own, ranks = dist.get_rank(), dist.get_world_size()
everywhere = [None] * ranks
dist.all_gather_object(everywhere, {"rank": own})
print("everywhere", everywhere)
for there in (0, 1):
    gathered = [None] * ranks if own == there else None
    dist.gather_object({"rank": own}, gathered, dst=there)
    print("gathered at", there, gathered)
    sent = ["mine", 2] if own == there else [None, None]
    dist.broadcast_object_list(sent, src=there)
    print("broadcast by", there, sent)
    part = [None]
    dist.scatter_object_list(part, list("abcd") if own == there else None, src=there)
    print("scattered by", there, part)
"""


@unittest.skipIf(emulated.why_not(), emulated.why_not() or "")
class RehearsedValues(Rehearsed):
    def test_ctc_reads_the_same_in_both_passes_and_fails_where_pytorch_does(self):
        report, said = self.rehearse("-o", "kept", "--gpu", "h200", program=CTC)
        first = (self.room / "kept" / "pass1.log").read_text()
        self.assertEqual([line for line in said.splitlines() if line in first.splitlines()], first.splitlines())
        self.assertEqual(first.splitlines()[-1], "45")
        self.assertGreater(first.count(" works"), 40)
        self.assertNotIn("reads from the device", " ".join(report["uncertain"]))

    def test_scores_of_what_was_chosen_among_unknown_numbers_let_a_search_go_on(self):
        for sampled in ("", "yes"):
            report, said = self.rehearse("--draws", "1", program=BEAMS.replace("SAMPLED", sampled))
            self.assertIn("went on for 12", said)
            self.assertGreaterEqual(report["values"]["assumed"], 12)
            self.assertEqual(report["values"]["unknown"], 0, report["values"]["places"])
            self.assertFalse(report["exact"])

    @unittest.skipUnless(importlib.util.find_spec("triton") and shutil.which("gcc"), "torch.compile needs Triton and a compiler")
    def test_what_a_compiler_reads_takes_no_answer_of_the_program_s(self):
        report, said = self.rehearse(program=COMPILED)
        lines = [line for line in said.splitlines() if line[:2] in ("0 ", "1 ")]
        self.assertEqual(lines, ["0 80 True False", "1 80 False False"])
        self.assertNotIn("reads from the device", " ".join(report["uncertain"]))

    def test_numbers_are_taken_to_be_finite_where_infinities_are_looked_for(self):
        report, said = self.rehearse(program=FINITE)
        self.assertIn("False False", said)
        self.assertEqual(report["values"]["unknown"], 0)
        self.assertIn("taken to be finite", " ".join(report["uncertain"]))

    def test_large_tensors_are_taken_to_be_finite(self):
        report, said = self.rehearse("--draws", "1", program=ALL_FINITE)
        self.assertIn("other masks False False False", said)
        self.assertIn("written False", said)
        self.assertIn("taken to be finite", " ".join(report["uncertain"]))

    def test_how_often_rows_are_repeated_does_not_depend_on_what_is_in_them(self):
        report, said = self.rehearse("--gpu", "h200", program=REPEATED)
        self.assertIn("[(300, 100), (4950, 100)]", said)
        self.assertTrue(report["exact"], report["uncertain"])

    def test_what_is_made_of_other_operations_is_known_under_inference_mode(self):
        report, said = self.rehearse("--draws", "1", program=INFERENCE)
        for line in ("where 60 34", "none 0 0", "pairs 10 last 99", "same True False", "classes 7 [10, 15, 75]", "half 100"):
            self.assertIn(line, said)
        self.assertEqual(report["values"]["unknown"], 0, report["values"]["places"])
        self.assertEqual({place["operation"] for place in report["values"]["places"]}, {"aten::nonzero"})

    def test_numbers_that_are_put_in_order_first_are_read_as_they_are(self):
        report, said = self.rehearse("--gpu", "h200", program=READ_THROUGH)
        for line in ("strided [10, 25] [3, 13, 23, 33, 43, 53, 63, 73, 83, 93]",
                     "dense [[0, 3], [1, 4], [2, 5]] (1, 3)",
                     "converted [0.0, 1.0, 2.0] [0, 40, 80]",
                     "later [1.0, 2.0, 3.0] [0, 30, 60, 90]",
                     "copied [[0, 50], [0, 50], [0, 50], [0, 50]] [7, 7, 7] [False, False, True]",
                     "numpy [ 1 11 21]",
                     "unknown [0.0, 0.0, 0.0]"):
            self.assertIn(line, said)
        self.assertTrue(report["exact"], report["uncertain"])

    def test_what_is_read_inside_an_operation_is_never_what_memory_held(self):
        report, said = self.rehearse("-o", "kept", "--draws", "1", program=INSIDE)
        self.assertIn("isin 35 4", said)
        self.assertIn("quantized 16", (self.room / "kept" / "pass1.log").read_text())
        unknown = {place["operation"] for place in report["values"]["places"] if place["how"] == "unknown"}
        self.assertIn("aten::linalg_matrix_exp", unknown)
        self.assertFalse(report["exact"])

    def test_threads_that_pin_memory_do_not_end_the_first_pass(self):
        report, said = self.rehearse("--gpu", "h200", program=PINNED)
        self.assertIn("sum 310", said)
        self.assertTrue(report["exact"], report["uncertain"])

    def test_children_that_end_write_nothing_of_what_the_parent_read(self):
        report, said = self.rehearse("-o", "kept", "--gpu", "h200", program=FORKED)
        self.assertIn(str(list(range(100, 200))), said)
        self.assertEqual(len((self.room / "kept" / "values.jsonl").read_text().split("\n")), 201)
        self.assertTrue(report["exact"], report["uncertain"])

    def test_what_is_gathered_may_have_another_shape(self):
        _, said = self.rehearse("--world-size", "4", program=GATHERED)
        self.assertIn("ranks 4 8", said)

    def test_other_ranks_are_taken_to_send_as_much_as_this_one_would(self):
        report, said = self.rehearse("--world-size", "4", "--rank", "1", "--draws", "1", program=EXCHANGED)
        for line in ("receive [20, 20, 20, 20]", "part [2, 3]", "sent [0, 0]"):
            self.assertIn(line, said)
        self.assertEqual((report["values"]["assumed"], report["values"]["unknown"]), (2, 1))

    def test_objects_of_other_ranks_are_this_one_s_own(self):
        report, said = self.rehearse("--world-size", "4", "--rank", "1", program=OBJECTS)
        for line in (f"everywhere {[{'rank': 1}] * 4}", "gathered at 0 None", f"gathered at 1 {[{'rank': 1}] * 4}",
                     "broadcast by 0 [None, None]", "broadcast by 1 ['mine', 2]",
                     "scattered by 0 [None]", "scattered by 1 ['b']"):
            self.assertIn(line, said)
        told = [note for note in report["notes"] if "exchange objects" in note]
        self.assertEqual([note.split(": ")[1] for note in told],
                         ["all_gather_object gave this rank's own object for each",
                          "broadcast_object_list left the list as it was", "scatter_object_list left the list as it was",
                          "gather_object gave this rank's own object for each"])

    def test_a_gradient_scaler_skips_as_many_steps_as_are_assumed(self):
        for options, states in (((), [2, 2, 2, 2]), (("--assume", "infinite=2"), [0, 0, 2, 2])):
            report, said = self.rehearse(*options, program=SCALED)
            lines = [line.split() for line in said.splitlines() if line[:1].isdigit()]
            self.assertEqual([int(line[1]) for line in lines], states)
            scales = [65536.0 / 2 ** min(step + 1, states.count(0)) for step in range(4)]
            self.assertEqual([float(line[2]) for line in lines], scales)
            self.assertFalse(report["exact"])

    def test_random_numbers_of_the_device_are_not_those_of_a_card(self):
        for there in (False, True):
            report, _ = self.rehearse("--gpu", "h200", "--draws", "1", program=DRAWN.replace("DRAW_THERE", str(there)))
            self.assertEqual(report["exact"], not there, report["uncertain"])
            self.assertEqual(report["values"]["assumed"] > 0, there)

    def test_a_part_of_a_large_tensor_is_never_what_memory_held(self):
        program = "import torch\nn = 262145\nold = torch.arange(n, dtype=torch.int32, device='cuda') + 7\ndel old\n"
        program += "print('last', torch.arange(n, dtype=torch.float32, device='cuda')[-1].item())\n"
        report, said = self.rehearse("--gpu", "h200", program=program)
        self.assertIn("last 0.0", said)
        self.assertTrue(report["notes"] or report["values"]["unknown_floats"], report)

    def test_masks_of_many_tokens_are_known_whatever_their_type(self):
        program = "import torch\nfor dtype in (torch.float, torch.bool, torch.long):\n"
        program += "    mask = torch.ones(64, 2048, device='cuda', dtype=dtype)\n"
        program += "    print(dtype, bool(mask.all()), int(mask.cumsum(1)[:, -1].max()))\n"
        report, said = self.rehearse("--gpu", "h200", program=program)
        for dtype in ("float32", "bool", "int64"):
            self.assertIn(f"torch.{dtype} True 2048", said)
        self.assertTrue(report["exact"], report["uncertain"])

    def test_what_is_kept_within_bounds_is_no_zero(self):
        program = "import torch\nx = torch.randn(300, 300, device='cuda').sum(0)[:4]\n"
        program += "print('sizes', [int(n.item()) for n in x.clamp(min=2.5).ceil()], x.sum().item())\n"
        report, said = self.rehearse("--draws", "1", program=program)
        self.assertIn("sizes [3, 3, 3, 3] 0.0", said)
        self.assertFalse(report["exact"] and report["values"]["unknown"])

    def test_what_is_read_on_a_card_answers_a_rehearsal(self):
        # The emulated device of the outer rehearsal is the card of the inner command.
        watch = [emulated.PROGRAM, "--force", "--json", "probe", "--values", "read.jsonl", "--"]
        (self.room / "kept").mkdir()
        (self.room / "program.py").write_text(READ)
        around = {**os.environ, "TMPDIR": str(self.room), "VRAMWISE_LIB_DIR": str(emulated.LIBRARIES)}
        outer = [emulated.PROGRAM, "rehearse", "--emulate-anyway", "-o", "kept", "--gpu", "h200", "--"]
        done = subprocess.run([*outer, *watch, sys.executable, "program.py"], cwd=self.room, env=around, timeout=300,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        read, logged = (
            [json.loads(line) for line in (self.room / name).read_text().splitlines()]
            for name in ("read.jsonl", "kept/values.jsonl")
        )
        self.assertTrue(all(line.pop("measured") for line in read))
        self.assertEqual(read, logged)
        self.assertGreaterEqual(len(read), 5)
        for name, exact, said in (("read.jsonl", True, "that a GPU gave"), ("kept/values.jsonl", False, "nothing says")):
            report, out = self.rehearse("--values", name, "--gpu", "h200", program=READ)
            self.assertIn("sum 45 [0, 3, 6, 9] True", out)
            self.assertIn("pinned 190", out)
            self.assertEqual(report["exact"], exact, report["uncertain"])
            self.assertIn(said, " ".join(report["uncertain"] + report["notes"]))

    def test_without_values_old_numbers_are_no_counts(self):
        report, said = self.rehearse("--values", "off", program=STALE)
        self.assertIn("count 0 0", said)
        self.assertIn("fresh [3, 4]", said)
        self.assertFalse(report["exact"])

    def test_what_is_saved_decides_nothing(self):
        report, _ = self.rehearse("--gpu", "h200", program=SAVED)
        self.assertEqual(report["values"]["unknown"], 0, report["values"]["places"])
        self.assertGreaterEqual(report["values"]["unknown_floats"], 1)
        self.assertTrue(report["exact"], report["uncertain"])

    def test_memory_of_nccl_s_own_is_said_not_to_be_counted(self):
        for rank in ({}, {"RANK": "1", "WORLD_SIZE": "2"}):
            report, said = self.rehearse("--values", "off", program=GROUP, **rank)
            self.assertIn(f"ranks {1 + len(rank) // 2}", said)
            self.assertIn("what NCCL itself takes on the device, beside PyTorch's memory, is not counted", report["uncertain"])

    def test_a_program_that_limits_its_address_space_runs_without_values(self):
        report, said = self.rehearse("-o", "kept", program=LIMITED)
        self.assertIn("sum 0 0", said)
        self.assertIn("sum 0 0", (self.room / "kept" / "pass1.log").read_text())
        self.assertIn("values were not computed", " ".join(report["uncertain"]))
        self.assertIn("address space cannot be mapped", " ".join(report["notes"]))


if __name__ == "__main__":
    unittest.main()
