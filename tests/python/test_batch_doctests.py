"""The examples in the docstrings of batch search, micro-batches and the plugin."""

import doctest
import importlib
import unittest

import batch_support  # noqa: F401 (makes the package importable)

MODULES = (
    "_rehearsed_pytest",
    "batch_size.bracket",
    "batch_size.finder",
    "batch_size.search",
    "microbatch.size",
    "microbatch.trees",
    "oom",
)


def load_tests(loader, tests, pattern):
    for name in MODULES:
        tests.addTests(doctest.DocTestSuite(importlib.import_module(f"vramwise.{name}")))
    return tests


if __name__ == "__main__":
    unittest.main()
