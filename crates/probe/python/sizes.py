"""Run layers on a GPU under libvramwise_probe.so, which writes down what cuDNN asks for.

  python sizes.py run JOBS.jsonl.gz --out DIR [--interposer SO] [--workers 16] [--seconds 500] [--gib 7] [--skip N]

The jobs are taken in their order by several processes at once (making a plan is work for the CPU).  Each process writes
DIR/part-K.jsonl as it goes, so that a run that is cut short leaves its part.  A job that hangs or breaks the device is
given up and its process started again.

A job is a layer as `layers.py` lists it, optionally followed by how PyTorch shall choose ("no-tf32", "deterministic",
"benchmark"), or one of
  ["bn", sizes, dtype]   ["rnn", cell, dtype, input, hidden, layers, bidirectional, steps, batch, dropout, packed]
  ["ctc", steps, batch, classes, labels]   ["sdpa", batch, heads, steps, width, dtype, causal]
"""
import argparse, ctypes, fcntl, gzip, json, os, signal, subprocess, sys, time


def take(counter, n):
    """The next n places of the list, shared by all processes."""
    with open(counter, "r+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        at = int(f.read() or 0)
        f.seek(0)
        f.write(str(at + n))
        f.truncate()
    return at


class Worker:
    def __init__(self, a):
        import torch as t
        self.t, self.a = t, a
        self.types = {"fp32": t.float32, "bf16": t.bfloat16, "fp16": t.float16}
        self.probe = ctypes.CDLL(a.interposer) if a.interposer else None
        self.buffer = None

    def mark(self, choice):
        if self.probe:
            self.probe.vramwise_probe_mark(choice.encode())

    def view(self, sizes, strides, dtype):
        """Some memory of this shape: inputs share one buffer, because nobody reads the results."""
        size = dtype.itemsize * (1 + sum((n - 1) * s for n, s in zip(sizes, strides)))
        if self.buffer is None or self.buffer.numel() < size:
            self.buffer = None
            self.buffer = self.t.zeros(size, dtype=self.t.uint8, device="cuda")
        return self.buffer[: size // dtype.itemsize * dtype.itemsize].view(dtype).as_strided(sizes, strides)

    def layer(self, xs, xt, ws, stride, padding, dilation, transposed, outpad, groups, mask, dtype, layout, choice="first"):
        t = self.t
        dtype = self.types[dtype]
        fmt = t.channels_last if layout == "cl" else t.contiguous_format
        if layout == "cl":
            xt = t.empty(xs, device="meta").to(memory_format=fmt).stride()
        wt = t.empty(ws, device="meta").to(memory_format=fmt).stride()
        x, w = t.empty_strided(xs, xt, dtype=dtype, device="meta"), t.empty_strided(ws, wt, dtype=dtype, device="meta")
        y = t.ops.aten.convolution(x, w, None, stride, padding, dilation, transposed, outpad, groups)
        need = sum(v.numel() * dtype.itemsize for v in (x, y)) + max(x.numel(), y.numel()) * dtype.itemsize
        if need > self.a.gib * 2**30 * .8:
            return "large"
        ys, yt = y.shape, y.stride()
        if self.probe:
            # What is timed is timed alone.
            self.probe.vramwise_probe_take_turns(os.path.join(self.a.out, "turn").encode() if choice == "benchmark" else None)
        b = t.backends.cudnn
        b.allow_tf32, b.deterministic, b.benchmark = choice != "no-tf32", choice == "deterministic", choice == "benchmark"
        largest = max(((1 + sum((n - 1) * s for n, s in zip(*v)), v) for v in ((xs, xt), (ws, wt), (ys, yt))), key=lambda v: v[0])[1]
        self.view(*largest, dtype)
        x, w = self.view(xs, xt, dtype), self.view(ws, wt, dtype)
        y = t.ops.aten.convolution(x, w, None, stride, padding, dilation, transposed, outpad, groups)
        del y
        if mask and any(mask[:2]):
            t.ops.aten.convolution_backward(self.view(ys, yt, dtype), x, w, None, stride, padding, dilation, transposed, outpad, groups, [*mask[:2], False])
        return ""

    def bn(self, sizes, dtype):
        t = self.t
        x = t.randn(sizes, device="cuda", dtype=self.types[dtype]).to(memory_format=t.channels_last).requires_grad_()
        m = t.nn.BatchNorm2d(sizes[1]).cuda()
        y = m(x)
        y.backward(t.empty_like(y))
        return ""

    def rnn(self, cell, dtype, i, h, layers, two, steps, batch, dropout, packed):
        t = self.t
        cls, kw = {"lstm": (t.nn.LSTM, {}), "gru": (t.nn.GRU, {}), "tanh": (t.nn.RNN, {}), "relu": (t.nn.RNN, {"nonlinearity": "relu"})}[cell]
        m = cls(i, h, layers, bidirectional=two, dropout=dropout, **kw).to("cuda", self.types[dtype])
        x = t.randn(steps, batch, i, device="cuda", dtype=self.types[dtype], requires_grad=True)
        if packed:
            lengths = [max(1, steps - (k * 3) % steps) for k in range(batch)]
            x = t.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y = m(x)[0]
        (y.data if packed else y).float().sum().backward()
        m.eval()
        with t.no_grad():
            m(x)
        return ""

    def ctc(self, steps, batch, classes, labels):
        t = self.t
        p = t.randn(steps, batch, classes, device="cuda").log_softmax(2).detach().requires_grad_()
        targets = t.randint(1, classes, (batch * labels,), dtype=t.int32)
        lengths = [t.full((batch,), n, dtype=t.int32) for n in (steps, labels)]
        # With a mean, some releases divide by lengths that are on the host, and refuse to.
        t.nn.functional.ctc_loss(p, targets, *lengths, reduction="sum").backward()
        return ""

    def sdpa(self, batch, heads, steps, width, dtype, causal):
        t = self.t
        q = t.randn(batch, heads, steps, width, device="cuda", dtype=self.types[dtype], requires_grad=True)
        with t.nn.attention.sdpa_kernel(t.nn.attention.SDPBackend.CUDNN_ATTENTION):
            t.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=causal).sum().backward()
        return ""

    def run(self, job):
        t = self.t
        kind = job[0] if isinstance(job[0], str) else "layer"
        choice = job[12] if kind == "layer" and len(job) > 12 else "first"
        try:
            if kind == "layer":
                with t.no_grad():
                    said = self.layer(*job)
            else:
                said = getattr(self, kind)(*job[1:])
            t.cuda.synchronize()
        except t.OutOfMemoryError:
            self.buffer, said = None, "memory"
        except Exception as e:
            said = repr(e)[:300]
            t.cuda.synchronize()    # ends this process if the device is broken
        self.mark(choice if not said else f"{choice}!{said}")
        if t.cuda.memory_reserved() > self.a.gib * 2**30 / 2:
            self.buffer = None
            t.cuda.empty_cache()
        return said


def work(a):
    lines = gzip.open(a.jobs, "rt").read().splitlines()
    w = Worker(a)
    end = a.until
    beat, log = os.path.join(a.out, f"beat-{a.index}"), open(os.path.join(a.out, f"log-{a.index}"), "a")
    w.t.zeros(1, device="cuda")
    while time.time() < end:
        at = take(os.path.join(a.out, "counter"), 2)
        if at >= len(lines):
            break
        for i in range(at, min(at + 2, len(lines))):
            with open(beat, "w") as f:
                f.write(f"{i}")
            s = time.time()
            said = w.run(json.loads(lines[i]))
            print(i, f"{time.time() - s:.3f}", said, file=log, flush=True)
            if time.time() >= end:
                break


def run(a):
    os.makedirs(a.out, exist_ok=True)
    with open(os.path.join(a.out, "counter"), "w") as f:
        f.write(str(a.skip))
    start = time.time()
    until = start + a.seconds

    def spawn(k):
        env = {**os.environ, "VRAMWISE_PROBE_OUT": os.path.join(a.out, f"part-{k}.jsonl"), "OMP_NUM_THREADS": "1"}
        if a.interposer:
            # What was preloaded before stands behind it.
            env["LD_PRELOAD"] = ":".join(filter(None, [os.path.abspath(a.interposer), env.get("LD_PRELOAD")]))
        with open(os.path.join(a.out, f"err-{k}"), "ab") as err:
            return subprocess.Popen([sys.executable, __file__, "work", a.jobs, "--out", a.out, "--interposer", a.interposer or "", "--index", str(k), "--gib", str(a.gib), "--until", str(until)], env=env, stdout=err, stderr=err)
    procs, restarts = {k: spawn(k) for k in range(a.workers)}, 0

    def stop(*_):
        raise SystemExit(1)

    # Who ends this process ends those that it started, too.
    signal.signal(signal.SIGTERM, stop)
    try:
        restarts = watch(a, procs, spawn, start, until)
    finally:
        for p in procs.values():
            p.kill()
            p.wait()
    print(f"{time.time() - start:.0f} s: at {open(os.path.join(a.out, 'counter')).read()}, {restarts} restarts", flush=True)


def watch(a, procs, spawn, start, until):
    """Until all is done or the time is over; how many processes were started again."""
    restarts = last = 0
    while procs and time.time() < until + 5:
        time.sleep(.5)
        for k, p in list(procs.items()):
            if p.poll() == 0:
                del procs[k]
                continue
            beat = os.path.join(a.out, f"beat-{k}")
            stuck = os.path.exists(beat) and time.time() - os.path.getmtime(beat) > a.hang
            if stuck:
                p.kill()
                p.wait()
            if p.poll() is not None and time.time() < until and restarts < 60:
                restarts += 1
                if os.path.exists(beat):
                    os.utime(beat)
                procs[k] = spawn(k)
            elif p.poll() is not None:
                del procs[k]
        if time.time() - last > a.every:
            last = time.time()
            print(f"{last - start:.0f} s: at {open(os.path.join(a.out, 'counter')).read()}, {restarts} restarts", flush=True)
    return restarts


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cmd", choices=["run", "work"])
    p.add_argument("jobs")
    p.add_argument("--out", default="out")
    p.add_argument("--interposer", default="")
    p.add_argument("--workers", type=int, default=16)
    p.add_argument("--seconds", type=float, default=500)
    p.add_argument("--gib", type=float, default=7)
    p.add_argument("--hang", type=float, default=60)
    p.add_argument("--index", type=int, default=0)
    p.add_argument("--skip", type=int, default=0, help="start at this job")
    p.add_argument("--every", type=float, default=20, help="seconds from one line of progress to the next")
    p.add_argument("--until", type=float, default=0)
    a = p.parse_args()
    (run if a.cmd == "run" else work)(a)


if __name__ == "__main__":
    main()
