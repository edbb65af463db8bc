"""Who asked for what could not be given: the stack of a failed request, where the history has none for it.

Where only some steps have stacks, the one request whose stack everybody wants to see may be without. PyTorch tells of
its failure on the thread that asked, before anything is unwound, so Python's own frames are there to be read.
"""

from __future__ import annotations

import sys
from typing import Any

# As deep as anybody reads; a recursion has more.
_DEEPEST = 200
# The entry of the failure is the last one, unless another thread has added some in between.
_LAST = 64

Frames = list[dict[str, Any]]


def frames_here(depth: int) -> Frames:
    """The Python frames of this thread, innermost first, in the form of PyTorch's snapshots; no frame is kept.

    Args:
        depth: so many callers are left out; 0 begins with who called this.
    """
    found: Frames = []
    frame = sys._getframe(1)
    for _ in range(depth):
        if frame.f_back is None:
            return found
        frame = frame.f_back
    here: Any = frame
    while here is not None and len(found) < _DEEPEST:
        code = here.f_code
        found.append({"name": code.co_name, "filename": code.co_filename, "line": here.f_lineno or 0})
        here = here.f_back
    return found


def tell_who_asked(snapshot: dict[str, Any], device: int, frames: Frames) -> None:
    """Gives the last failure of a device's history its stack, where it has none.

    >>> snapshot = {"device_traces": [[{"action": "oom", "size": 1}]]}
    >>> tell_who_asked(snapshot, 0, [{"name": "train", "filename": "train.py", "line": 7}])
    >>> snapshot["device_traces"][0][0]["frames"][0]["line"]
    7
    """
    traces = snapshot.get("device_traces", [])
    if not frames or not 0 <= device < len(traces):
        return
    for entry in reversed(traces[device][-_LAST:]):
        if entry.get("action") == "oom":
            if not entry.get("frames"):
                entry["frames"] = frames
            return
