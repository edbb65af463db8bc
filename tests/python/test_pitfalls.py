"""What docs/pitfalls.md says of PyTorch, held against it."""

import json
import unittest
from importlib.metadata import version
from pathlib import Path

import emulated

WHY_NOT = emulated.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Pitfalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = emulated.run(Path(__file__).resolve().parent / "programs" / "pitfalls_cases.py",
                            env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:100", "PYTORCH_CUDA_ALLOC_CONF_0": "max_split_size_mb:200",
                                 "PYTORCH_ALLOC_CONF": "roundup_power2_divisions:8"})
        if done.returncode:
            raise AssertionError(done.stderr)
        cls.seen = json.loads(done.stdout)

    def test_variables_are_read_once_and_numbers_behind_them_by_nobody(self):
        self.assertEqual(self.seen["split"], 100)

    def test_the_second_variable_is_not_read_where_the_first_is_set(self):
        self.assertEqual(self.seen["rounding"], [0])

    def test_the_first_variable_counts_even_if_it_is_empty(self):
        program = (
            "import torch; torch.empty(1, device='cuda');"
            "print(torch.cuda.memory._snapshot()['allocator_settings']['max_split_size'])"
        )
        second = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:200"}
        known = tuple(map(int, version("torch").split(".")[:2])) >= (2, 10)
        for first, split in (({}, 200 << 20 if known else -1), ({"PYTORCH_CUDA_ALLOC_CONF": ""}, -1), ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:100"}, 100 << 20)):
            with self.subTest(first):
                done = emulated.run("-c", program, env={**first, **second})
                self.assertEqual(done.stdout.strip(), str(split), done.stderr)

    def test_keys_that_are_not_there(self):
        self.assertEqual(self.seen["keys"], [False, False, False, True])

    def test_empty_cache_gives_back_whole_segments_only(self):
        self.assertEqual(self.seen["given_back"], 200)
        self.assertGreaterEqual(self.seen["stays"], 5 * 12)

    def test_the_allocator_empties_its_cache_by_itself(self):
        self.assertEqual(self.seen["flushed_by_itself"], 1)

    def test_a_history_begun_in_the_handler_is_empty(self):
        self.assertEqual(self.seen["too_late"], 0)

    def test_the_exception_keeps_what_the_failed_step_held(self):
        self.assertEqual((self.seen["inside_the_handler"], self.seen["stored"], self.seen["outside"]), (64, 64, 0))

    def test_the_observer_sees_the_state_that_had_no_room_and_its_own_error_takes_the_place_of_the_other(self):
        self.assertEqual(self.seen["observer"], [64, 0])
        self.assertEqual(self.seen["kinds"], ["OutOfMemoryError", "ValueError"])

    def test_the_old_name_of_the_function_warns_and_allocates_nothing(self):
        # Up to 2.8 it was the only name.
        self.assertIn(self.seen["old_name"], ([["FutureWarning"], 0], [[], 0]))

    def test_expandable_memory_counts_no_split_bytes(self):
        self.assertEqual(self.seen["split_bytes_of_expandable"], 0)


if __name__ == "__main__":
    unittest.main()
