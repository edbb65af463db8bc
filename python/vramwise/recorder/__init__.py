"""Records what PyTorch's allocator does, and writes it to files when something happens.

PyTorch keeps the history itself; this package switches it on with a bound, says where steps end, and
writes snapshots: when memory runs out, on a signal, at the end, every so many steps, when reserved
memory grows past a threshold, or when asked. Not here: reading the files, which ``vramwise.read`` and
the program ``vramwise`` do.
"""

from __future__ import annotations

from .options import Options as Options
from .recorder import Recorder as Recorder
from .recorder import record as record
from .recorder import start_recording as start_recording

__all__ = ["Options", "Recorder", "record", "start_recording"]
