"""Blocks of a program that its annotations name."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A block of the program that an annotation names, as events of the history.

    Attributes:
        name: as the program gave it.
        first: its first event.
        last: the first event behind it.
    """

    name: str
    first: int
    last: int
