"""The first pass: computes small tensors truly, so that questions about values have their answers.

Kernels on the emulated device do nothing, but its memory is memory of this process, at the same address. So
each operation whose inputs are known and small is done once more, on CPU tensors that lie over the device's
memory. What cannot be known is set to zero (never left stale), or, where the result is an index, drawn at
random among those that are possible; both are counted where the program reads them.

The emulated device logs what is copied to the host; the second pass, which has no such layer and therefore
frees and allocates as always, is answered from that log.
"""

import atexit
import ctypes
import json
import os
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Elements up to which tensors are computed: indices and masks are small and decide what a program does;
# of floating-point tensors only scalars and the like do.
MOST_INTEGERS = 1 << 20
MOST_FLOATS = 4096

KNOWN, ASSUMED = 1, 2
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# Tensors that stand for others while shapes are worked out.
_WITHOUT_MEMORY = ("FakeTensor", "FunctionalTensor")
_EMPTY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}
# In-place operations that do not read what they overwrite.
_OVERWRITE = {"aten::zero_", "aten::fill_", "aten::copy_", "aten::random_", "aten::normal_", "aten::uniform_",
              "aten::bernoulli_", "aten::exponential_", "aten::geometric_"}
# Operations whose integer results are indices along a dimension: (place of the index, name of the argument).
_INDICES = {"aten::topk": 1, "aten::sort": 1, "aten::argsort": 0, "aten::argmax": 0, "aten::argmin": 0,
            "aten::max": 1, "aten::min": 1, "aten::multinomial": 0, "aten::kthvalue": 1, "aten::mode": 1}


class _Op:
    """What is to be known of an operation, found out once."""

    def __init__(self, func):
        schema = func._schema
        self.name = schema.name
        self.mutable = schema.is_mutable
        self.written = [n for n, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write]
        self.written_names = {schema.arguments[n].name for n in self.written}
        self.random = torch.Tag.nondeterministic_seeded in func.tags
        self.reads = self.name in ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero")
        self.counts = _COUNTS.get(self.name)


def _tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _address(tensor):
    return tensor.untyped_storage().data_ptr()


def _reaches_host(op, out, args):
    """Whether values came from the device to the host."""
    if op.name == "aten::copy_":
        return not args[0].is_cuda
    return not op.mutable and isinstance(out, torch.Tensor) and out.device.type == "cpu"


def _small(tensor):
    floats = tensor.is_floating_point() or tensor.is_complex()
    return tensor.numel() <= (MOST_FLOATS if floats else MOST_INTEGERS)


def _alias(tensor):
    """A CPU tensor over the same memory."""
    storage = tensor.untyped_storage()
    size, item = storage.nbytes(), tensor.element_size()
    if tensor.numel() == 0 or size < item:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    memory = (ctypes.c_char * size).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=tensor.dtype, count=size // item)
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _on_cpu(value):
    if isinstance(value, torch.Tensor):
        return _alias(value) if value.is_cuda else value
    if isinstance(value, (list, tuple)):
        return type(value)(_on_cpu(v) for v in value)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, torch.Generator):
        return None
    return value


# What an operation reads back inside itself, from its arguments on the CPU: a list of bytes, one a copy.
def _int32(number):
    return int(number).to_bytes(4, "little", signed=True)


def _int64(number):
    return int(number).to_bytes(8, "little", signed=True)


def _masks(indices):
    return [_int32(i.count_nonzero()) for i in indices if i is not None and i.dtype in (torch.bool, torch.uint8)]


def _range_of(values):
    raw = lambda v: v.reshape(1).view(torch.uint8).numpy().tobytes()
    return [raw(values.min()), raw(values.max())] if values.numel() else []


_COUNTS = {
    "aten::nonzero": lambda x: [_int32(x.count_nonzero())],
    "aten::masked_select": lambda x, mask: [_int32(torch.broadcast_to(mask, torch.broadcast_shapes(x.shape, mask.shape)).count_nonzero())],
    "aten::index": lambda x, indices: _masks(indices),
    "aten::index_put_": lambda x, indices, *_: _masks(indices),
    "aten::_index_put_impl_": lambda x, indices, *_: _masks(indices),
    "aten::_unique2": lambda x, *_: [_int64(x.unique().numel())],
    "aten::unique_consecutive": lambda x, *_: [_int64(x.unique_consecutive().numel())],
    "aten::bincount": lambda x, *_: _range_of(x),
    "aten::repeat_interleave": lambda repeats, **_: [_int64(repeats.sum())],
    "aten::equal": lambda x, y: [bytes([torch.equal(x, y)])] if x.shape == y.shape else [],
}


class _Device:
    """The emulated device's own functions, as far as it has them."""

    def __init__(self):
        try:
            self._next = ctypes.CDLL("libcuda.so.1").vramwise_answer_next_copy
            self._next.argtypes, self._next.restype = [ctypes.c_char_p, ctypes.c_size_t], None
        except (OSError, AttributeError):
            self._next = None

    def answer(self, copies):
        for raw in copies if self._next else ():
            self._next(raw, len(raw))

    def forget(self):
        """What was not asked for answers nothing else: no copy has this size."""
        if self._next:
            self._next(b"", 0)


class Values(TorchDispatchMode):
    """Computes what can be known after each operation."""

    def __init__(self):
        super().__init__()
        self.known = {}  # address of a storage -> KNOWN or ASSUMED
        self.ops = {}
        self.device = _Device()
        self.random = 0
        self.reads = {}  # (how sure, kind) -> count
        self.places = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(t not in _PLAIN for t in types):
            if any(t.__name__ in _WITHOUT_MEMORY for t in types):
                return func(*args, **kwargs)
            return NotImplemented  # its own handler comes first, and its parts come back here
        op = self.ops.get(func)
        if op is None:
            op = self.ops[func] = _Op(func)
        inputs = [t for t in _tensors((*args, *kwargs.values())) if t.is_cuda]
        counted = op.counts is not None and bool(inputs)
        if counted:
            self._count(op, inputs, args, kwargs)
        try:
            out = func(*args, **kwargs)
        finally:
            if counted:
                self.device.forget()
        outputs = [t for t in _tensors(out if isinstance(out, (list, tuple)) else (out,)) if t.is_cuda]
        if inputs and (op.reads or _reaches_host(op, out, args)):
            self._read(op, inputs)
        if outputs or (inputs and op.mutable):
            self._follow(func, op, args, kwargs, inputs, outputs)
        return out

    def _sure(self, tensors):
        """How sure the contents of tensors are; `None` = not known."""
        least = KNOWN
        for tensor in tensors:
            sure = self.known.get(_address(tensor)) if tensor.numel() else KNOWN
            if sure is None:
                return None
            least = max(least, sure)
        return least

    def _count(self, op, inputs, args, kwargs):
        """Tells the device what the operation will read back inside itself."""
        sure = self._sure(inputs if not op.name.startswith("aten::index") else list(_tensors([args[1]])))
        copies = []
        try:
            if sure is not None:
                copies = op.counts(*_on_cpu(args), **{k: v for k, v in kwargs.items() if k == "output_size"})
        except Exception:
            copies = []
        if sure is not None and copies:
            self.device.answer(copies)
        if copies or sure is None and not op.name.startswith("aten::index"):
            self._note(op, sure, "integer")

    def _read(self, op, inputs):
        """Counts what the program reads from the device."""
        first = inputs[-1] if op.name == "aten::copy_" else inputs[0]
        sure = self._sure([first])
        kind = "float" if first.is_floating_point() else "integer"
        if op.counts is None:
            self._note(op, sure, kind)

    def _note(self, op, sure, kind):
        how = {KNOWN: "known", ASSUMED: "assumed", None: "unknown"}[sure]
        self.reads[how, kind] = self.reads.get((how, kind), 0) + 1
        if sure != KNOWN and len(self.places) < 200:
            place = {"how": how, "kind": kind, "operation": op.name, "place": _place()}
            if place not in self.places:
                self.places.append(place)

    def _follow(self, func, op, args, kwargs, inputs, outputs):
        """Gives the results their values, as far as they can be known."""
        before = {_address(t) for t in inputs if t.numel()}
        fresh = [t for t in outputs if _address(t) not in before]
        if op.mutable:
            self._follow_mutable(func, op, args, kwargs, inputs)
            return
        if not fresh:
            return  # views
        sure = self._sure(inputs)
        small = all(_small(t) for t in fresh)
        if op.name in _EMPTY:
            sure = KNOWN
        if sure is not None and small and self._compute(func, op, args, kwargs, fresh, outputs):
            for tensor in fresh:
                self.known[_address(tensor)] = sure
            return
        for tensor in fresh:
            self.known.pop(_address(tensor), None)
            if _small(tensor) and tensor.numel():
                _alias(tensor).zero_()
        if op.name in _INDICES:
            self._draw(op, args, kwargs, outputs)

    def _compute(self, func, op, args, kwargs, fresh, outputs):
        if op.name in _EMPTY:
            for tensor in fresh:
                _alias(tensor).zero_()
            return True
        try:
            named = {name: _on_cpu(value) for name, value in kwargs.items()}
            named.pop("pin_memory", None)
            with self._randomness(op):
                results = func(*_on_cpu(args), **named)
            results = list(_tensors(results if isinstance(results, (list, tuple)) else (results,)))
            if len(results) != len(outputs):
                return False
            for result, tensor in zip(results, outputs):
                if result.shape != tensor.shape:
                    return False
                if any(tensor is t for t in fresh) and tensor.numel():
                    _alias(tensor).copy_(result)
            return True
        except Exception:
            return False

    def _follow_mutable(self, func, op, args, kwargs, inputs):
        written = [args[n] for n in op.written if n < len(args)]
        written += [v for k, v in kwargs.items() if k in op.written_names]
        written = [t for t in _tensors(written) if t.is_cuda]
        if not written:
            return
        overwrites = op.name in _OVERWRITE or bool(kwargs.keys() & op.written_names)
        ids = {id(t) for t in written}
        read = [t for t in inputs if id(t) not in ids] if overwrites else inputs
        sure = self._sure(read)
        if sure is not None and all(_small(t) for t in written):
            try:
                named = {name: _on_cpu(value) for name, value in kwargs.items()}
                with self._randomness(op):
                    func(*_on_cpu(args), **named)
            except Exception:
                sure = None
        else:
            sure = None
        for tensor in written:
            address = _address(tensor)
            whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
            previous = KNOWN if overwrites and whole else self.known.get(address)
            if sure is None or previous is None:
                self.known.pop(address, None)
                if sure is None and _small(tensor) and tensor.numel():
                    _alias(tensor).zero_()
            else:
                self.known[address] = max(sure, previous)

    def _draw(self, op, args, kwargs, outputs):
        """Indices that nothing is known of: any of the possible ones."""
        place = _INDICES[op.name]
        if place >= len(outputs) or outputs[place].dtype != torch.int64 or not args[0].dim():
            return
        source, target = args[0], outputs[place]
        dim = kwargs.get("dim")
        if dim is None:
            numbers = [a for a in args[1:] if isinstance(a, int) and not isinstance(a, bool)]
            at = 1 if op.name in ("aten::topk", "aten::kthvalue") else 0
            dim = numbers[at] if at < len(numbers) and op.name != "aten::multinomial" else -1
        flat = target.dim() == 0 and source.dim() > 0
        extent = source.numel() if flat else source.size(dim)
        if not _small(target) or target.numel() == 0 or extent == 0:
            return
        with self._randomness(op, always=True):
            if op.name in ("aten::topk", "aten::sort", "aten::argsort"):
                # No index comes twice along the dimension.
                order = torch.rand(source.shape).argsort(dim)
                drawn = order.narrow(dim, 0, target.size(dim))
            else:
                drawn = torch.randint(0, extent, target.shape)
        _alias(target).copy_(drawn)
        self.known[_address(target)] = ASSUMED

    def _randomness(self, op, always=False):
        return _OwnRandomness(self) if op.random or always else _NOTHING

    def report(self, room):
        report = {"schema": 1, "reads": [{"how": h, "kind": k, "count": n} for (h, k), n in sorted(self.reads.items())],
                  "places": self.places}
        place = os.path.join(room, f"values.{os.getpid()}.json")
        with open(place + ".tmp", "w") as file:
            json.dump(report, file)
        os.replace(place + ".tmp", place)


class _OwnRandomness:
    """Random numbers that do not disturb those of the program."""

    def __init__(self, values):
        self.values = values

    def __enter__(self):
        self.state = torch.default_generator.get_state()
        self.values.random += 1
        torch.default_generator.manual_seed(self.values.random)

    def __exit__(self, *_):
        torch.default_generator.set_state(self.state)


class _Nothing:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


_NOTHING = _Nothing()


def _place():
    """The innermost line outside installed packages, which is the program's own."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "site-packages" not in name and "dist-packages" not in name and "vramwise_values" not in name \
                and not name.startswith("<") and "/lib/python" not in name:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def install(_torch, room):
    """Switches the layer on, for the whole process."""
    values = Values()
    values.__enter__()
    owner = os.getpid()
    atexit.register(lambda: values.report(room) if os.getpid() == owner else None)
