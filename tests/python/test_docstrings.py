"""Every parameter of a public function is spoken of in its documentation, by its name."""

import importlib
import inspect
import re
import unittest

import batch_support  # noqa: F401 - makes the package importable
import vramwise

# What a user imports and no other framework is needed for: one that is loaded here would meet other tests' stand-ins.
MODULES = [
    "vramwise",
    "vramwise.allocator",
    "vramwise.batch_size",
    "vramwise.callbacks._hooks",
    "vramwise.callbacks.loop",
    "vramwise.errors",
    "vramwise.files",
    "vramwise.microbatch",
    "vramwise.monitor",
    "vramwise.oom",
    "vramwise.recorder",
    "vramwise.settings",
]
# What Python calls by itself: its parameters are the language's.
LANGUAGES = re.compile(r"__\w+__$")


def public(module):
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    for name in names:
        found = getattr(module, name)
        if inspect.isfunction(found) or inspect.isclass(found):
            yield name, found


def functions(name, found):
    """(name, function, documentation) of a public function, or of a class and its public methods."""
    if inspect.isfunction(found):
        yield name, found, inspect.getdoc(found) or ""
        return
    made = vars(found).get("__init__")
    if issubclass(found, Exception) or getattr(found, "_is_protocol", False):
        # Nobody makes them but this package.
        made = None
    if inspect.isfunction(made):
        yield name, made, f"{inspect.getdoc(found) or ''}\n{inspect.getdoc(made) or ''}"
    for method, value in vars(found).items():
        value = getattr(value, "__func__", value)
        if inspect.isfunction(value) and not method.startswith("_") and not LANGUAGES.match(method):
            yield f"{name}.{method}", value, inspect.getdoc(value) or ""


def missing(function, text):
    for one in inspect.signature(function).parameters.values():
        if one.name in ("self", "cls") or one.name.startswith("_"):
            continue
        if not re.search(rf"(?<!\w){re.escape(one.name)}(?!\w)", text):
            yield one.name


class Docstrings(unittest.TestCase):
    maxDiff = None

    def test_every_parameter_is_spoken_of(self):
        silent, seen = {}, set()
        for module in MODULES:
            for name, found in public(importlib.import_module(module)):
                home = getattr(found, "__module__", "")
                if not home.startswith("vramwise") or (home, found.__qualname__) in seen:
                    continue
                seen.add((home, found.__qualname__))
                for shown, function, text in functions(name, found):
                    left_out = list(missing(function, text))
                    if left_out:
                        silent[f"{home}.{shown}"] = left_out
        self.assertGreater(len(seen), 40)
        self.assertEqual(silent, {})
        self.assertTrue(vramwise.__all__)


if __name__ == "__main__":
    unittest.main()
