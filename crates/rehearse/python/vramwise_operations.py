"""Operations as the value layer sees them, and those that it treats in ways of their own."""

import torch
from vramwise_counts import COUNTS
from vramwise_tensors import address, alias, small, tensors

# How sure a value is: computed; computed from gradients that were taken to be finite; from what was drawn at
# random or assumed otherwise.
KNOWN, FINITE, ASSUMED = 1, 2, 3
# Copies up to this size are carried by the emulated device, bytes.
CARRIED = 64 << 10
# Storages up to this size are cleared when a graph has run, bytes.
CLEARED = 8 << 20
NAMES = {KNOWN: "known", FINITE: "finite", ASSUMED: "assumed", None: "unknown"}
EMPTY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}
# In-place operations that do not read what they overwrite.
OVERWRITE = {"aten::zero_", "aten::fill_", "aten::copy_", "aten::random_", "aten::normal_", "aten::uniform_",
             "aten::bernoulli_", "aten::exponential_", "aten::geometric_"}
# In-place operations that write nothing into memory.
FLAGS = {"aten::_coalesced_", "aten::set_", "aten::resize_", "aten::sparse_resize_", "aten::detach_",
         "aten::record_stream", "aten::requires_grad_", "aten::retain_grad", "aten::rename_"}
# Operations on sparse tensors that keep the places of the values, or put those of two behind one another.
SAME_PLACES = {"aten::clone", "aten::_to_copy", "aten::mul", "aten::div", "aten::neg", "aten::pow", "aten::sqrt",
               "aten::add", "aten::sub"}
# Operations that update running statistics, which their schemas do not say: the places of these.
UPDATED = {"aten::native_batch_norm": (3, 4), "aten::cudnn_batch_norm": (3, 4),
            "aten::batch_norm_gather_stats": (3, 4), "aten::batch_norm_gather_stats_with_counts": (3, 4)}
# Operations whose integer results are indices along a dimension: (place of the index, name of the argument).
INDICES = {"aten::topk": 1, "aten::sort": 1, "aten::argsort": 0, "aten::argmax": 0, "aten::argmin": 0,
            "aten::max": 1, "aten::min": 1, "aten::multinomial": 0, "aten::kthvalue": 1, "aten::mode": 1}
# Of these, the numbers at the indices come first among the results, greatest first or as the argument at this place says.
RANKED = {"aten::topk": (3, "largest", True), "aten::sort": (2, "descending", False)}
# Operations that torch makes of others, one of which reads the result back.
READS_INSIDE = {"aten::allclose"}
# Operations that look for numbers that are not finite.
NOT_FINITE = {"aten::isnan", "aten::isinf"}
# Operations that keep numbers within bounds, or round them: a size that is at least 1 is no 0, whatever was computed before.
BOUNDED = {"aten::clamp", "aten::clamp_min", "aten::clamp_max", "aten::ceil", "aten::floor", "aten::round"}


class Op:
    """What is to be known of an operation, found out once."""

    def __init__(self, func):
        schema = func._schema
        self.name = schema.name
        self.mutable = schema.is_mutable
        self.written = [n for n, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write]
        self.written_names = {schema.arguments[n].name for n in self.written}
        self.reads = self.name in ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero")
        self.counts = COUNTS.get(f"{self.name}.{schema.overload_name}") or COUNTS.get(self.name)
        self.special = SPECIAL.get(self.name)
        # The card's generator draws other numbers than the host's. Whole numbers without a bound are seeds of other
        # generators, such as that of dropout in recurrent networks: nothing is decided by them.
        seeds = self.name == "aten::random_" and not schema.overload_name
        self.draws = torch.Tag.nondeterministic_seeded in func.tags and not seeds
        self.updated = UPDATED.get(self.name, ())
        self.composite = _composite(func)
        self.copies = self.name in ("aten::copy_", "aten::_to_copy")
        self.is_view = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)


def _composite(func):
    """The key under which torch makes the operation of others, on every device alike, if its parts are to come here."""
    has = lambda key: torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
    if has("CUDA"):
        return None
    if has("CompositeImplicitAutograd"):  # under inference_mode these come here whole
        return torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C.DispatchKey.CompositeExplicitAutograd if func._schema.name in READS_INSIDE else None


def reaches_host(op, out, args):
    """Whether values came from the device to the host."""
    if op.name == "aten::copy_":
        return not args[0].is_cuda
    return not op.mutable and isinstance(out, torch.Tensor) and out.device.type == "cpu"


def cuda(values):
    return [tensor for tensor in tensors(values) if tensor.is_cuda]


# From the seeds of one draw of the assumptions to those of the next; more than one draw needs.
_DRAWS_APART = 1_000_000_007


class OwnRandomness:
    """Random numbers that do not disturb those of the program."""

    def __init__(self, values):
        self.values = values

    def __enter__(self):
        self.state = torch.default_generator.get_state()
        self.values.random += 1
        # The generator looks at 32 bits only.
        torch.default_generator.manual_seed((self.values.random + self.values.assumed.seed * _DRAWS_APART) % (1 << 32))

    def __exit__(self, *_):
        torch.default_generator.set_state(self.state)


def _finite(values, func, args, kwargs, outputs):
    """Gradients that are scaled back, and looked at for infinities: none is found but in the first steps, if that is assumed."""
    for tensor in cuda(args[0]):
        values.unknown(tensor)
    if values.scaled < values.assumed.infinite:
        alias(args[1]).fill_(1.0)
    values.known[address(args[1])] = max(FINITE, values.sure([args[1]]) or ASSUMED)


def _scaled(values, func, args, kwargs, outputs):
    """The end of a gradient scaler's step: the scale is what it was, or lowered."""
    values.scaled += 1
    values._follow(func, values.ops[func], args, kwargs, cuda(args), cuda(outputs))


def _coalesced(values, func, args, kwargs, outputs):
    """The places of a sparse tensor, each once, whatever the values at them."""
    indices, source = outputs[0]._indices(), args[0]._indices()
    values.unknown(outputs[0]._values())
    sure = values.sure([source])
    distinct = alias(source).unique(dim=1) if sure is not None and small(source) else None
    if distinct is None or distinct.shape != indices.shape:
        values.unknown(indices)
        return
    alias(indices).copy_(distinct)
    values.known[address(indices)] = sure


def _suppressed(values, func, args, kwargs, outputs):
    """The boxes that are kept: computed, or as many as are assumed."""
    sure = values.sure(cuda(args))
    if sure is not None and values.compute(func, args, kwargs, outputs, outputs):
        values.known[address(outputs[0])] = sure
    elif outputs[0].numel():
        with OwnRandomness(values):
            order = torch.randperm(args[0].size(0))
        alias(outputs[0]).copy_(order[: outputs[0].numel()])
        values.known[address(outputs[0])] = ASSUMED


def _given(values, func, args, kwargs, outputs):
    """A tensor made of numbers of the program: a copy that is carried if it is not too large."""
    values.given(outputs[0])


def _exchanged(values, func, args, kwargs, outputs):
    """What other ranks sent: as much as this one would send them, since they are taken to be like it."""
    received, sent, group = args[:3]
    world_size, rank = _place_in(group)
    own = sent.numel() // world_size if world_size else 0
    even = own and not any(args[3:5]) and own * world_size == sent.numel() == received.numel()
    _take_over(values, received, sent, even, lambda: alias(sent).reshape(world_size, own)[rank].repeat(world_size))


def _scattered(values, func, args, kwargs, outputs):
    """The own part of what all ranks reduced: how large the numbers are is not known, but how many there are."""
    received, given, group = args[:3]
    world_size, rank = _place_in(group)
    even = world_size and received.numel() * world_size == given.numel()
    _take_over(values, received, given, even, lambda: alias(given).reshape(world_size, -1)[rank])


def _take_over(values, received, source, fits, part):
    if fits and small(received) and small(source) and values.sure([source]) is not None:
        alias(received).copy_(part().reshape(received.shape))
        values.known[address(received)] = ASSUMED
    else:
        values.unknown(received)


def _place_in(group):
    """(number of ranks, own rank) of a group as an operation is given it; zeros where it does not tell."""
    try:
        group = torch.distributed.ProcessGroup.unbox(group) if isinstance(group, torch.ScriptObject) else group
        return group.size(), group.rank()
    except (AttributeError, RuntimeError):
        return 0, 0


def _received(values, func, args, kwargs, outputs):
    for tensor in cuda(args[0]):
        values.unknown(tensor)


SPECIAL = {
    "c10d::alltoall_base_": _exchanged,
    "c10d::_reduce_scatter_base_": _scattered,
    "c10d::recv_": _received,
    "aten::lift_fresh": _given,
    "aten::_amp_foreach_non_finite_check_and_unscale_": _finite,
    "aten::_amp_update_scale_": _scaled,
    "aten::_coalesce": _coalesced,
    "torchvision::nms": _suppressed,
}
