"""The examples in the docstrings of what records, logs and adjusts."""

import doctest
import importlib
import sys
import unittest

import emulated

sys.path.insert(0, str(emulated.PACKAGE))

MODULES = ["_counters", "_largest", "_sizes", "_torch_access", "available", "settings.strings", "recorder.callers", "recorder.names", "recorder.options",
           "recorder.sampling"]


class Docstrings(unittest.TestCase):
    def test_examples_are_true(self):
        for name in MODULES:
            with self.subTest(name):
                found = doctest.testmod(importlib.import_module(f"vramwise.{name}"))
                self.assertGreater(found.attempted, 0)
                self.assertEqual(found.failed, 0)


if __name__ == "__main__":
    unittest.main()
