"""The checks by name, and what several of them use."""

import gc
import os

CHECKS = {}
MIB = 1 << 20


def check(function):
    CHECKS[function.__name__] = function
    return function


def minor(torch):
    return int(torch.__version__.split(".")[1])


def fresh(torch):
    """Nothing alive, nothing cached, counters at zero."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


def current(torch, *names):
    stats = torch.cuda.memory_stats()
    return {name: stats[name] for name in names}


def raised(call, *arguments, **named):
    """The type of what a call raises, by name."""
    try:
        call(*arguments, **named)
    except Exception as error:
        return type(error).__name__
    return None


def here(file):
    return os.path.basename(file)
