"""The device: a number of bytes, with a limit that the rehearsal's file tells."""

import json
import os
import pickle
import types

_ROOM = os.environ.get("VRAMWISE_REHEARSAL")
with open(os.path.join(_ROOM, "emulator.json")) as _file:
    CONFIG = json.load(_file)

CONTEXT = 1 << 20
_state = {"held": 0, "peak": 0, "observers": [], "queued": [], "started": False}


def _start():
    if not _state["started"]:
        _state["started"] = True
        for call in _state["queued"]:
            call()


def allocate(size):
    """Holds bytes, or raises as torch does."""
    import torch

    _start()
    total = CONFIG["memory_bytes"]
    free = total - CONTEXT - _state["held"]
    if size > free:
        for observer in _state["observers"]:
            observer(0, size, total, free)
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
    _state["held"] += size
    _state["peak"] = max(_state["peak"], _state["held"])
    report = {
        "schema": 1,
        "pid": os.getpid(),
        "devices": [{"total_bytes": total, "context_bytes": CONTEXT, "peak_bytes": _state["peak"] + CONTEXT}],
        "convolutions": {"measured": 3, "unmeasured": 0},
    }
    with open(os.path.join(_ROOM, f"device.{os.getpid()}.json"), "w") as file:
        json.dump(report, file)


def free(size):
    """Gives bytes back."""
    _state["held"] -= size


def _memory_stats(_device=0):
    return {
        "allocated_bytes.all.current": _state["held"],
        "allocated_bytes.all.peak": _state["peak"],
        "reserved_bytes.all.current": _state["peak"],
        "reserved_bytes.all.peak": _state["peak"],
    }


def _reset_peak(_device=0):
    _state["peak"] = _state["held"]


def _dump_snapshot(path):
    with open(path, "wb") as file:
        pickle.dump({"segments": [], "device_traces": [[]], "allocator_settings": {}}, file)


def _no_driver():
    raise RuntimeError("Found no NVIDIA driver on your system.\nThis one is made of Python.")


interface = types.SimpleNamespace(
    _cuda_attach_out_of_memory_observer=_state["observers"].append,
    _cuda_resetPeakMemoryStats=_reset_peak,
)
cuda = types.SimpleNamespace(
    _lazy_call=_state["queued"].append,
    is_available=lambda: False,
    init=_no_driver,
    allocate=allocate,
    free=free,
    device_count=lambda: CONFIG["devices"],
    memory_stats=_memory_stats,
    get_device_name=lambda _device=None: CONFIG["profile"]["name"],
    memory=types.SimpleNamespace(
        _record_memory_history=lambda *_, **__: None, _dump_snapshot=_dump_snapshot
    ),
)
