"""What the allocator could still hand out: arithmetic over segments, without torch and without a device.

The rules are those of PyTorch's caching allocator (specification §1.6, §2.2, §4, §6). A request that finds no free
block takes new memory from the driver; if the driver has too little, everything that is wholly free is given back
first, on all streams, and the request is tried once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

MIB = 1 << 20
_QUANTUM = 512
_SMALL_MOST = MIB
_SMALL_SEGMENT = 2 * MIB
_PAGE = 2 * MIB
_MIDDLE = 10 * MIB


@dataclass(frozen=True)
class Rules:
    """The settings that matter here.

    Attributes:
        expandable: whether new memory comes in expandable segments.
        large_segment: bytes of a segment for middle-sized requests, and of a granule of expandable memory.
        divisions: ``roundup_power2_divisions`` by the sixteen size classes, 0 where it is off.
    """

    expandable: bool = False
    large_segment: int = 20 * MIB
    divisions: tuple[int, ...] = (0,) * 16


@dataclass
class Sums:
    """Bytes of one device, by what can become of them.

    Attributes:
        reserved: of all segments.
        allocated: of blocks in use.
        pending: of blocks that were given back while another stream still used them.
        cached: of free blocks.
        releasable: of free blocks that the driver can have back.
        releasable_pending: of pending blocks that it can have too, once their streams are done.
        holes: of the other free blocks, those that requests on this stream can use.
        largest_hole: the largest block among free ones that a request on this stream can use now.
        tail: bytes at the end of this stream's expandable memory that stay mapped, and that growth would add to.
    """

    reserved: int = 0
    allocated: int = 0
    pending: int = 0
    cached: int = 0
    releasable: int = 0
    releasable_pending: int = 0
    holes: int = 0
    largest_hole: int = 0
    tail: int = 0

    @property
    def unusable(self) -> int:
        """Cached, but neither to be given back nor of use to a request on this stream."""
        return self.cached - self.releasable - self.holes


def rules_of(settings: dict[str, Any], large_segment_mb: str | None = None) -> Rules:
    """The rules that ``allocator_settings`` of a snapshot stand for.

    Args:
        settings: the dictionary.
        large_segment_mb: ``large_segment_size_mb``, which is not among them.
    """
    large = int(large_segment_mb) if large_segment_mb is not None and large_segment_mb.isdigit() else 0
    table = settings.get("roundup_power2_divisions") or {}
    divisions = tuple(int(table.get(str(1 << n), 0)) for n in range(16))
    return Rules(bool(settings.get("expandable_segments")), (large or 20) * MIB, divisions)


def rules_of_pages(rules: Rules) -> Rules:
    """The same for vramwise's allocator, whose memory is all in pages of the driver."""
    return replace(rules, expandable=True, large_segment=_PAGE)


def pages(driver: int, room: int | None) -> int:
    """The largest block out of whole pages that lie anywhere.

    >>> pages(7 * MIB, None) // MIB, pages(7 * MIB, 5 * MIB) // MIB
    (6, 4)
    """
    least = driver if room is None else min(driver, room)
    return least - least % _PAGE


def round_request(size: int, rules: Rules) -> int:
    """Bytes of the block for a request (specification §1.2).

    >>> round_request(1000, Rules()), round_request(130 << 20, Rules(divisions=(4,) * 16)) >> 20
    (1024, 160)
    """
    if size < _QUANTUM:
        return _QUANTUM
    parts = rules.divisions[min(max(size.bit_length() - 21, 0), 15)]
    if parts > 1 and size > _QUANTUM * parts:
        step = (1 << (size.bit_length() - 1)) >> (parts.bit_length() - 1)
        return -(-size // step) * step
    return -(-size // _QUANTUM) * _QUANTUM


def largest_request(block: int, rules: Rules) -> int:
    """The largest request whose block is no larger than this; the reverse of :func:`round_request`.

    >>> largest_request(150 << 20, Rules(divisions=(4,) * 16)) >> 20
    128
    """
    if block < _QUANTUM:
        return 0
    size = block - block % _QUANTUM
    parts = rules.divisions[min(max(size.bit_length() - 21, 0), 15)]
    if parts > 1 and size > _QUANTUM * parts:
        size -= size % ((1 << (size.bit_length() - 1)) >> (parts.bit_length() - 1))
    return size


def sums(segments: list[dict[str, Any]], device: int, stream: int, rules: Rules) -> Sums:
    """Adds up the segments of a device as a request on this stream sees them."""
    found = Sums()
    for segment in sorted(segments, key=lambda segment: int(segment["address"])):
        if segment["device"] == device:
            _add(found, segment, stream, rules)
    return found


def fresh(driver: int, sums: Sums, rules: Rules, room: int | None) -> int:
    """The largest block that new memory would make.

    Args:
        sums: of the device.
        rules: the settings.
        driver: bytes that the driver would have after the allocator gave back what it can.
        room: bytes that the limit of the process would leave then, ``None`` without a limit.
    """
    if rules.expandable:
        granules = driver // rules.large_segment * rules.large_segment
        size = sums.tail + granules if granules else 0
        if size <= _SMALL_MOST:
            return _SMALL_MOST if driver >= _SMALL_SEGMENT and (room is None or room >= _SMALL_SEGMENT) else 0
        return size if room is None else min(size, _fresh_segment(room))
    return _fresh_segment(driver if room is None else min(driver, room))


def _fresh_segment(available: int) -> int:
    """The largest block whose new segment takes no more than this (specification §1.6)."""
    pages = available - available % _PAGE
    if pages >= _MIDDLE:
        return pages
    return _SMALL_MOST if pages >= _SMALL_SEGMENT else 0


def _add(found: Sums, segment: dict[str, Any], stream: int, rules: Rules) -> None:
    size = int(segment["total_size"])
    found.reserved += size
    free = pending = 0
    for block in segment["blocks"]:
        if block["state"] == "inactive":
            free += int(block["size"])
        elif block["state"] != "active_allocated":
            pending += int(block["size"])
    found.cached += free
    found.pending += pending
    found.allocated += size - free - pending
    if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
        # A pool of a graph or of the program: whether it is still held is not written anywhere.
        return
    here = int(segment.get("stream", 0)) == stream
    small = segment.get("segment_type") == "small"
    if segment.get("is_expandable", False):
        _add_expandable(found, segment, here, small, rules)
        return
    whole = free + pending == size
    if whole:
        found.releasable += free
        found.releasable_pending += pending
    if here:
        for block in segment["blocks"]:
            usable = _usable(int(block["size"]), small) if block["state"] == "inactive" else 0
            found.largest_hole = max(found.largest_hole, usable)
            if usable and not whole:
                found.holes += int(block["size"])


def _add_expandable(found: Sums, segment: dict[str, Any], here: bool, small: bool, rules: Rules) -> None:
    """A mapped run of an expandable segment; it begins and ends with whole granules."""
    granule = _SMALL_SEGMENT if small else rules.large_segment
    size = int(segment["total_size"])
    tail = 0
    for first, last, pending in _free_runs(segment["blocks"]):
        begin = -(-first // granule) * granule
        whole = max(0, last // granule * granule - begin)
        # Where both kinds lie in one stretch, the pending part is taken to be in the granules.
        found.releasable_pending += min(whole, pending)
        found.releasable += whole - min(whole, pending)
        if here and rules.expandable and pending == 0:
            usable = _usable(last - first, small)
            found.largest_hole = max(found.largest_hole, usable)
            if usable:
                found.holes += (last - first) - whole
        if last == size:
            tail = begin - first
    if here and not small:
        # Segments come in order of address: the last one is the one that grows.
        found.tail = tail


def _free_runs(blocks: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Stretches of a segment that hold nothing allocated: first byte, end, and how much of it is pending."""
    runs: list[tuple[int, int, int]] = []
    at = 0
    for block in blocks:
        size, state = int(block["size"]), block["state"]
        if state != "active_allocated":
            pending = 0 if state == "inactive" else size
            if runs and runs[-1][1] == at:
                first, _, before = runs[-1]
                runs[-1] = (first, at + size, before + pending)
            else:
                runs.append((at, at + size, pending))
        at += size
    return runs


def _usable(block: int, small: bool) -> int:
    """The largest request that a free block serves: those of up to 1 MiB and the others have pools of their own."""
    if small:
        return min(block, _SMALL_MOST)
    return block if block > _SMALL_MOST else 0
