"""`vramwise rehearse` with the real PyTorch: both passes read the same values, and programs decide by them as on a GPU."""

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


@unittest.skipIf(emulated.why_not(), emulated.why_not() or "")
class RehearsedValues(Rehearsed):
    def test_ctc_reads_the_same_in_both_passes_and_fails_where_pytorch_does(self):
        report, said = self.rehearse("-o", "kept", "--gpu", "h200", program=CTC)
        first = (self.room / "kept" / "pass1.log").read_text()
        self.assertEqual([line for line in said.splitlines() if line in first.splitlines()], first.splitlines())
        self.assertEqual(first.splitlines()[-1], "45")
        self.assertGreater(first.count(" works"), 40)
        self.assertNotIn("reads from the device", " ".join(report["uncertain"]))


if __name__ == "__main__":
    unittest.main()
