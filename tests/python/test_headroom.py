"""How much can still be allocated: held against the real allocator, and the arithmetic by itself."""

import json
import sys
import unittest
from pathlib import Path
from unittest import mock

import emulated

sys.path.insert(0, str(emulated.PACKAGE))

import vramwise
from vramwise import _largest
from vramwise._largest import Rules
from vramwise.available import measured

MIB = emulated.MIB
WHY_NOT = emulated.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class HeldAgainstTheAllocator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = emulated.run(Path(__file__).resolve().parent / "programs" / "headroom_cases.py", total_bytes=4 * emulated.GIB)
        if done.returncode:
            raise AssertionError(done.stderr)
        cls.seen = json.loads(done.stdout)

    def test_the_largest_block_can_be_had_and_one_byte_more_cannot(self):
        self.assertGreaterEqual(self.seen["cases"], 48)
        self.assertEqual(self.seen["wrong"], [])

    def test_private_pools_count_as_of_no_use(self):
        self.assertEqual(self.seen["private_unusable"], 40 * MIB)

    def test_total_minus_reserved_is_more_than_there_is(self):
        self.assertEqual(self.seen["other"], 300 * MIB)
        self.assertEqual(self.seen["naive_is_too_much"], 300 * MIB - 30 * MIB, "the context, less the hole in the cache")
        self.assertIsNone(self.seen["limit"])

    def test_it_is_said_in_one_line(self):
        self.assertRegex(self.seen["text"], r"^cuda:0: [\d.]+ GiB available, at most [\d.]+ GiB in one block \(driver free")

    def test_what_is_no_device_is_told(self):
        self.assertEqual(len(self.seen["errors"]), 3)
        self.assertIn("there is no CUDA device 5: PyTorch sees 1", self.seen["errors"][0])
        self.assertIn("'cpu' is not a CUDA device", self.seen["errors"][1])


@unittest.skipIf(WHY_NOT, WHY_NOT)
class UnderVramwisesAllocator(unittest.TestCase):
    def test_what_it_holds_free_counts_for_any_request_and_can_be_had(self):
        program = Path(__file__).resolve().parent / "programs" / "headroom_of_pages.py"
        done = emulated.run(program, "40", total_bytes=4 * emulated.GIB)
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout)
        if "skip" in seen:
            self.skipTest(seen["skip"])
        self.assertEqual(seen["wrong"], [])
        self.assertEqual((seen["allocated"], seen["unused"]), (300 * MIB, 300 * MIB))
        self.assertEqual(seen["largest"], seen["free"] + 300 * MIB)
        self.assertRegex(seen["text"], r"^cuda:0: at least [\d.]+ GiB available, at least [\d.]+ GiB in one block \(driver")


def segment(*blocks, kind="large", stream=0, pool=(0, 0), device=0, expandable=False, address=0):
    """A segment of blocks, as (state, MiB): i = inactive, a = allocated, p = pending."""
    states = {"i": "inactive", "a": "active_allocated", "p": "active_pending_free"}
    listed = [{"state": states[state], "size": int(size * MIB)} for state, size in blocks]
    return {"device": device, "address": address, "total_size": sum(block["size"] for block in listed), "stream": stream,
            "segment_type": kind, "segment_pool_id": pool, "is_expandable": expandable, "blocks": listed}


def room(*segments, free=0, limit=None, stream=0, rules=None):
    rules = rules or Rules()
    sums = _largest.sums(list(segments), 0, stream, rules)
    return measured(0, stream, free * MIB, 1000 * MIB, None if limit is None else limit * MIB, sums, rules)


class Arithmetic(unittest.TestCase):
    def test_holes_do_not_add_up_to_one_block(self):
        found = room(segment(("i", 30), ("a", 10), ("i", 30), ("a", 10)))
        self.assertEqual((found.available_bytes, found.largest_block_bytes), (60 * MIB, 30 * MIB))

    def test_whole_segments_add_up_with_what_the_driver_has(self):
        found = room(segment(("i", 40)), segment(("i", 60), address=1, stream=7), free=20)
        self.assertEqual((found.releasable_bytes, found.largest_block_bytes), (100 * MIB, 120 * MIB))

    def test_pending_blocks_are_waited_for_but_serve_nobody_as_they_are(self):
        found = room(segment(("p", 40)), segment(("p", 30), ("a", 10), address=1))
        self.assertEqual((found.pending_bytes, found.cached_bytes), (70 * MIB, 0))
        self.assertEqual(found.largest_block_bytes, 40 * MIB)

    def test_other_streams_and_devices_and_pools_give_no_holes(self):
        found = room(segment(("i", 30), ("a", 1), stream=7), segment(("i", 50), device=1), segment(("i", 20), pool=(0, 3)))
        self.assertEqual((found.unusable_bytes, found.available_bytes, found.reserved_bytes), (50 * MIB, 0, 51 * MIB))

    def test_the_limit_of_the_process_counts(self):
        found = room(segment(("a", 50)), segment(("i", 20), address=1), free=500, limit=100)
        self.assertEqual((found.available_bytes, found.largest_block_bytes), (50 * MIB, 50 * MIB))

    def test_a_limit_that_is_passed_already_leaves_the_cache(self):
        found = room(segment(("a", 50), ("i", 40)), free=500, limit=60)
        self.assertEqual((found.available_bytes, found.largest_block_bytes), (40 * MIB, 40 * MIB))

    def test_small_blocks_serve_small_requests_and_small_rests_of_large_ones_nobody(self):
        found = room(segment(("i", 1.5), ("a", 0.5), kind="small"), segment(("i", 0.5), ("a", 19.5), address=9))
        self.assertEqual(found.largest_block_bytes, MIB)
        self.assertEqual((found.hole_bytes, found.unusable_bytes), (MIB + MIB // 2, MIB // 2))

    def test_middle_sized_requests_need_a_segment_of_20_mib(self):
        self.assertEqual(room(free=9).largest_block_bytes, MIB)
        self.assertEqual(room(free=10).largest_block_bytes, 10 * MIB)
        self.assertEqual(room(free=1).largest_block_bytes, 0)
        self.assertEqual(room(free=13).largest_block_bytes, 12 * MIB)

    def test_expandable_memory_grows_at_its_end_by_granules(self):
        run = segment(("a", 30), ("i", 10), expandable=True)
        found = room(run, free=70, rules=Rules(expandable=True))
        self.assertEqual(found.largest_block_bytes, (10 + 60) * MIB)
        run = segment(("a", 30), ("i", 30), expandable=True)
        found = room(run, free=10, rules=Rules(expandable=True))
        self.assertEqual((found.releasable_bytes, found.hole_bytes), (20 * MIB, 10 * MIB))
        self.assertEqual(found.largest_block_bytes, 30 * MIB)

    def test_expandable_memory_is_passed_over_while_the_option_is_off(self):
        found = room(segment(("a", 30), ("i", 10), expandable=True))
        self.assertEqual((found.hole_bytes, found.largest_block_bytes), (0, 0))

    def test_requests_are_rounded_as_the_settings_say(self):
        rules = Rules(divisions=(8,) * 16)
        for size in [1, 511, 512, 5000, 100_000, MIB - 1, MIB, 3 * MIB + 1, 130 * MIB, 1100 * MIB]:
            block = _largest.round_request(size, rules)
            largest = _largest.largest_request(block, rules)
            self.assertGreaterEqual(largest, size)
            self.assertEqual(_largest.round_request(largest, rules), block)
            self.assertGreater(_largest.round_request(largest + 1, rules), block)

    def test_of_other_allocators_no_more_is_said_than_is_known(self):
        sums = _largest.sums([segment(("i", 40)), segment(("i", 30), ("a", 9), address=1)], 0, 0, Rules())
        found = measured(0, 0, 20 * MIB, 1000 * MIB, None, sums, Rules(), exact=False)
        self.assertEqual((found.exact, found.largest_block_bytes), (False, 40 * MIB))

    def test_whole_pieces_that_move_serve_any_request_and_no_rest_of_one_does(self):
        rules = _largest.rules_of_pages(Rules())
        segments = [segment(("i", 5), ("a", 5), ("i", 30), expandable=True), segment(("p", 8), ("i", 4), address=1 << 40, expandable=True)]
        sums = _largest.sums(segments, 0, 0, rules)
        found = measured(0, 0, 20 * MIB, 1000 * MIB, None, sums, rules, exact=False, movable=34 * MIB)
        self.assertEqual((found.largest_block_bytes, found.releasable_bytes), ((34 + 20) * MIB, 34 * MIB))
        self.assertEqual(found.available_bytes, 55 * MIB, "and the first MiB, a rest of a page")
        found = measured(0, 0, 20 * MIB, 1000 * MIB, 35 * MIB, sums, rules, exact=False, movable=34 * MIB)
        self.assertEqual(found.largest_block_bytes, 30 * MIB, "a hole, larger than the limit leaves room for")

    def test_a_negative_size_fits_nowhere(self):
        self.assertFalse(room(free=100).fits(-1))
        self.assertTrue(room(free=100).fits(100 * MIB))
        self.assertTrue(room(free=100).fits(100.0 * MIB) and room(free=100).fits("100MiB"))
        self.assertFalse(room(free=100).fits("101MiB"))
        with self.assertRaisesRegex(TypeError, "not None"):
            room(free=100).fits(None)


class WithoutADevice(unittest.TestCase):
    def test_the_error_says_what_is_missing(self):
        with mock.patch.dict(sys.modules, {"torch": None}), self.assertRaises(vramwise.VramwiseError) as caught:
            vramwise.headroom()
        self.assertEqual(caught.exception.missing, "torch")


if __name__ == "__main__":
    unittest.main()
