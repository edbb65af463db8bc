"""Ask cuDNN on a GPU how much memory recurrent networks need, many thousand shapes in seconds.

  python recurrent.py [--networks 20000] [--seed 0] > rnn.txt

Prints a line a question, in the form of `crates/workspaces/src/rnn.measured.txt`; lines that cuDNN answers with an error
are left out and counted on standard error.  Hold the rule against it with

  VRAMWISE_RNN_ANSWERS=rnn.txt cargo test --release -p vramwise-workspaces answers -- --nocapture

Needs PyTorch, whose cuDNN is asked.  Only the descriptors and size queries of cuDNN's documented interface are called.
"""
import argparse, ctypes, random, sys
from ctypes import byref, c_float, c_int, c_size_t, c_uint32, c_ulonglong, c_void_p

STANDARD, PERSISTENT, SMALL = 0, 1, 3
LSTM, GRU = 2, 3
FLOAT, HALF, BFLOAT16 = 0, 2, 9
UNPACKED, PACKED, BATCH_FIRST = 0, 1, 2
PADDED_IO = 1
WIDTHS = [1, 8, 16, 32, 64, 80, 100, 128, 160, 200, 256, 300, 320, 384, 512, 640, 768, 1024]
HEADER = ("algorithm cell type flags input hidden layers two-directions dropout layout training steps batch lengths "
          "workspace reserve")


class Failed(Exception):
    pass


class Cudnn:
    """The few functions that are needed, each raising `Failed` on an error."""

    def __init__(self):
        import torch
        self.torch, self.version = torch, torch.backends.cudnn.version()
        torch.cuda.init()
        # What PyTorch has loaded is what is asked.
        self.functions = ctypes.CDLL("libcudnn.so.9")
        self.handle = self.create("cudnnCreate")
        size = c_size_t()
        self.call("cudnnDropoutGetStatesSize", self.handle, byref(size))
        self.states = torch.empty(size.value, dtype=torch.uint8, device="cuda")
        self.dropout = {}
        for share in (0.0, 0.5):
            descriptor = self.create("cudnnCreateDropoutDescriptor")
            self.call("cudnnSetDropoutDescriptor", descriptor, self.handle, c_float(share),
                      c_void_p(self.states.data_ptr()), size, c_ulonglong(0))
            self.dropout[share > 0] = descriptor
        self.network, self.data = self.create("cudnnCreateRNNDescriptor"), self.create("cudnnCreateRNNDataDescriptor")

    def call(self, name, *arguments):
        status = getattr(self.functions, name)(*arguments)
        if status != 0:
            raise Failed(f"{name}: {status}")

    def create(self, name):
        made = c_void_p()
        self.call(name, byref(made))
        return made

    def sizes(self, q):
        """Workspace and reserve in bytes."""
        # As PyTorch does: products are summed in fp32, and half precision uses tensor cores.
        math_type = 0 if q["type"] == FLOAT else 1
        self.call("cudnnSetRNNDescriptor_v8", self.network, c_int(q["algorithm"]), c_int(q["cell"]), c_int(2), c_int(q["two"]),
                  c_int(0), c_int(q["type"]), c_int(FLOAT), c_int(math_type), c_int(q["input"]), c_int(q["hidden"]),
                  c_int(q["hidden"]), c_int(q["layers"]), self.dropout[q["dropout"] == 1], c_uint32(q["flags"]))
        lengths = (c_int * q["batch"])(*q["lengths"])
        self.call("cudnnSetRNNDataDescriptor", self.data, c_int(q["type"]), c_int(q["layout"]), c_int(q["steps"]), c_int(q["batch"]),
                  c_int(q["input"]), lengths, None)
        work, kept = c_size_t(), c_size_t()
        self.call("cudnnGetRNNTempSpaceSizes", self.handle, self.network, c_int(q["training"]), self.data, byref(work), byref(kept))
        return work.value, kept.value


def question(rnd):
    """A network and its sequences as PyTorch would describe them."""
    layers, steps, batch = rnd.randint(1, 4), rnd.randint(1, 200), rnd.choice([1, 2, 5, 8, rnd.randint(1, 200)])
    cell, hidden = rnd.choice([0, 1, LSTM, LSTM, GRU]), rnd.choice(WIDTHS)
    algorithm = rnd.choice([STANDARD, STANDARD, STANDARD, SMALL])
    layout = rnd.choice([UNPACKED, UNPACKED, PACKED, BATCH_FIRST])
    packed = layout == PACKED
    lengths = sorted((rnd.randint(1, steps) for _ in range(batch)), reverse=True) if packed else [steps] * batch
    lengths[0] = steps
    return {
        "algorithm": algorithm, "cell": cell, "type": rnd.choice([FLOAT, FLOAT, HALF, BFLOAT16]),
        "flags": 0 if packed else rnd.choice([0, PADDED_IO]), "input": rnd.choice(WIDTHS), "hidden": hidden, "layers": layers,
        "two": rnd.randint(0, 1), "dropout": rnd.randint(0, 1) if layers > 1 else 0, "layout": layout,
        "training": rnd.randint(0, 1), "steps": steps, "batch": batch, "lengths": lengths,
    }


def line(q, work, kept):
    same = all(length == q["steps"] for length in q["lengths"])
    lengths = "-" if same else ",".join(map(str, q["lengths"]))
    names = ("algorithm", "cell", "type", "flags", "input", "hidden", "layers", "two", "dropout", "layout", "training", "steps", "batch")
    return " ".join([*(str(q[name]) for name in names), lengths, str(work), str(kept)])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--networks", type=int, default=20_000, help="how many random ones to ask about")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    cudnn, rnd, failed = Cudnn(), random.Random(a.seed), 0
    print(f"# What cuDNN {cudnn.version} on {cudnn.torch.cuda.get_device_name()} said: {HEADER}")
    for number in range(a.networks):
        q = question(rnd)
        try:
            print(line(q, *cudnn.sizes(q)))
        except Failed:
            failed += 1
        if number % 1000 == 999:
            print(f"\r{number + 1} of {a.networks}", end="", file=sys.stderr, flush=True)
    print(f"\n{failed} refused", file=sys.stderr)


if __name__ == "__main__":
    main()
