"""Records what PyTorch's allocator does, and writes it to files when something happens.

PyTorch keeps the history itself; this package switches it on with a bound, says where steps end, and
writes snapshots: when memory runs out, on a signal, at the end, every so many steps, when reserved
memory grows past a threshold, or when asked. Not here: reading the files, which ``vramwise.read`` and
the program ``vramwise`` do.
"""

from __future__ import annotations

from .front import record, start_recording
from .options import Options
from .recorder import Recorder

__all__ = ["Options", "Recorder", "record", "start_recording"]
