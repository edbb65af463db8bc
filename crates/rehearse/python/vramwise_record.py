"""Records the allocator's history, and writes it with the counters when the process ends.

Nothing here allocates device memory or holds a tensor: the program's own frees stay as they are.
"""

import atexit
import ctypes
import json
import os
import signal
import sys
import threading

from vramwise_emulator import entry

MAX_ENTRIES = 4_000_000


class _Recorder:
    def __init__(self, torch, config, room):
        self.torch, self.config, self.room = torch, config, room
        self.learns = not config.get("measures", True)
        self.pid = None  # the process in which CUDA was started
        self.written = False
        self.steps = 0
        self.ooms, self.oom = 0, None
        self.peaks = {}  # device -> highest peaks before a reset
        self.notes = []

    def start(self):
        """Called by torch when it has initialised CUDA and nothing is allocated yet."""
        self.pid = os.getpid()
        self.written = False
        _name_process(process_name())
        if self.learns:
            return
        record = self.torch.cuda.memory._record_memory_history
        try:
            record("all", context="alloc", stacks="python", max_entries=MAX_ENTRIES)
        except TypeError:  # the signature of torch 2.0
            record(True, trace_alloc_max_entries=MAX_ENTRIES, trace_alloc_record_context=True)
        self.torch.cuda.memory._record_memory_history = self._own_recording
        attach = getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)
        attach = attach or getattr(self.torch._C, "_cuda_attachOutOfMemoryObserver", None)
        if attach is not None:
            attach(self._out_of_memory)
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is not None and multiprocessing.parent_process() is not None:
            # Such processes end without atexit.
            from multiprocessing.util import Finalize

            Finalize(None, self.write, exitpriority=-1000)

    def _own_recording(self, *_args, **_kwargs):
        note = "the program's own call of _record_memory_history was passed over: all is recorded"
        if note not in self.notes:
            self.notes.append(note)

    def _out_of_memory(self, device, asked, total, free):
        self.ooms += 1
        if self.oom is None:
            stats = self.torch.cuda.memory_stats(device)
            self.oom = {
                "device": device,
                "tried_bytes": asked,
                "total_bytes": total,
                "free_bytes": free,
                "allocated_bytes": stats.get("allocated_bytes.all.current", 0),
                "reserved_bytes": stats.get("reserved_bytes.all.current", 0),
            }

    def keep_peaks(self, device):
        """Remembers the peaks that a reset is about to forget."""
        for name, value in self.torch.cuda.memory_stats(device).items():
            if name.endswith(".peak"):
                kept = self.peaks.setdefault(device, {})
                kept[name] = max(value, kept.get(name, 0))

    def stats(self, device):
        stats = dict(self.torch.cuda.memory_stats(device))
        for name, value in self.peaks.get(device, {}).items():
            stats[name] = max(value, stats.get(name, 0))
        return stats

    def count_step(self, optimizer, _args, _kwargs):
        """Ends the program after the wanted number of steps of one optimizer."""
        done = optimizer.__dict__.setdefault("_vramwise_steps", 0) + 1
        optimizer.__dict__["_vramwise_steps"] = done
        self.steps = max(self.steps, done)
        if done >= self.config["steps"]:
            if threading.current_thread() is threading.main_thread():
                raise SystemExit(0)
            signal.raise_signal(signal.SIGINT)

    def write(self):
        if self.pid == os.getpid() and not self.written:
            _leave_alone()
        _write_device_report()
        if self.pid != os.getpid() or self.written or self.learns:
            return
        self.written = True
        torch = self.torch
        place = os.path.join(self.room, f"snapshot.{self.pid}.pickle")
        # The files appear under their names only when they are whole.
        torch.cuda.memory._dump_snapshot(place + ".tmp")
        os.replace(place + ".tmp", place)
        report = {
            "schema": 1,
            "pid": self.pid,
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda,
            "cudnn": _cudnn(torch),
            "devices": [self.stats(n) for n in range(_device_count(torch))],
            "oom": dict(self.oom, count=self.ooms) if self.oom else None,
            "steps": self.steps if self.config.get("steps") else None,
            "notes": self.notes,
        }
        place = os.path.join(self.room, f"torch.{self.pid}.json")
        with open(place + ".tmp", "w") as file:
            json.dump(report, file)
        os.replace(place + ".tmp", place)


def _leave_alone():
    """What asks a whole group of processes to end (timeout, a batch system) asks twice, since it is handed on, too: what is
    being written is written."""
    if _is_main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _device_count(torch):
    """Devices that there are, whatever the program says of visible ones."""
    count = getattr(torch._C, "_cuda_getDeviceCount", None)
    return max(torch.cuda.device_count(), count() if count else 0)


def _write_device_report():
    """Has the emulated device write its own report: after an interrupt, Python ends without C's exit handlers."""
    write = entry("vramwise_write_report")
    if write is not None:
        write()


def process_name():
    """What tells this process from the program's others, the same in both passes; empty for a lonely one."""
    parts = []
    if os.environ.get("RANK"):
        parts.append(f"rank-{os.environ['RANK']}")
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        numbers = getattr(multiprocessing.current_process(), "_identity", ())
        parts.append("-".join(["process", *map(str, numbers)]))
    return "-".join(parts)


def _name_process(name):
    tell = entry("vramwise_name_process", ctypes.c_char_p)
    if tell is not None:
        tell(name.encode())


def _cudnn(torch):
    try:
        return torch.backends.cudnn.version()
    except Exception:
        return None


def install(torch, config, room):
    """Hooks what the recording needs; called when torch has been imported."""
    recorder = _Recorder(torch, config, room)
    cuda = torch.cuda
    if not hasattr(cuda, "_lazy_call"):
        return
    cuda._lazy_call(recorder.start)
    atexit.register(recorder.write)
    _before(os, "_exit", lambda *_: recorder.write())
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        if hasattr(torch._C, name):
            _before(torch._C, name, recorder.keep_peaks)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and _is_main_thread():
        signal.signal(signal.SIGTERM, _terminated)
    if config.get("steps"):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(recorder.count_step)
    name_of = cuda.get_device_name

    def get_device_name(device=None):
        return f"{name_of(device)} (emulated by vramwise)"

    get_device_name.__doc__ = name_of.__doc__
    cuda.get_device_name = get_device_name


def _is_main_thread():
    return threading.current_thread() is threading.main_thread()


def _before(module, name, first):
    """Has `first` called, with the same arguments, before the function of this name."""
    inner = getattr(module, name)

    def both(*args):
        try:
            first(*args)
        except Exception:
            pass
        return inner(*args)

    setattr(module, name, both)


_OWNER = os.getpid()


def _terminated(number, _frame):
    """A termination that still writes what was recorded; children keep the usual one."""
    if os.getpid() != _OWNER:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    raise SystemExit(128 + number)
