"""``python -m allocator_checks native|ours [NAME...]``: runs checks and prints their facts as JSON."""

import importlib
import json
import sys
import traceback

from .registry import CHECKS, fresh

for module in ("statistics", "history", "pools", "failures"):
    importlib.import_module(f"{__package__}.{module}")


def main():
    which, *names = sys.argv[1:]
    import torch

    if which == "ours":
        import vramwise

        vramwise.install_allocator(required=True)
    torch.cuda.init()
    facts = {"backend": torch.cuda.get_allocator_backend()}
    for name, function in CHECKS.items():
        if names and name not in names:
            continue
        fresh(torch)
        try:
            facts[name] = {"facts": function(torch)}
        except Exception:
            facts[name] = {"error": traceback.format_exc(limit=-4)}
    print("FACTS " + json.dumps(facts))


main()
