"""What a recorder does in a program, one scenario after the other; prints what it saw as JSON.

Run by test_recorder.py on the emulated device, in an empty folder.
"""

import contextlib
import gc
import json
import os
import pickle
import resource
import signal
import sys
import warnings
import weakref
from pathlib import Path

import torch

import vramwise
from vramwise.recorder import history

TOO_MUCH = 1 << 42
seen = {}


def scenario(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen[function.__name__] = answer = function() or {}
    answer["warnings"] = [str(w.message) for w in caught if w.category is RuntimeWarning]


def files(folder):
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def ask_too_much():
    return torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")


def is_on():
    return bool(torch._C._cuda_isHistoryEnabled())


@scenario
def nothing_has_begun():
    # PyTorch has no allocator yet.
    return {"on": history.is_on(torch), "began": torch.cuda.is_initialized()}


@scenario
def a_training():
    with vramwise.record("training", every=2, keep=1, above="300MiB", context="all") as recorder:
        for number in range(6):
            model = torch.nn.Linear(500, 500, device="cuda")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(torch.ones(10, 500, device="cuda")).sum().backward()
            optimizer.step()
            if number == 3:
                big = torch.empty(400 << 20, dtype=torch.uint8, device="cuda")
            recorder.step()
        with recorder.phase("evaluation"):
            rest = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
        caught = None
        try:
            ask_too_much()
        except torch.OutOfMemoryError as error:
            caught = str(error)
        del big, rest
        inside = is_on()
    return {"files": files("training"), "listed": [p.name for p in recorder.files], "steps": recorder.steps,
            "error": caught, "on_inside": inside, "on_after": is_on(), "failures": recorder.failures}


@scenario
def an_error_that_leaves_the_block():
    def train():
        held = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        train.held = weakref.ref(held)
        ask_too_much()

    before = torch.cuda.memory_allocated()
    kind = text = None
    try:
        with vramwise.record("leaves"):
            train()
    except Exception as error:
        kind, text, notes = type(error).__name__, str(error), getattr(error, "__notes__", [])
        context = error.__context__
    gc.collect()
    return {"kind": kind, "text": text, "notes": notes, "context": repr(context), "files": files("leaves"),
            "alive": train.held() is not None, "allocated": torch.cuda.memory_allocated() - before}


@scenario
def errors_of_libraries():
    with contextlib.suppress(RuntimeError), vramwise.record("library"):
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    with contextlib.suppress(ValueError), vramwise.record("other"):
        raise ValueError("nothing about memory")
    return {"library": files("library"), "other": files("other")}


@scenario
def failures_again_and_again():
    with vramwise.record("often", oom_limit=2, at_end=False) as recorder:
        for _ in range(5):
            with contextlib.suppress(torch.OutOfMemoryError):
                ask_too_much()
    return {"files": files("often"), "failures": recorder.failures}


@scenario
def a_folder_that_cannot_be():
    Path("file").write_text("no folder")
    kind = None
    with vramwise.record("file/folder") as recorder:
        try:
            ask_too_much()
        except Exception as error:
            kind = type(error).__name__
        recorder.dump()
    return {"kind": kind, "failures": recorder.failures}


@scenario
def warnings_made_errors():
    kind = None
    with vramwise.record("file/folder"):
        warnings.simplefilter("error")
        try:
            ask_too_much()
        except BaseException as error:
            kind = type(error).__name__
        warnings.simplefilter("always")
    return {"kind": kind}


@scenario
def a_full_disk():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with vramwise.record("full", at_end=False) as recorder:
        for _ in range(2000):
            torch.empty(1000, device="cuda")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            failed = recorder.dump()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        left = files("full")
        worked = recorder.dump()
    return {"failed": failed, "left": left, "worked": worked is not None, "files": files("full")}


@scenario
def control_c_while_writing():
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    whole, kinds = pickle.dump, []
    with vramwise.record("interrupted", at_end=False) as recorder:
        for ask in (recorder.dump, ask_too_much):
            pickle.dump = interrupted
            try:
                ask()
            except BaseException as error:
                kinds.append(type(error).__name__)
            finally:
                pickle.dump = whole
        left = files("interrupted")
        again = recorder.dump()
    return {"kinds": kinds, "left": left, "again": again is not None}


@scenario
def recorders_in_each_other():
    outer = vramwise.record("outer", at_end=False).start()
    with vramwise.record("inner", max_entries=10, at_end=False) as inner:
        twin = vramwise.start_recording("outer", at_end=False)
        with contextlib.suppress(torch.OutOfMemoryError):
            ask_too_much()
        twin.stop()
    on_with_outer = is_on()
    outer.start()
    outer.stop()
    outer.stop()
    return {"outer": files("outer"), "inner": files("inner"), "notes": inner.notes, "on_with_outer": on_with_outer,
            "on_after": is_on()}


@scenario
def a_history_that_the_program_began():
    torch.cuda.memory._record_memory_history(max_entries=500)
    with vramwise.record("joined") as recorder:
        torch.empty(1000, device="cuda")
    on = is_on()
    torch.cuda.memory._record_memory_history(None)
    return {"on_after": on, "notes": recorder.notes, "files": files("joined")}


@scenario
def a_history_that_the_program_ends():
    with vramwise.record("ended") as recorder:
        torch.empty(1000, device="cuda")
        torch.cuda.memory._record_memory_history(None)
    return {"notes": recorder.notes, "files": files("ended")}


@scenario
def signals():
    calls = []
    signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    mine = signal.getsignal(signal.SIGUSR1)
    with vramwise.record("signal", on_signal="SIGUSR1", at_end=False):
        with vramwise.record("signal2", on_signal="usr2", at_end=False):
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR2)
    restored = signal.getsignal(signal.SIGUSR1) is mine and signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
    return {"one": files("signal"), "two": files("signal2"), "calls": len(calls), "restored": restored}


@scenario
def a_signal_while_writing():
    whole = pickle.dump

    def signalled(*args, **kwargs):
        signal.raise_signal(signal.SIGUSR2)
        return whole(*args, **kwargs)

    with vramwise.record("within", on_signal="SIGUSR2", at_end=False) as recorder:
        pickle.dump = signalled
        try:
            recorder.dump()
        finally:
            pickle.dump = whole
    return {"files": files("within")}


@scenario
def a_forked_child():
    with vramwise.record("parent", at_end=False, on_signal="SIGUSR2") as recorder:
        child = os.fork()
        if child == 0:
            recorder.step()
            recorder.dump()
            recorder.stop()
            os._exit(7 if recorder.recording or files("parent") else 5)
        status = os.waitpid(child, 0)[1]
        still = recorder.recording and is_on()
        recorder.dump()
    return {"status": os.waitstatus_to_exitcode(status), "still": still, "files": files("parent")}


@scenario
def files_never_replace_files():
    for _ in range(2):
        with vramwise.record("same"):
            torch.empty(1000, device="cuda")
    os.environ["RANK"], os.environ["WORLD_SIZE"] = "3", "8"
    with vramwise.record("same"):
        pass
    about = json.loads(Path("same/end_rank3.info").read_text())
    del os.environ["RANK"], os.environ["WORLD_SIZE"]
    return {"files": files("same"), "rank": about["rank"], "world_size": about["world_size"]}


def with_stacks(recorder):
    """By step, whether what the step allocated has stacks; the recorder's last file says so too."""
    trace = pickle.loads(recorder.dump().read_bytes())["device_traces"][0]
    return [bool(entry.get("frames")) for entry in trace if entry["action"] == "alloc" and entry["size"] == 12500]


@scenario
def stacks_in_some_steps():
    with vramwise.record("some", at_end=False) as recorder:
        for _ in range(45):
            torch.empty(12500, dtype=torch.uint8, device="cuda")
            recorder.step()
        steps = with_stacks(recorder)
    about = json.loads(recorder.files[0].with_suffix(".info").read_text())
    return {"some": steps, "told": about["recording"]["steps_with_stacks"], "stacks": about["recording"]["stacks"]}


@scenario
def stacks_where_something_is_new():
    with vramwise.record("new", at_end=False) as recorder:
        for number in range(16):
            torch.empty(12500, dtype=torch.uint8, device="cuda")
            if number == 5:
                kept = torch.empty(400 << 20, dtype=torch.uint8, device="cuda")
            if number == 12:
                with contextlib.suppress(torch.OutOfMemoryError):
                    ask_too_much()
            if number in (8, 9):
                with recorder.phase("evaluation"):
                    torch.empty(12500, dtype=torch.uint8, device="cuda")
            recorder.step()
        steps = with_stacks(recorder)
        del kept
    return {"new": steps}


@scenario
def who_asked_in_a_step_without_stacks():
    def asks():
        ask_too_much()

    def asked(**options):
        with vramwise.record("asked", at_end=False, **options) as recorder:
            for _ in range(5):
                recorder.step()
            with contextlib.suppress(torch.OutOfMemoryError):
                asks()
        trace = pickle.loads(recorder.files[0].read_bytes())["device_traces"][0]
        return [[frame["name"], os.path.basename(frame["filename"])] for frame in trace[-1].get("frames", [])]

    return {"auto": asked(), "python": asked(stacks="python"), "none": asked(context=None)}


@scenario
def stacks_where_another_goes_on():
    first = vramwise.record("goes on", at_end=False).start()
    with vramwise.record("goes on", at_end=False) as other:
        for _ in range(6):
            torch.empty(12500, dtype=torch.uint8, device="cuda")
            other.step()
            first.step()
        first.stop()
        torch.empty(12500, dtype=torch.uint8, device="cuda")
        other.step()
        torch.empty(12500, dtype=torch.uint8, device="cuda")
        steps = with_stacks(other)
    with vramwise.record("all", stacks="python", at_end=False) as recorder:
        for _ in range(6):
            torch.empty(12500, dtype=torch.uint8, device="cuda")
            recorder.step()
        every = with_stacks(recorder)
    with vramwise.record("none", context=None, at_end=False) as recorder:
        for _ in range(6):
            torch.empty(12500, dtype=torch.uint8, device="cuda")
            recorder.step()
        none = with_stacks(recorder)
    return {"steps": steps, "every": every, "none": none}


@scenario
def another_recorder_writes_of_sampled_steps():
    with vramwise.record("outer sampled", at_end=False) as outer:
        for _ in range(6):
            torch.empty(12500, dtype=torch.uint8, device="cuda")
            outer.step()
        with vramwise.record("inner sampled") as inner:
            pass
    return {"told": pickle.loads(inner.files[0].read_bytes()).get("vramwise_recorder")}


def records_itself(switch, **options):
    """Steps of a sampled recording, in the middle of which the program calls PyTorch's function by `switch`."""
    with vramwise.record("itself", **options) as recorder:
        for number in range(10):
            torch.empty(12500, dtype=torch.uint8, device="cuda")
            if number == 4:
                switch()
            recorder.step()
        steps = with_stacks(recorder)
    answer = {"steps": steps, "notes": recorder.notes, "on_after": is_on(), "writes": len(recorder.files)}
    about = json.loads(recorder.files[-1].with_suffix(".info").read_text())
    answer["told"] = about["recording"]["notes"]
    torch.cuda.memory._record_memory_history(None)
    return answer


@scenario
def the_program_records_itself_meanwhile():
    return records_itself(lambda: torch.cuda.memory._record_memory_history(max_entries=1000, stacks="python"))


@scenario
def the_program_records_itself_by_another_name():
    function = torch.cuda.memory._record_memory_history
    first = records_itself(lambda: function(max_entries=1000, stacks="python"))
    real = torch._C._cuda_record_memory_history
    return {**first, "put_back": real.__name__ == "_cuda_record_memory_history" and not hasattr(real, "__wrapped__")}


@scenario
def the_program_records_itself_in_the_old_way():
    return records_itself(lambda: torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=1000,
                                                                           trace_alloc_record_context=True))


@scenario
def nothing_is_left_of_it():
    from vramwise.recorder import triggers

    return {"at_work": len(triggers._at_work), "users": history.users(), "on": is_on()}


with vramwise.record("thrown", on_signal="SIGTERM", at_end=False):
    pass
seen["handler_of_sigterm"] = {"restored": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL}

# The last one ends with the process.
vramwise.start_recording("process")
torch.empty(1000, device="cuda")
json.dump(seen, sys.stdout)
