"""What notebooks show: plain HTML with its colours inside, which needs neither scripts nor the network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reports.inspect import ColumnReport, Device, InspectReport

_WIDTH, _HEIGHT = 600, 80


def human(count: int) -> str:
    """Bytes in binary units, as ``4.76 GiB``."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{count} bytes" if unit == "bytes" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} TiB"


def report(text: str) -> str:
    """A report for people, in the letters that its columns are made for."""
    return f'<pre style="line-height: 1.25">{html.escape(text)}</pre>'


def snapshot(peak: InspectReport) -> str:
    """A snapshot: its devices, their memory over the events, and who held most at the peak."""
    parts = [f"<strong>{html.escape(peak.file)}</strong> · PyTorch {html.escape(peak.torch_version)}"]
    for device in peak.devices:
        parts += _device(device)
    for warning in peak.warnings:
        parts.append(f"<div>⚠ {html.escape(warning.message)}</div>")
    return f"<div>{''.join(parts)}</div>"


def _device(device: Device) -> Iterable[str]:
    yield f"<div>device {device.device}, {device.events:,} events</div>"
    if device.sampled_stacks is not None:
        yield f"<div>stacks: {html.escape(device.sampled_stacks.note)}</div>"
    if device.timeline:
        yield _timeline(device.timeline)
    rows = [("reserved", human(device.memory.reserved_bytes)), ("allocated", human(device.memory.allocated_bytes))]
    if device.peaks is not None:
        rows = [
            ("peak of reserved memory", human(device.peaks.reserved.bytes)),
            ("peak of allocated memory", human(device.peaks.allocated.bytes)),
        ]
    yield _table(rows)
    if device.memory.groups:
        held = [(group.name, human(group.bytes), f"{group.percent:.1f} %") for group in device.memory.groups[:5]]
        yield f"<div>who held most ({html.escape(device.memory.at)})</div>"
        yield _table(held)


def _table(rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(
        "<tr>" + "".join(f'<td style="text-align: left">{html.escape(cell)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table>{cells}</table>"


def _timeline(columns: list[ColumnReport]) -> str:
    """Reserved and allocated bytes over the events as two filled lines."""
    most = max((column.reserved_bytes for column in columns), default=0) or 1
    step = _WIDTH / len(columns)

    def area(values: Iterable[int], colour: str) -> str:
        points = ["0," + str(_HEIGHT)]
        for i, value in enumerate(values):
            y = _HEIGHT * (1 - value / most)
            points += [f"{i * step:.1f},{y:.1f}", f"{(i + 1) * step:.1f},{y:.1f}"]
        points.append(f"{_WIDTH},{_HEIGHT}")
        return f'<polygon points="{" ".join(points)}" fill="{colour}"/>'

    reserved = area((column.reserved_bytes for column in columns), "#9db7d5")
    allocated = area((column.allocated_bytes for column in columns), "#2f6db3")
    title = "reserved (light) and allocated (dark) memory over the events"
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f"<title>{title}</title>{reserved}{allocated}</svg>"
    )
