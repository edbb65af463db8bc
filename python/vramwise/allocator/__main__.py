"""``python -m vramwise.allocator``: can it be installed here? ``--build DIR`` compiles the shim for this PyTorch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    """Does what the arguments say; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m vramwise.allocator", description=__doc__)
    parser.add_argument("--build", metavar="DIR", type=Path, help="compile the shim for this PyTorch into a directory")
    arguments = parser.parse_args()
    from ..errors import VramwiseError
    from . import _shim, install_allocator

    try:
        if arguments.build is not None:
            import torch

            print(_shim.build(torch, arguments.build))
            return 0
        status = install_allocator(required=True)
    except (VramwiseError, ImportError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"can be installed\nPyTorch  {status.torch}\nengine   {status.engine}\nshim     {status.shim}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
