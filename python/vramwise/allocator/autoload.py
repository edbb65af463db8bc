"""What ``import torch`` calls at its end (entry point group ``torch.backends``).

Nothing happens unless VRAMWISE_ALLOCATOR is set: to 1, or to the allocator's settings. No exception leaves this module,
as it would make ``import torch`` fail.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "VRAMWISE_ALLOCATOR"
_tried = False  # `vramwise run` and the entry point may both call


def autoload() -> None:
    """Installs the allocator if the environment asks for it."""
    global _tried
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted.lower() in ("", "0", "false", "off", "no") or _tried:
        return
    _tried = True
    settings = None if wanted.lower() in ("1", "true", "on", "yes") else wanted
    try:
        from ._install import install_allocator

        install_allocator(settings)
    except Exception as error:  # noqa: BLE001  (whatever it is, torch must be imported)
        print(f"vramwise: {VARIABLE}: {error}; PyTorch's own allocator is used", file=sys.stderr)
