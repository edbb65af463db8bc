"""Batches of every kind are cut into micro-batches, or refused with what to do."""

import collections
import dataclasses
import importlib.util
import typing
import unittest

from batch_support import HAS_TORCH, needs_torch

if HAS_TORCH:
    import torch

    from vramwise.microbatch import BatchShapeError, Cut


class Pair(typing.NamedTuple):
    x: object
    y: object


def tensor(*shape):
    count = 1
    for length in shape:
        count *= length
    return torch.arange(count).reshape(shape)


def halves(batch, **cut):
    cut = Cut(**cut)
    size = cut.size_of(batch)
    return cut.parts(batch, [size - size // 2, size // 2])


@needs_torch
class Cutting(unittest.TestCase):
    def test_a_tensor_is_cut_without_a_copy(self):
        batch = tensor(5, 2)
        first, second = halves(batch)
        self.assertEqual((first.shape, second.shape), ((3, 2), (2, 2)))
        self.assertEqual(first.data_ptr(), batch.data_ptr())
        self.assertTrue(torch.equal(torch.cat([first, second]), batch))

    def test_structures_keep_their_kind(self):
        @dataclasses.dataclass(frozen=True)
        class Data:
            x: object
            name: str
            inner: tuple

        x, y = tensor(4, 3), tensor(4)
        for batch, kind in (((x, y), tuple), ([x, y], list), (Pair(x, y), Pair), ({"x": x, "y": y}, dict)):
            first, _ = halves(batch)
            self.assertIs(type(first), kind)
        first, second = halves(Data(x, "a", (y, 7)))
        self.assertIsInstance(first, Data)
        self.assertEqual((first.name, first.inner[1]), ("a", 7))
        self.assertTrue(torch.equal(torch.cat([first.inner[0], second.inner[0]]), y))
        ordered = collections.OrderedDict(x=x, y=y)
        self.assertIs(type(halves(ordered)[0]), collections.OrderedDict)
        self.assertEqual(len(ordered["x"]), 4)
        user = collections.UserDict(x=x)
        self.assertEqual((len(halves(user)[0]["x"]), len(user["x"])), (2, 4))

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_batches_of_transformers(self):
        from transformers.tokenization_utils_base import BatchEncoding

        batch = BatchEncoding({"input_ids": tensor(4, 6), "attention_mask": tensor(4, 6)})
        first, _ = halves(batch)
        self.assertIsInstance(first, BatchEncoding)
        self.assertEqual((first["input_ids"].shape, batch["input_ids"].shape), ((2, 6), (4, 6)))
        self.assertEqual(first.input_ids.shape, (2, 6))

    def test_lists_with_one_item_for_each_sample(self):
        x = tensor(4, 3)
        first, second = halves({"x": x, "text": ["a", "b", "c", "d"]})
        self.assertEqual((first["text"], second["text"]), (["a", "b"], ["c", "d"]))
        images = [torch.zeros(3, 8 + n, 8) for n in range(5)]
        targets = [{"boxes": torch.zeros(n + 2, 4)} for n in range(5)]
        first, second = halves((images, targets), samples=["0", "1"])
        self.assertEqual((len(first[0]), len(second[1])), (3, 2))
        self.assertEqual(second[0][0].shape, (3, 11, 8))
        first, _ = halves((images, targets), batch_size=lambda batch: len(batch[0]))
        self.assertEqual(len(first[1]), 3)
        self.assertEqual(len(halves(images, samples=[""])[0]), 3)

    def test_parts_as_many_as_samples_are_still_parts(self):
        x, y = tensor(2, 3), tensor(2)
        first, _ = halves([x, y])
        self.assertEqual([len(one) for one in first], [1, 1])
        first, _ = halves(({"x": x}, {"y": y}), batch_size=2)
        self.assertEqual(len(first), 2)

    def test_what_is_shared_goes_whole(self):
        batch = {"x": tensor(4, 3), "weights": tensor(7), "mask": tensor(1, 3), "scale": torch.tensor(2.0)}
        first, _ = halves(batch, shared=["weights"])
        self.assertIs(first["weights"], batch["weights"])
        self.assertIs(first["mask"], batch["mask"])
        self.assertIs(first["scale"], batch["scale"])

    def test_another_dimension_and_arrays(self):
        first, _ = halves((tensor(7, 4), tensor(2, 4, 3)), dim=1)
        self.assertEqual((first[0].shape, first[1].shape), ((7, 2), (2, 2, 3)))
        try:
            import numpy
        except ImportError:
            return
        first, _ = halves({"x": tensor(4), "y": numpy.arange(8).reshape(4, 2)})
        self.assertEqual(first["y"].shape, (2, 2))


@needs_torch
class Refusing(unittest.TestCase):
    def refused(self, batch, words, **cut):
        with self.assertRaisesRegex(BatchShapeError, words):
            halves(batch, **cut)

    def test_what_would_be_a_guess(self):
        self.refused((tensor(4, 3), tensor(5)), "differ in length.*0: 4, 1: 5.*shared=")
        self.refused([torch.zeros(3, 8, 8)] * 8, "may be samples.*samples=")
        self.refused([torch.zeros(3, 8, 8)] * 3, "may be samples", batch_size=3)
        self.refused({"x": tensor(4), "y": tensor(5)}, "y has length 5", batch_size=4)
        self.refused({"a": "text"}, "no tensor that could be cut")

    def test_what_has_no_simple_cut(self):
        self.refused(torch.eye(4).to_sparse(), "sparse")
        packed = torch.nn.utils.rnn.pack_sequence([torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(3, 2)])
        self.refused({"x": tensor(9), "p": packed}, "PackedSequence|differ in length")
        self.refused(tensor(4), "no dimension 1", dim=1)


if __name__ == "__main__":
    unittest.main()
