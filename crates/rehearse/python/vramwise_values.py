"""The first pass: computes small tensors truly, so that questions about values have their answers.

Kernels on the emulated device do nothing, but its memory is memory of this process, at the same address. So
each operation whose inputs are known and small is done once more, on CPU tensors that lie over the device's
memory. What cannot be known is set to zero (never left stale), or, where the result is an index, drawn at
random among those that are possible; both are counted where the program reads them.

The emulated device logs what is copied to the host; the second pass, which has no such layer and therefore
frees and allocates as always, is answered from that log.
"""

import ctypes
import json
import os
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from vramwise_assumptions import Assumptions, picks
from vramwise_copies import copied_first
from vramwise_emulator import Device
from vramwise_finite import true_everywhere
from vramwise_operations import (
    ASSUMED, BOUNDED, CARRIED, CLEARED, EMPTY, FINITE, FLAGS, INDICES, KNOWN, NAMES, NOT_FINITE, OVERWRITE, RANKED, SAME_PLACES,
    Op, OwnRandomness, cuda, reaches_host,
)
from vramwise_tensors import (
    PLAIN, WITHOUT_MEMORY, address, alias, backed, clear, few_enough_to_draw, of_large, on_cpu, small, tensors,
)


class Values(TorchDispatchMode):
    """Computes what can be known after each operation."""

    supports_higher_order_operators = True

    def __init__(self, assume):
        super().__init__()
        self.known = {}  # address of a storage -> KNOWN, FINITE or ASSUMED
        self.finite = set()  # addresses of storages that are true wherever numbers are finite
        self.captured = {}  # address of a storage that a graph writes -> its bytes
        self.ops = {}
        self.device = Device()
        self.assumed = Assumptions(assume)
        self.random = 0
        self.scaled = 0  # steps of gradient scalers
        self.saving = False  # whether bytes are read for a file: whatever they are, nothing is decided by them
        self.reads = {}  # (how sure, kind) -> count
        self.places = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(t not in PLAIN for t in types):
            if any(t.__name__ in WITHOUT_MEMORY for t in types):
                return func(*args, **kwargs)
            return NotImplemented  # its own handler comes first, and its parts come back here
        if not hasattr(func, "_schema"):
            return self._higher_order(func, args, kwargs)
        op = self.ops.get(func)
        if op is None:
            op = self.ops[func] = Op(func)
        if op.composite:
            with self:  # so that its parts come here, one by one
                return func._op_dk(op.composite, *args, **kwargs)
        inputs = cuda((*args, *kwargs.values()))
        out = self._run(func, op, args, kwargs, inputs)
        results = out if isinstance(out, (list, tuple)) else (out,)
        outputs = cuda(results)
        if inputs and (op.reads or reaches_host(op, out, args)):
            self._read(op, inputs)
        if not outputs and not op.special and not (inputs and op.mutable):
            return out
        if torch._C._cuda_isCurrentStreamCapturing():
            self._capture(op, args, kwargs, inputs, outputs)
        elif op.special:
            op.special(self, func, args, kwargs, results)
        elif op.name not in FLAGS:
            self._follow(func, op, args, kwargs, inputs, outputs)
            if op.name in SAME_PLACES and not results[0].layout is torch.strided:
                self._keep_places(args, results[0])
        return out

    def _run(self, func, op, args, kwargs, inputs):
        """Does an operation as the program asked for it; the device is told before what will be read back."""
        if not inputs or op.is_view:
            return func(*args, **kwargs)
        counted = op.counts is not None and kwargs.get("output_size") is None
        if counted:
            self._count(op, args)
        elif op.copies:
            self._copy_first(op, args, kwargs)
        elif op.reads:
            for tensor in inputs:  # a part of a large one may still hold what was there before
                if self.sure([tensor]) is None and of_large(tensor):
                    clear(tensor)
        watched = not (counted or op.copies or op.reads)
        if watched:
            known = [t.untyped_storage() for t in inputs if self.known.get(address(t)) is not None]
            self.device.begin([(storage.data_ptr(), storage.nbytes()) for storage in known])
        try:
            return func(*args, **kwargs)
        finally:
            if watched and self.device.end():
                self._note(op.name, None, "integer")
            elif not watched:
                self.device.forget()

    def _copy_first(self, op, args, kwargs):
        """Tells the device the numbers of a copy to the host that a kernel puts in order first."""
        try:
            source, numbers = copied_first(op.name, args, kwargs)
            if source is not None:
                self.device.answer([numbers(self.sure([source]) is not None)])
        except Exception:
            _trace()

    def _higher_order(self, func, args, kwargs):
        """Operations made of functions, such as flex_attention: what comes out is not known."""
        out = func(*args, **kwargs)
        before = {address(t) for t in cuda((*args, *kwargs.values()))}
        for tensor in cuda(out if isinstance(out, (list, tuple)) else (out,)):
            if address(tensor) not in before:
                self.unknown(tensor)
        return out

    def sure(self, tensors):
        """How sure the contents of tensors are; `None` = not known."""
        least = KNOWN
        for tensor in tensors:
            sure = self.known.get(address(tensor)) if tensor.numel() else KNOWN
            if sure is None:
                return None
            least = max(least, sure)
        return least

    def given(self, tensor):
        """A tensor whose numbers came from the host, without an operation that could be seen."""
        for part in cuda([tensor]):
            if part.numel() and part.untyped_storage().nbytes() <= CARRIED:
                self.known[address(part)] = KNOWN
            elif part.numel():
                self.unknown(part)

    def unknown(self, tensor):
        """Nothing is known of a tensor; what memory held before is no answer."""
        self.known.pop(address(tensor), None)
        self.finite.discard(address(tensor))
        clear(tensor)

    def _count(self, op, args):
        """Tells the device what the operation will read back inside itself."""
        looked_at = cuda(op.counts.looked_at(args))
        sure = self.sure(looked_at)
        try:
            if sure is None and op.counts.drawn:
                sure = self._draw_masks(cuda(op.counts.drawn(args)))
            if sure is not None:
                copies = op.counts.known(*on_cpu(args))
            else:
                copies = op.counts.assumed(self.assumed, *args)
                sure = ASSUMED if op.counts.hinted or op.special else None
        except Exception:
            _trace()
            return
        self.device.answer(copies)
        if copies:
            self._note(op.name, sure, "integer")

    def _draw_masks(self, masks):
        """Draws masks of which nothing is known; says how sure they are then."""
        for mask in masks:
            if self.sure([mask]) is not None:
                continue
            if not small(mask) or not mask.numel():
                return None
            with OwnRandomness(self):
                order = torch.rand(mask.numel()).argsort()
            drawn = (order < self.assumed.some(mask.numel())).reshape(mask.shape)
            alias(mask).copy_(drawn)
            self.known[address(mask)] = ASSUMED
        return ASSUMED

    def _read(self, op, inputs):
        """Counts what the program reads from the device."""
        first = inputs[-1] if op.name == "aten::copy_" else inputs[0]
        kind = "float" if first.is_floating_point() or self.saving else "integer"
        if op.counts is None:
            sure = self.sure([first])
            # A floating-point number that was drawn is as little known as any other.
            self._note(op.name, None if sure == ASSUMED and kind == "float" else sure, kind)

    def read_inside(self, operation, tensors):
        """Counts what an operation reads from the device where this layer does not see it."""
        for tensor in tensors:
            self._note(operation, self.sure([tensor]), "integer")

    def _note(self, operation, sure, kind):
        how = NAMES[sure]
        self.reads[how, kind] = self.reads.get((how, kind), 0) + 1
        if sure != KNOWN and len(self.places) < 200:
            place = {"how": how, "kind": kind, "operation": operation, "place": _place()}
            if place not in self.places:
                self.places.append(place)

    def _keep_places(self, args, result):
        """The places of a sparse result are those of what it was made of, whatever the values."""
        sources = [a for a in args if isinstance(a, torch.Tensor) and a.layout is torch.sparse_coo]
        if result.layout is not torch.sparse_coo or sum(s._nnz() for s in sources) != result._nnz():
            return
        places, found = result._indices(), [s._indices() for s in sources]
        sure = self.sure(found)
        if sure is not None and places.numel() and small(places) and address(places) not in map(address, found):
            alias(places).copy_(torch.cat([alias(f) for f in found], 1))
            self.known[address(places)] = sure

    def _capture(self, op, args, kwargs, inputs, outputs):
        """What a graph will write is known neither now nor after its replays."""
        before = {address(t) for t in inputs if t.numel()}
        written = self._written(op, args, kwargs) if op.mutable else []
        for tensor in written + [t for t in outputs if address(t) not in before]:
            if tensor.numel():
                self.captured[address(tensor)] = tensor.untyped_storage().nbytes()
                self.unknown(tensor)

    def replayed(self):
        """A graph has run: which one does not matter, since all write what is not known."""
        for place, size in self.captured.items():
            self.known.pop(place, None)
            self.finite.discard(place)
            if size <= CLEARED and backed():
                ctypes.memset(place, 0, size)

    def _follow(self, func, op, args, kwargs, inputs, outputs):
        """Gives the results their values, as far as they can be known."""
        before = {address(t) for t in inputs if t.numel()}
        fresh = [t for t in outputs if t.numel() and address(t) not in before]
        if op.mutable:
            self._follow_mutable(func, op, args, kwargs, inputs)
            for tensor in fresh:
                self.unknown(tensor)
            return
        if not fresh:
            return  # views
        sure = KNOWN if op.name in EMPTY else self.sure(inputs)
        if op.draws and sure is not None:
            sure = ASSUMED if few_enough_to_draw(fresh) else None
        if sure is not None and all(small(t) for t in fresh) and self._filled(func, op, args, kwargs, fresh, outputs):
            for tensor in fresh:
                self.known[address(tensor)] = sure
            return
        for tensor in fresh + [t for n in op.updated for t in cuda(args[n : n + 1])]:
            self.unknown(tensor)
        whole = op.name in BOUNDED or not any(t.is_floating_point() for t in outputs)
        if sure is None and whole and all(small(t) for t in inputs) and not any(t.is_quantized for t in fresh):
            # What is not known is zero everywhere: true or anything is true all the same.
            self.compute(func, args, kwargs, fresh, outputs)
        if op.name in INDICES:
            self._draw(op, args, kwargs, outputs)
        elif op.name == "aten::gather" and self.sure([args[2]]) is not None:
            self._draw_numbers(outputs[0])
        elif op.name in NOT_FINITE and sure is None and all(small(t) for t in fresh):
            self.known.update({address(tensor): FINITE for tensor in fresh})
        elif true_everywhere(op.name, args, self.finite):
            self.finite.update(address(tensor) for tensor in fresh)
            for tensor in filter(small, fresh):
                alias(tensor).fill_(True)
                self.known[address(tensor)] = FINITE

    def _filled(self, func, op, args, kwargs, fresh, outputs):
        if op.name in EMPTY:
            for tensor in fresh:
                clear(tensor)
            return True
        return self.compute(func, args, kwargs, fresh, outputs)

    def compute(self, func, args, kwargs, fresh, outputs):
        """Does an operation on the CPU, and gives its results to those of the device; whether that worked."""
        try:
            named = {name: on_cpu(value) for name, value in kwargs.items()}
            named.pop("pin_memory", None)
            with OwnRandomness(self):
                results = func(*on_cpu(args), **named)
            results = list(tensors(results if isinstance(results, (list, tuple)) else (results,)))
            if len(results) != len(outputs) or any(r.shape != t.shape for r, t in zip(results, outputs)):
                return False
            for result, tensor in zip(results, outputs):
                if any(tensor is t for t in fresh) and tensor.numel():
                    alias(tensor).copy_(result)
            return True
        except Exception:
            return False

    def _written(self, op, args, kwargs):
        written = [args[n] for n in op.written if n < len(args)]
        return cuda(written + [v for k, v in kwargs.items() if k in op.written_names])

    def _follow_mutable(self, func, op, args, kwargs, inputs):
        written = self._written(op, args, kwargs)
        if not written:
            return
        overwrites = op.name in OVERWRITE or bool(kwargs.keys() & op.written_names)
        ids = {id(t) for t in written}
        read = [t for t in inputs if id(t) not in ids] if overwrites else inputs
        sure = self.sure(read)
        if op.draws and sure is not None:
            sure = ASSUMED if few_enough_to_draw(written) else None
        if sure is not None and all(small(t) for t in written):
            try:
                named = {name: on_cpu(value) for name, value in kwargs.items()}
                with OwnRandomness(self):
                    func(*on_cpu(args), **named)
            except Exception:
                sure = None
        else:
            sure = None
        for tensor in written:
            self.finite.discard(address(tensor))
            whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
            previous = KNOWN if overwrites and whole else self.known.get(address(tensor))
            if sure is None:
                self.unknown(tensor)
            elif previous is None:
                self.known.pop(address(tensor), None)
            else:
                self.known[address(tensor)] = max(sure, previous)

    def _draw(self, op, args, kwargs, outputs):
        """Indices that nothing is known of: possible ones, spread as the hint says."""
        place = INDICES[op.name]
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
        if not small(target) or target.numel() == 0 or extent == 0:
            return
        several = op.name in ("aten::topk", "aten::sort", "aten::argsort", "aten::multinomial")
        shape = target.movedim(dim, -1).shape if several else (target.numel(), 1)
        with OwnRandomness(self):
            drawn = picks(self.assumed.topk, target.numel() // shape[-1], shape[-1], extent)
        drawn = drawn.reshape(shape)
        alias(target).copy_(drawn.movedim(-1, dim) if several else drawn.reshape(target.shape))
        self.known[address(target)] = ASSUMED
        if op.name in RANKED:
            at, name, usual = RANKED[op.name]
            falling = kwargs.get(name, args[at] if len(args) > at else usual)
            self._draw_numbers(outputs[0], dim, falling)

    def _draw_numbers(self, tensor, dim=None, falling=True):
        """Numbers that were chosen among others of which nothing is known: alike they would decide as no others do."""
        if not tensor.is_floating_point() or not small(tensor) or not tensor.numel():
            return
        with OwnRandomness(self):
            drawn = torch.randn(tensor.shape)
        if dim is not None:
            drawn = drawn.sort(dim, descending=falling).values
        alias(tensor).copy_(drawn)
        self.known[address(tensor)] = ASSUMED

    def report(self, room):
        report = {"schema": 1, "reads": [{"how": h, "kind": k, "count": n} for (h, k), n in sorted(self.reads.items())],
                  "places": self.places}
        place = os.path.join(room, f"values.{os.getpid()}.json")
        with open(place + ".tmp", "w") as file:
            json.dump(report, file)
        os.replace(place + ".tmp", place)


def _place():
    """The innermost line outside installed packages, which is the program's own."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "site-packages" not in name and "dist-packages" not in name and not os.path.basename(name).startswith("vramwise_") \
                and not name.startswith("<") and "/lib/python" not in name:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _trace():
    """For who works on this file: what went wrong without harm to the program."""
    if os.environ.get("VRAMWISE_TRACE"):
        import traceback

        traceback.print_exc()
