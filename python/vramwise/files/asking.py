"""Runs a command of the program on snapshots in memory, and makes its report an object."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from .._numbers import whole_number
from .._say import user_level
from ..errors import ArgumentError, VramwiseWarning
from ..reports import BaseReport

if TYPE_CHECKING:
    from .snapshot import Snapshot

Answer = tuple[str, str, list[str], bool]
"""JSON, text, warnings, whether it is a finding."""

Report = TypeVar("Report", bound=BaseReport)


def ask(command: str, options: list[str], names: list[str], snapshots: Sequence[Snapshot]) -> Answer:
    """Runs a command of the program on snapshots, which it meets in this order."""
    from .. import _native

    recordings = [snapshot._recording for snapshot in snapshots]
    try:
        return _native.report([command, *options, "--", *names], recordings)
    except ArgumentError as error:
        raise ArgumentError(in_pythons_words(str(error))) from None


# What Python calls otherwise than the program does.
_NAMES = {"from": "first", "to": "last"}
_WRONG = re.compile(r"invalid value '(.*?)' for '--([a-z-]+)[^']*'", re.DOTALL)
_OPTION = re.compile(r"'?--([a-z][a-z-]*)(?: <[^>]*>)?'?( (?=\d))?")


def in_pythons_words(message: str) -> str:
    """A message of the program, with arguments in the place of its options.

    >>> in_pythons_words("invalid value 'x' for '--conf-at <EVENT=SETTINGS>': write the number of an event")
    "conf_at='x': write the number of an event"
    >>> in_pythons_words("the argument '--conf <SETTINGS>' cannot be used with '--allocator <NAME>'")
    'the argument conf cannot be used with allocator'
    >>> in_pythons_words("--from 5 comes after --to 1")
    'first=5 comes after last=1'
    """

    def name(option: str) -> str:
        return _NAMES.get(option, option.replace("-", "_"))

    message = _WRONG.sub(lambda found: f"{name(found[2])}={found[1]!r}", message)
    message = message.replace(", or -f to overwrite it", ", or remove it")
    return _OPTION.sub(lambda found: name(found[1]) + ("=" if found[2] else ""), message)


def count(value: object, name: str, least: int = 0) -> int:
    """A number that an option takes.

    Raises:
        TypeError: it is no whole number.
        ArgumentError: it is less than ``least``.
    """
    try:
        return whole_number(value, name, least=least)
    except ValueError as error:
        raise ArgumentError(str(error)) from None


# What options take that only numbers, words or texts make sense for; numbers with the least one.
_COUNTS = {"frames": 1, "top": 0, "first": 0, "last": 0, "candidates": 1, "jitter": 0, "seed": 0}
_WORDS = {
    "by": ("stack", "module", "stream", "pool", "size", "category", "phase"),
    "allocator": ("pytorch", "vramwise"),
}
_TEXTS = {
    "conf": "settings, such as 'max_split_size_mb:128'",
    "marker": "the name of an annotation",
    # As a number, 2.10 is 2.1.
    "torch": "a version, such as '2.10'",
}


def as_options(**options: object) -> list[str]:
    """Options as the program takes them; those that are ``None`` are left out.

    Raises:
        TypeError: one is of a kind that it cannot have.
        ArgumentError: a number is too small, or a word is another than those that there are.
    """
    given = {name: _checked(name, value) for name, value in options.items() if value is not None}
    program = {python: name for name, python in _NAMES.items()}
    return [f"--{program.get(name, name).replace('_', '-')}={value}" for name, value in given.items()]


def _checked(name: str, value: object) -> object:
    if name in _COUNTS:
        return count(value, name, _COUNTS[name])
    if name in _WORDS and value not in _WORDS[name]:
        *first, last = map(repr, _WORDS[name])
        raise ArgumentError(f"{name}={value!r}: write {', '.join(first)} or {last}")
    if name in _TEXTS and not isinstance(value, str):
        raise TypeError(f"{name} is a text: {_TEXTS[name]}; not {value!r}")
    return value


def typed(report: type[Report], answer: Answer) -> Report:
    """The report as an object; what the command would have warned of is a warning at the line that asked."""
    text, shown, remarks, is_finding = answer
    for remark in remarks:
        warnings.warn(in_pythons_words(remark), VramwiseWarning, stacklevel=user_level())
    return report._of(json.loads(text), text=shown, is_finding=is_finding, _json=text)
