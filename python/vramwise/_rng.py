"""The states of the random number generators that a training step draws from."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any

from ._torch_access import torch_if_loaded


class RngState:
    """Remembers, when made, where the generators of Python, NumPy and torch (CPU and every CUDA device) stand.

    Generators that the program made itself (``torch.Generator()``) are not known, and go on.
    """

    def __init__(self) -> None:
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = None
        with contextlib.suppress(AttributeError):
            self._numpy = numpy.random.get_state() if numpy is not None else None
        self._torch: Any = None
        self._cuda: list[Any] = []
        torch = torch_if_loaded()
        if torch is not None:
            self._torch = torch.get_rng_state()
            # The states of generators are on the host: reading them waits for no kernel.
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                self._cuda = torch.cuda.get_rng_state_all()

    def restore(self) -> None:
        """Puts the generators back to where they stood."""
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        torch = torch_if_loaded()
        if torch is not None and self._torch is not None:
            torch.set_rng_state(self._torch)
            for device, state in enumerate(self._cuda):
                torch.cuda.set_rng_state(state, device)
