"""What is taken for granted where values cannot be known: the hints, and how indices are drawn by them.

The hints need no torch; only drawing imports it.
"""

# Scores that are drawn at once for a choice among many; beyond that, choices are spread by a simpler rule.
MOST_SCORES = 1 << 24
# How uneven a skewed choice is at most: the spread of the logarithm of the weights. At 0 all are alike, at this
# one or two take nearly all.
MOST_UNEVEN = 6.0
KINDS = ("uniform", "balanced", "skewed", "worst")


class Assumptions:
    """What is taken for granted where values are not known; each can be set."""

    def __init__(self, given):
        self.mask = float(given.get("mask", 0.5))  # share of a mask that is true
        self.nms = float(given.get("nms", 1.0))  # share of boxes that non-maximum suppression keeps
        self.unique = float(given.get("unique", 1.0))  # share of values that differ from all others
        self.topk = given.get("topk", "uniform")  # how often indices are chosen: one of KINDS
        self.infinite = int(given.get("infinite", 0))  # first steps in which a gradient scaler finds infinities
        self.seed = int(given.get("seed", 0))  # which draw this is

    def some(self, number):
        return round(self.mask * number)

    def distinct(self, number):
        return min(number, max(1, round(self.unique * number)))


def picks(kind, rows, count, extent):
    """For each row, `count` of the indices below `extent`, none twice as long as there are enough.

    `uniform`: each is as likely as any other. `balanced`: all are chosen equally often. `skewed`: some are far
    likelier than others, at each call others, and at each call to another degree. `worst`: every row chooses the
    same.
    """
    import torch

    chosen = torch.arange(count)
    if kind == "worst":
        return (chosen % extent).expand(rows, count)
    if kind == "balanced":
        return (torch.arange(rows).unsqueeze(1) * count + chosen) % extent
    weights = torch.randn(extent) * (torch.rand(()) * MOST_UNEVEN if kind == "skewed" else 0.0)
    if count > extent or rows * extent > MOST_SCORES:
        # Where a row begins follows the weights; what else it takes lies evenly behind.
        first = weights.softmax(0).double().cumsum(0)
        first = torch.searchsorted(first, torch.rand(rows, 1, dtype=torch.double)).clamp(max=extent - 1)
        return (first + chosen * max(extent // count, 1)) % extent
    # The greatest of weight + Gumbel noise are a draw without putting back.
    noise = -torch.empty(rows, extent).exponential_().log()
    return (weights + noise).topk(count, dim=1).indices
