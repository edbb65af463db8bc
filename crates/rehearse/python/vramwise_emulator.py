"""The emulated device's own entry points, for what runs inside the rehearsed program."""

import ctypes


def entry(name, *arguments):
    """One of them, which takes such arguments; None where the process's libcuda is another."""
    try:
        function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    except (OSError, AttributeError):
        return None
    function.argtypes = arguments
    return function


class Device:
    """The emulated device's own functions, as far as it has them."""

    def __init__(self):
        self._next = entry("vramwise_answer_next_copy", ctypes.c_char_p, ctypes.c_size_t)
        self._begins = entry("vramwise_operation_begins", ctypes.c_void_p, ctypes.c_size_t)
        self._ends = entry("vramwise_operation_ends")

    def answer(self, copies):
        for raw in copies if self._next else ():
            self._next(raw, len(raw))

    def forget(self):
        """What was not asked for answers nothing else: no copy has this size."""
        if self._next:
            self._next(b"", 0)

    def begin(self, known):
        """From now on an operation runs, of whose inputs these are known, as (address, bytes): what it reads elsewhere
        are zeros."""
        if self._begins:
            self._begins((ctypes.c_uint64 * (2 * len(known)))(*(n for place in known for n in place)), len(known))

    def end(self):
        """The operation has run: how often it read what nothing is known of."""
        return self._ends() if self._ends else 0
