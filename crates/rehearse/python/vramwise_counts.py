"""What operations read back from the device inside themselves: the number of elements of their results.

Each entry gives, from the arguments on the CPU, the bytes of these copies in their order; where the values of
the arguments are not known, a second function says what is assumed. `drawn` names those whose unknown argument
is a mask, which is drawn at random first: a share of `Assumptions.mask` of it is true.
"""

import torch

_MASKS = (torch.bool, torch.uint8)


def _int32(number):
    return int(number).to_bytes(4, "little", signed=True)


def _int64(number):
    return int(number).to_bytes(8, "little", signed=True)


def _masks(indices):
    return [_int32(i.count_nonzero()) for i in indices if i is not None and i.dtype in _MASKS]


def _some_masks(assumed, indices):
    return [_int32(assumed.some(i.numel())) for i in indices if i is not None and i.dtype in _MASKS]


def _range_of(values):
    raw = lambda v: v.reshape(1).view(torch.uint8).numpy().tobytes()
    return [raw(values.min()), raw(values.max())] if values.numel() else []


def _selected(tensor, mask):
    return torch.broadcast_to(mask, torch.broadcast_shapes(tensor.shape, mask.shape))


def _distinct(tensor, dim, *_):
    return [_int32(tensor.unique(dim=dim).size(dim))]


def _distinct_indices(tensor, *_):
    """Coalescing: alike places become one."""
    indices = tensor._indices()
    if tensor.is_coalesced() or indices.size(1) < 2:
        return []
    return [_int32(indices.unique(dim=1).size(1))]


def _sorts_members(x, others, *_):
    """Whether `isin` sorts what is different in both, as it does where it looks for many."""
    return len(others.shape) > 0 and others.numel() >= int(10 * x.numel() ** 0.145)


def _members(x, others, *_):
    return [_int64(part.unique().numel()) for part in (x, others)] if _sorts_members(x, others) else []


def _some_members(assumed, x, others, *_):
    return [_int64(assumed.distinct(part.numel())) for part in (x, others)] if _sorts_members(x, others) else []


def _kept(boxes, scores, threshold):
    return [_int32(torch.ops.torchvision.nms(boxes, scores, threshold).numel())] if boxes.numel() else []


def _some_distinct(size):
    """As many different values as are assumed, one at least."""
    return lambda assumed, x, *_: [size(assumed.distinct(x.numel()))]


def _some_rows(assumed, tensor, dim, *_):
    return [_int32(assumed.distinct(tensor.size(dim)))]


class Count:
    """How an operation's own copies come about."""

    def __init__(self, known, assumed, drawn=None, looked_at=None, hinted=False):
        self.known, self.assumed, self.drawn = known, assumed, drawn
        self.hinted = hinted or drawn is not None  # whether a hint says what is assumed
        self.looked_at = looked_at or (lambda args: args)  # the arguments whose values matter


_BY_MASKS = Count(
    lambda x, indices, *_: _masks(indices),
    lambda assumed, x, indices, *_: _some_masks(assumed, indices),
    drawn=lambda args: [i for i in args[1] if i is not None and i.dtype in _MASKS],
    looked_at=lambda args: [i for i in args[1] if i is not None and i.dtype in _MASKS],
)

COUNTS = {
    "aten::nonzero": Count(
        lambda x, *_: [_int32(x.count_nonzero())],
        lambda assumed, x, *_: [_int32(assumed.some(x.numel()))],
        drawn=lambda args: [args[0]],
    ),
    "aten::masked_select": Count(
        lambda x, mask, *_: [_int32(_selected(x, mask).count_nonzero())],
        lambda assumed, x, mask, *_: [_int32(assumed.some(_selected(x, mask).numel()))],
        drawn=lambda args: [args[1]],
        looked_at=lambda args: [args[1]],
    ),
    "aten::index": _BY_MASKS,
    "aten::index_put_": _BY_MASKS,
    "aten::index_put": _BY_MASKS,
    "aten::_index_put_impl_": _BY_MASKS,
    "aten::_unique2": Count(lambda x, *_: [_int64(x.unique().numel())], _some_distinct(_int64), hinted=True),
    "aten::isin.Tensor_Tensor": Count(_members, _some_members, hinted=True),
    "aten::unique_consecutive": Count(
        lambda x, *_: [_int64(x.unique_consecutive().numel())], _some_distinct(_int64), hinted=True
    ),
    "aten::unique_dim": Count(_distinct, _some_rows, hinted=True),
    "aten::bincount": Count(
        lambda x, *_: _range_of(x), lambda _assumed, x, *_: [bytes(x.element_size())] * 2 if x.numel() else []
    ),
    "aten::repeat_interleave": Count(
        # The sum, then whether none is negative.
        lambda repeats, *_: [_int64(repeats.sum()), b"\1"],
        lambda *_: [_int64(0), b"\1"],
    ),
    "aten::repeat_interleave.self_Tensor": Count(
        lambda _x, repeats, dim=None: [_int64(repeats.sum()), b"\1"],
        lambda *_: [_int64(0), b"\1"],
        looked_at=lambda args: [args[1]],
    ),
    "aten::repeat_interleave.self_int": Count(
        lambda x, repeats, dim=None: [_int64(repeats * (x.numel() if dim is None else x.size(dim))), b"\1"],
        lambda *_: [_int64(0), b"\1"],
        looked_at=lambda args: [],
    ),
    "aten::equal": Count(
        lambda x, y: [bytes([torch.equal(x, y)])] if x.shape == y.shape else [],
        lambda _assumed, x, y: [b"\0"] if x.shape == y.shape else [],
    ),
    "aten::_coalesce": Count(
        _distinct_indices,
        lambda assumed, x, *_: [_int32(assumed.distinct(x._nnz()))] if x._nnz() > 1 else [],
        looked_at=lambda args: [args[0]._indices()],
        hinted=True,
    ),
    "aten::_to_sparse": Count(
        lambda x, *_: [_int32(x.count_nonzero())],
        lambda assumed, x, *_: [_int32(assumed.some(x.numel()))],
        drawn=lambda args: [args[0]] if args[0].dtype in _MASKS else [],
    ),
    # Whether a decomposition failed: where nothing is known, it did not.
    "aten::_linalg_check_errors": Count(lambda info, *_: [bytes([bool(info.any())])], lambda *_: [b"\0"]),
    "aten::_linalg_eigh": Count(lambda *_: [b"\0"], lambda *_: [b"\0"]),
    "aten::linalg_eig": Count(lambda *_: [b"\0"], lambda *_: [b"\0"]),
    "aten::_linalg_svd": Count(lambda *_: [_int32(0), b"\0"], lambda *_: [_int32(0), b"\0"]),
    "torchvision::nms": Count(
        _kept, lambda assumed, boxes, *_: [_int32(round(assumed.nms * boxes.size(0)))] if boxes.numel() else []
    ),
}
