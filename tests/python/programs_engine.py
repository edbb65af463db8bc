"""Random operations on the allocator's engine over whatever driver is loaded; every rule of its state is checked on the way.

    python programs_engine.py LIBRARY OPERATIONS

Needs no PyTorch. Run by test_allocator_engine.py on the emulated driver.
"""

import ctypes
import os
import random
import sys
import threading

U64, I32, INT, POINTER = ctypes.c_uint64, ctypes.c_int32, ctypes.c_int, ctypes.c_void_p
OK, OUT_OF_MEMORY, UNKNOWN_ADDRESS, INVALID, NOT_READY = 0, 1, 2, 3, 5


class Pool(ctypes.Structure):
    _fields_ = [("first", U64), ("second", U64)]


class Block(ctypes.Structure):
    _fields_ = [
        *((name, U64) for name in ("address", "size", "requested", "stream")),
        ("pool", Pool),
        ("device", I32),
        ("small", ctypes.c_uint8),
        ("state", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 2),
    ]


class Engine:
    """The functions of the table that are used here, in the order of the header."""

    NAMES = (
        "init set_settings settings last_message driver_calls movable set_hooks alloc free record_stream find base shortage count_oom pool_retain "
        "pool_release pool_users capture_begin capture_end pool_use_on_oom pool_restore empty_cache set_memory_fraction "
        "memory_fraction largest_free stats reset_peak_stats reset_accumulated_stats walk enable_peer share check"
    ).split()

    def __init__(self, library):
        self.loaded = ctypes.CDLL(library)
        self.loaded.vramwise_engine_table.restype = POINTER
        assert self.loaded.vramwise_engine_table(99) is None
        table = ctypes.cast(self.loaded.vramwise_engine_table(3), ctypes.POINTER(U64))
        addresses = {name: table[1 + index] for index, name in enumerate(self.NAMES)}

        def function(name, result, *arguments):
            return ctypes.CFUNCTYPE(result, *arguments)(addresses[name])

        self.init = function("init", INT, I32)
        self.set_settings = function("set_settings", INT, I32, ctypes.c_char_p)
        self.last_message = function("last_message", ctypes.c_char_p)
        self.alloc = function("alloc", INT, I32, U64, U64, Pool, ctypes.POINTER(Block))
        self.free = function("free", INT, U64, ctypes.POINTER(Block))
        self.record_stream = function("record_stream", INT, U64, U64)
        self.find = function("find", INT, U64, ctypes.POINTER(Block))
        self.pool_retain = function("pool_retain", INT, I32, Pool)
        self.pool_release = function("pool_release", INT, I32, Pool)
        self.empty_cache = function("empty_cache", INT, I32, Pool)
        self.check = function("check", INT, I32)


DEFAULT, PRIVATE = Pool(0, 0), Pool(0, 7)


def work(engine, device, seed, operations, failures):
    rng = random.Random(seed)
    live, block = [], Block()
    try:
        for step in range(operations):
            if not live or rng.random() < 0.53:
                top = rng.choice((12, 20, 25))
                size = int(2 ** rng.uniform(0, top)) + 1
                pool = PRIVATE if rng.random() < 0.1 else DEFAULT
                status = engine.alloc(device, 0, size, pool, ctypes.byref(block))
                if status == OUT_OF_MEMORY:
                    for address in live:
                        assert engine.free(address, None) == OK
                    live = []
                    continue
                assert status == OK, engine.last_message()
                assert block.size >= size and block.address % 512 == 0 and block.requested == size
                live.append(block.address)
            else:
                at = rng.randrange(len(live))
                live[at], live[-1] = live[-1], live[at]
                assert engine.free(live.pop(), ctypes.byref(block)) == OK
                # The address itself may be another thread's by now; the middle of a unit is nobody's.
                assert engine.free(block.address + 1, None) == UNKNOWN_ADDRESS
            if step % 997 == 0:
                assert engine.check(device) == OK, engine.last_message()
            if step % 3001 == 0:
                assert engine.empty_cache(device, DEFAULT) == OK
            if step % 4001 == 0:
                text = rng.choice(("limit:none", "limit:512MiB", "slack:3%,handle_share:16", "slack:0,handle_share:512"))
                assert engine.set_settings(device, text.encode()) == OK
        for address in live:
            assert engine.free(address, None) == OK
    except BaseException as error:
        failures.append(error)
        raise


def main():
    engine = Engine(sys.argv[1])
    operations = int(sys.argv[2])
    block = Block()
    assert engine.alloc(0, 0, 1, DEFAULT, ctypes.byref(block)) == NOT_READY
    assert engine.free(0x1234, None) == UNKNOWN_ADDRESS
    assert engine.set_settings(-2, b"slack:3%") == OK and engine.set_settings(-2, b"slack:7") == INVALID
    assert engine.set_settings(-1, b"slack:7") == INVALID and b"slack" in engine.last_message()
    assert engine.init(2) == OK, engine.last_message()
    assert engine.alloc(5, 0, 1, DEFAULT, ctypes.byref(block)) == NOT_READY
    assert engine.alloc(0, 0, 1 << 60, DEFAULT, ctypes.byref(block)) == OUT_OF_MEMORY
    for device in (0, 1):
        assert engine.pool_retain(device, PRIVATE) == OK
    failures = []
    arguments = [(engine, device, seed, operations, failures) for device in (0, 1) for seed in (1, 2)]
    threads = [threading.Thread(target=work, args=each) for each in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for device in (0, 1):
        assert engine.check(device) == OK, engine.last_message()
        assert engine.pool_release(device, PRIVATE) == OK
        assert engine.empty_cache(device, DEFAULT) == OK
        assert engine.check(device) == OK, engine.last_message()
    child = os.fork()
    if child == 0:
        refused = engine.alloc(0, 0, 512, DEFAULT, ctypes.byref(block)) == NOT_READY
        os._exit(0 if refused and engine.free(block.address, None) == OK else 1)
    assert os.waitpid(child, 0)[1] == 0
    print("sound")


if __name__ == "__main__":
    main()
