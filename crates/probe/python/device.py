"""Ask a GPU what `vramwise rehearse` has to know of it.

  python device.py OUT.json [--quick]

Writes properties, attributes, the memory that a context takes step by step, what calls of the driver cost and how cuDNN
describes the device, or {"error": KIND, "text": ...}. What is done is said on standard output, a line a step.

Only documented functions are called. The identity of the card (UUID, LUID) is not written.
"""
import ctypes as c
import json
import os
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
# How the memory of a device fills: what is done, in this order, in a process of its own.
STEPS = """
import json, sys
import torch as t

def used():
    free, total = t.cuda.mem_get_info()
    return total - free

def step(name, work):
    work()
    t.cuda.synchronize()
    seen.append((name, used(), t.cuda.memory_reserved()))

t.cuda.init()
seen = [("after init", used(), t.cuda.memory_reserved())]
step("first tensor", lambda: t.zeros(1, device="cuda"))
a = t.randn(2048, 2048, device="cuda")
step("randn", lambda: None)
step("matmul fp32", lambda: a @ a)
b = a.bfloat16()
step("matmul bf16", lambda: b @ b)
step("softmax", lambda: a.softmax(-1))
step("sort", lambda: a.sort())
conv = t.nn.Conv2d(16, 16, 3).cuda()
step("conv2d", lambda: conv(t.randn(4, 16, 64, 64, device="cuda")).sum().backward())
q = t.randn(2, 8, 512, 64, device="cuda", dtype=t.bfloat16)
attention = t.nn.functional.scaled_dot_product_attention
step("sdpa flash", lambda: attention(q, q, q, is_causal=True))
step("sdpa fp32", lambda: attention(q.float(), q.float(), q.float()))
step("linalg", lambda: t.linalg.inv(a[:256, :256]))
lstm = t.nn.LSTM(64, 64).cuda()
step("lstm", lambda: lstm(t.randn(8, 4, 64, device="cuda"))[0].sum().backward())
g = t.cuda.CUDAGraph()
s = t.cuda.Stream()
step("side stream matmul", lambda: (s.wait_stream(t.cuda.current_stream()), t.cuda.stream(s).__enter__(), a @ a))
with open(sys.argv[1], "w") as file:
    json.dump(seen, file)
"""


class Failed(Exception):
    """What cannot be measured: a word for the kind, and a sentence."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


def say(text):
    print(text, flush=True)


def function(name, *libraries):
    """A function of the libraries that PyTorch has loaded, or of these."""
    for library in (None, *libraries):
        try:
            return getattr(c.CDLL(library), name)
        except (AttributeError, OSError):
            continue
    raise Failed("library", f"no library has {name}")


def beside_torch(torch, package, name):
    root = os.path.dirname(os.path.dirname(torch.__file__))
    for place in (os.path.join(root, "nvidia", package, "lib"), os.path.join(os.path.dirname(torch.__file__), "lib"),
                  *(os.path.join(root, "nvidia", f"cu{n}", "lib") for n in (12, 13))):
        if os.path.exists(os.path.join(place, name)):
            return os.path.join(place, name)
    return name


def attributes(torch, runtime):
    ask = function("cudaDeviceGetAttribute", runtime)
    found, value = {}, c.c_int()
    for number in range(1, 160):
        if ask(c.byref(value), number, 0) == 0:
            found[str(number)] = value.value
    function("cudaGetLastError", runtime)()
    return found


def device_prop(runtime, major):
    """The bytes of cudaDeviceProp, without what tells one card from another of its kind."""
    name, size = ("cudaGetDeviceProperties", 1008) if major >= 13 else ("cudaGetDeviceProperties_v2", 1032)
    raw = c.create_string_buffer(4096)
    if function(name, runtime)(raw, 0) != 0:
        return None
    raw = bytearray(raw.raw[:size])
    raw[256:296] = bytes(40)
    return raw.hex()


def cudnn_description(torch, library):
    """What cuDNN writes of the device, as JSON (9.8 and later)."""
    torch.backends.cudnn.version()
    get = lambda name: function(name, library)
    descriptor, device, length = c.c_void_p(), c.c_int32(0), c.c_int64(0)
    text = c.create_string_buffer(1 << 16)
    get("cudnnBackendSetAttribute").argtypes = None
    if get("cudnnBackendCreateDescriptor")(38, c.byref(descriptor)) != 0:
        return None
    done = get("cudnnBackendSetAttribute")(descriptor, 2700, 23, c.c_int64(1), c.byref(device)) == 0
    done = done and get("cudnnBackendFinalize")(descriptor) == 0
    done = done and get("cudnnBackendGetAttribute")(
        descriptor, 2702, 24, c.c_int64(len(text)), c.byref(length), text) == 0
    get("cudnnBackendDestroyDescriptor")(descriptor)
    return text.raw[: max(length.value, 0)].decode(errors="replace").rstrip("\0") if done else None


def costs(quick):
    """Microseconds of calls by size, the median of several, Python's own share taken off."""
    get = lambda name: function(name, "libcuda.so.1")

    def timed(call, *arguments):
        start = time.perf_counter_ns()
        code = call(*arguments)
        return code, time.perf_counter_ns() - start

    nothing = get("cuDriverGetVersion")
    version = c.c_int()
    own = statistics.median(timed(nothing, c.byref(version))[1] for _ in range(200))
    properties, access = (c.c_int * 8)(1, 0, 1, 0), (c.c_int * 3)(1, 0, 3)
    found, zero = [], c.c_uint64(0)
    for mib in (2, 20) if quick else (2, 20, 64, 512, 2048):
        size, times = c.c_size_t(mib * MIB), {}
        at = c.c_uint64()
        if get("cuMemAddressReserve")(c.byref(at), size, c.c_size_t(0), zero, zero) != 0:
            continue
        for _ in range(9):
            handle, plain = c.c_uint64(), c.c_uint64()
            calls = (
                ("cuMemCreate", c.byref(handle), size, properties, zero),
                ("cuMemMap", at, size, c.c_size_t(0), handle, zero),
                ("cuMemSetAccess", at, size, access, c.c_size_t(1)),
                ("cuMemUnmap", at, size),
                ("cuMemRelease", handle),
                ("cuMemAlloc_v2", c.byref(plain), size),
                ("cuMemFree_v2", plain),
            )
            for name, *arguments in calls:
                code, took = timed(get(name), *arguments)
                if code != 0:
                    return found  # the card is full: what was measured stays
                times.setdefault(name, []).append(max(took - own, 0) / 1000)
        get("cuMemAddressFree")(at, size)
        found += [(name, mib, round(statistics.median(took), 1)) for name, took in times.items()]
    return found


def others(torch, runtime):
    """How many other processes use the device; None where that is not known."""
    try:
        management = c.CDLL("libnvidia-ml.so.1")
        address, device, count = c.create_string_buffer(32), c.c_void_p(), c.c_uint(0)
        function("cudaDeviceGetPCIBusId", runtime)(address, 32, 0)
        if management.nvmlInit_v2() != 0 or management.nvmlDeviceGetHandleByPciBusId_v2(address, c.byref(device)) != 0:
            return None
        code = management.nvmlDeviceGetComputeRunningProcesses_v3(device, c.byref(count), None)
        return count.value if code in (0, 7) else None
    except (OSError, AttributeError):
        return None


def check():
    """Whether there is a PyTorch with a device; nothing is taken of it yet."""
    say("finding PyTorch")
    try:
        import torch
    except ImportError as error:
        raise Failed("torch", str(error)) from None
    if not torch.version.cuda:
        raise Failed("torch", f"PyTorch {torch.__version__} is a build without CUDA")
    if not torch.cuda.is_available():
        try:
            torch.cuda.init()
        except Exception as error:
            raise Failed("gpu", str(error).strip().splitlines()[0]) from None
        raise Failed("gpu", "torch.cuda.is_available() is false")


def measure(quick):
    import torch

    torch.cuda.init()
    major = int(torch.version.cuda.split(".")[0])
    runtime = beside_torch(torch, "cuda_runtime", f"libcudart.so.{major}")
    busy = others(torch, runtime)
    say("properties and attributes")
    properties = torch.cuda.get_device_properties(0)
    found = {
        "schema": 1,
        "name": properties.name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "total_bytes": torch.cuda.mem_get_info()[1],
        "compute_capability": [properties.major, properties.minor],
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "attributes": attributes(torch, runtime),
        "device_prop_hex": {str(major): device_prop(runtime, major)},
        "cuda_major": major,
        # This process is one of them where the device says so at all.
        "others": max(busy - 1, 0) if busy else busy,
        "emulated": hasattr(c.CDLL("libcuda.so.1"), "vramwise_emulator_version"),
    }
    version = c.c_int()
    if function("cuDriverGetVersion", "libcuda.so.1")(c.byref(version)) == 0:
        found["driver"] = version.value
    say("cuDNN's description of the device")
    found["cudnn"] = torch.backends.cudnn.version()
    found["cudnn_json"] = cudnn_description(torch, beside_torch(torch, "cudnn", "libcudnn.so.9"))
    say("what calls cost")
    found["call_costs_us"] = costs(quick)
    return found


def steps(out):
    """The memory of a context, in a process that does nothing else."""
    say("memory of a context, step by step")
    place = out + ".steps"
    done = subprocess.run([sys.executable, "-c", STEPS, place], capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise Failed("steps", f"the steps that fill the device's memory failed: {last}")
    with open(place) as file:
        return json.load(file)


def main():
    out, quick = sys.argv[1], "--quick" in sys.argv[2:]
    try:
        check()
        # The steps are taken by another process, before this one has a context that would be counted.
        found = {"context_steps": steps(out), **measure(quick)}
    except Failed as failed:
        found = {"error": failed.kind, "text": str(failed)}
    with open(out + ".tmp", "w") as file:
        json.dump(found, file)
    os.replace(out + ".tmp", out)


if __name__ == "__main__":
    main()
