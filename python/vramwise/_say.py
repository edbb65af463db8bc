"""Warnings that never become errors: what this package has to say must not stop the program it watches."""

from __future__ import annotations

import contextlib
import sys
import warnings


def warn(message: str) -> None:
    """Issues a ``RuntimeWarning``; prints it on standard error where warnings are made errors."""
    try:
        # The line named is of no use here, since it may be one inside the allocator.
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except Exception:  # noqa: BLE001  (a warning that is made an error is one of any class)
        with contextlib.suppress(Exception):
            print(f"vramwise: {message}", file=sys.stderr)
