"""The emulated device as C programs see it: called by its exported names, without PyTorch.

Each test runs a process of its own, since a device lives as long as its process. `VRAMWISE_LIB_DIR` names the folder
with both libraries; `cargo xtask test` builds them and sets it.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FOLDER = os.environ.get("VRAMWISE_LIB_DIR")
GIB = 1 << 30
MIB = 1 << 20

START = """
import ctypes as c
import os

def library(name):
    return c.CDLL(os.path.join(os.environ["VRAMWISE_LIB_DIR"], name))

cuda = library("libvramwise_emulator.so")

def call(name, *arguments):
    return getattr(cuda, name)(*arguments)

def ok(name, *arguments):
    code = call(name, *arguments)
    assert code == 0, (name, code)

def free_bytes():
    free, total = c.c_size_t(), c.c_size_t()
    ok("cudaMemGetInfo", c.byref(free), c.byref(total))
    return free.value, total.value

def malloc(size):
    at = c.c_void_p()
    return call("cudaMalloc", c.byref(at), c.c_size_t(size)), at
"""


@unittest.skipUnless(FOLDER, "VRAMWISE_LIB_DIR does not name the folder with the emulated device")
class EmulatedDevice(unittest.TestCase):
    def run_program(self, program, **config):
        """Runs a program with a card; gives what the device reports at its end."""
        with tempfile.TemporaryDirectory() as folder:
            profile = {"name": "A Card", "total_bytes": 8 * GIB, "compute_capability": [8, 9]}
            config = {"profile": profile, "context_bytes": 300 * MIB, "cuda": "13.0", **config}
            (Path(folder) / "emulator.json").write_text(json.dumps(config))
            done = subprocess.run([sys.executable, "-c", START + program], capture_output=True, text=True, check=False,
                                  env={**os.environ, "VRAMWISE_REHEARSAL": folder})
            self.assertEqual(done.returncode, 0, done.stderr)
            reports = list(Path(folder).glob("device.*.json"))
            self.assertEqual(len(reports), 1)
            return json.loads(reports[0].read_text())

    def test_there_are_as_many_cards_as_the_rehearsal_says(self):
        report = self.run_program("""
count = c.c_int()
ok("cudaGetDeviceCount", c.byref(count))
assert count.value == 3, count
assert call("cudaSetDevice", 2) == 0
assert call("cudaSetDevice", 3) == 101, "cudaErrorInvalidDevice"
assert call("cudaSetDevice", 4) == 101
assert call("cudaSetDevice", 3) == 101
assert call("cudaSetDevice", -1) == 101
""", devices=3)
        asked = [note for note in report["notes"] if "asked for device" in note]
        self.assertEqual(asked, ["the program asked for device 3, and there are 3: give it more with --gpus 4",
                                 "the program asked for device 4, and there are 3: give it more with --gpus 5"])

    def test_a_device_that_is_there_is_no_remark(self):
        report = self.run_program('assert call("cudaSetDevice", 0) == 0')
        self.assertEqual(report["notes"], [])

    def test_memory_is_taken_in_pages_and_given_back(self):
        report = self.run_program("""
before, total = free_bytes()
assert total == 8 << 30, total
code, at = malloc(3 << 20)
assert code == 0 and at.value
assert before - free_bytes()[0] == 4 << 20, "two pages of 2 MiB"
ok("cudaFree", at)
assert free_bytes()[0] == before
""")
        device = report["devices"][0]
        self.assertEqual(device["used_bytes"], device["context_bytes"])
        self.assertEqual(device["peak_bytes"] - device["context_bytes"], 4 * MIB)

    def test_what_does_not_fit_is_refused_and_the_next_request_is_served(self):
        self.run_program("""
code, at = malloc(9 << 30)
assert code == 2 and not at.value, "cudaErrorMemoryAllocation"
code, at = malloc(1 << 30)
assert code == 0 and at.value
""")

    def test_small_values_come_back_from_the_device(self):
        self.run_program("""
code, at = malloc(4096)
there, back = (c.c_double * 4)(1.5, -2.0, 3.25, 1e300), (c.c_double * 4)()
ok("cudaMemcpy", at, there, c.c_size_t(32), 1)
ok("cudaMemcpy", back, at, c.c_size_t(32), 2)
assert list(back) == list(there), list(back)
""")

    def test_after_a_kernel_no_old_value_is_read(self):
        report = self.run_program("""
code, at = malloc(4096)
there, back = (c.c_int * 2)(1058981217, 7), (c.c_int * 2)(5, 5)
ok("cudaMemcpy", at, there, c.c_size_t(8), 1)
class Dim3(c.Structure):
    _fields_ = [(axis, c.c_uint) for axis in "xyz"]
ok("cudaLaunchKernel", None, Dim3(1, 1, 1), Dim3(32, 1, 1), None, c.c_size_t(0), None)
ok("cudaMemcpy", back, at, c.c_size_t(8), 2)
assert list(back) == [0, 0], list(back)
""")
        self.assertEqual(report["values"]["unknown"], 1)

    def test_kernels_are_compiled_to_some_code(self):
        self.run_program("""
ok("cudaFree", None)
nvrtc = library("libvramwise_nvrtc.so")
program, size = c.c_void_p(), c.c_size_t()
assert nvrtc.nvrtcCreateProgram(c.byref(program), b"", b"", 0, None, None) == 0
assert nvrtc.nvrtcCompileProgram(program, 0, None) == 0
assert nvrtc.nvrtcGetPTXSize(program, c.byref(size)) == 0 and size.value > 0
code = c.create_string_buffer(size.value)
assert nvrtc.nvrtcGetPTX(program, code) == 0
""")

    def test_a_context_that_was_pushed_over_another_gives_way_to_it_again(self):
        self.run_program("""
contexts = [c.c_void_p() for _ in range(3)]
for device, context in enumerate(contexts):
    ok("cuDevicePrimaryCtxRetain", c.byref(context), device)

def current():
    device = c.c_int()
    ok("cudaGetDevice", c.byref(device))
    return device.value

popped = c.c_void_p()
ok("cuCtxPushCurrent_v2", contexts[1])
ok("cuCtxPushCurrent_v2", contexts[2])
assert current() == 2
ok("cuCtxPopCurrent_v2", c.byref(popped))
assert popped.value == contexts[2].value and current() == 1
ok("cuCtxPopCurrent_v2", c.byref(popped))
assert popped.value == contexts[1].value and current() == 0
assert call("cuCtxPushCurrent_v2", c.c_void_p(1)) == 201, "CUDA_ERROR_INVALID_CONTEXT"
assert current() == 0
""", devices=3)

    def test_physical_memory_is_handed_to_another_process(self):
        self.run_program("""
import socket, struct, sys

PAGE = 2 << 20
MAPPED = struct.pack("iiiiQ8x", 1, 1, 1, 0, 0)   # pinned, as a descriptor, on the device 0
PRIVATE = struct.pack("iiiiQ8x", 1, 0, 1, 0, 0)
ok("cudaFree", None)
before = free_bytes()[0]

def create(properties):
    handle = c.c_uint64()
    ok("cuMemCreate", c.byref(handle), c.c_size_t(PAGE), properties, c.c_uint64(0))
    return handle

def export(handle, kind=1):
    fd = c.c_int(-1)
    return call("cuMemExportToShareableHandle", c.byref(fd), handle, kind, c.c_uint64(0)), fd.value

def bring(fd, kind=1):
    handle = c.c_uint64()
    return call("cuMemImportFromShareableHandle", c.byref(handle), c.c_void_p(fd), kind), handle

mine = create(MAPPED)
assert export(create(PRIVATE))[0] == 1, "it was not made to be shared"
code, fd = export(mine)
assert code == 0 and fd >= 0
assert export(mine, 8)[0] == 801, "other kinds of handles are not there"
code, same = bring(fd)
assert code == 0 and same.value == mine.value, "it is the memory of this process"
ok("cuMemRelease", same)
held = before - free_bytes()[0]
assert held == 2 * PAGE, held
assert bring(99)[0] == 1 and bring(os.open("/dev/null", os.O_RDONLY))[0] == 1

ours, theirs = socket.socketpair()
child = os.fork()
if child == 0:
    # As a process that was started by itself: only the descriptor comes over.
    program = os.environ["OTHER"]
    os.set_inheritable(theirs.fileno(), True)
    os.execv(sys.executable, [sys.executable, "-c", program, str(theirs.fileno())])
socket.send_fds(ours, [b"memory"], [fd])
_, status = os.waitpid(child, 0)
assert status == 0, status
ok("cuMemRelease", mine)
assert before - free_bytes()[0] == PAGE
""".replace("os.environ[\"OTHER\"]", repr(START + """
import socket, sys

_, fds, _, _ = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 64, 1)
os.environ.pop("VRAMWISE_REHEARSAL")
ok("cudaFree", None)
before, handle, at = free_bytes(), c.c_uint64(), c.c_uint64()
size, zero = c.c_size_t(2 << 20), c.c_uint64(0)
ok("cuMemImportFromShareableHandle", c.byref(handle), c.c_void_p(fds[0]), 1)
ok("cuMemAddressReserve", c.byref(at), size, c.c_size_t(0), zero, zero)
ok("cuMemMap", at, size, c.c_size_t(0), handle, zero)
ok("cudaMemset", c.c_void_p(at.value), 7, c.c_size_t(16))
assert free_bytes() == before, "the memory is the other process's"
ok("cuMemUnmap", at, size)
ok("cuMemRelease", handle)
""")))

    def test_where_address_space_is_limited_there_are_addresses_and_no_values(self):
        report = self.run_program("""
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
before, total = free_bytes()
assert total == 8 << 30
code, at = malloc(6 << 30)
assert code == 0 and at.value, "more than there is address space"
there, back = (c.c_double * 4)(1.5, -2.0, 3.25, 1e300), (c.c_double * 4)(*[7.0] * 4)
ok("cudaMemcpy", at, there, c.c_size_t(32), 1)
ok("cudaMemset", at, 1, c.c_size_t(1 << 30))
ok("cudaMemcpy", back, at, c.c_size_t(32), 2)
assert list(back) == [0.0] * 4, list(back)
reserved, handle, zero = c.c_uint64(), c.c_uint64(), c.c_uint64(0)
ok("cuMemAddressReserve", c.byref(reserved), c.c_size_t(16 << 30), c.c_size_t(0), zero, zero)
assert reserved.value
ok("cuMemAddressFree", reserved, c.c_size_t(16 << 30))
ok("cudaFree", at)
assert free_bytes()[0] == before
""")
        self.assertIn("holds no values", " ".join(report["notes"]))


if __name__ == "__main__":
    unittest.main()
