"""``python -m vramwise``: the program that this package brings, for where it is not on the search path."""

from __future__ import annotations

import os
import sys

from ._program import environment, program


def main() -> None:
    """Becomes the program."""
    path = program()
    os.execve(path, [path, *sys.argv[1:]], environment())  # noqa: S606


if __name__ == "__main__":
    main()
