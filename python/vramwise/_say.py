"""Warnings that never become errors: what this package has to say must not stop the program it watches."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# A block for ``with`` that is made of a generator is entered there.
_BETWEEN = contextlib.__file__


def warn(message: str) -> None:
    """Issues a ``RuntimeWarning`` at the user's line; prints it on standard error where warnings are made errors.

    Args:
        message: what it says.
    """
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=user_level())
    except Exception:  # noqa: BLE001  (a warning that is made an error is one of any class)
        with contextlib.suppress(Exception):
            print(f"vramwise: {message}", file=sys.stderr)


def user_level() -> int:
    """The ``stacklevel`` for the caller's ``warnings.warn`` that names the first line outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_code.co_filename.startswith(_PACKAGE) or frame.f_code.co_filename == _BETWEEN:
        if frame.f_back is None:
            return 2
        frame, level = frame.f_back, level + 1
    return level
