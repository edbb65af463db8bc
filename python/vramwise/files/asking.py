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


def one_of(value: object, name: str, known: Sequence[str]) -> str:
    """A word that an option takes.

    Raises:
        ArgumentError: it is another one.
    """
    if not isinstance(value, str) or value not in known:
        shown = ", ".join(repr(word) for word in known[:-1])
        raise ArgumentError(f"{name}={value!r}: write {shown} or {known[-1]!r}")
    return value


def as_options(**options: object) -> list[str]:
    """Options as the program takes them; those that are ``None`` are left out.

    Raises:
        TypeError: ``torch`` is no text.
    """
    given = {name: value for name, value in options.items() if value is not None}
    version = given.get("torch", "")
    if not isinstance(version, str):
        # As a number, 2.10 is 2.1.
        raise TypeError(f"torch is a version as a text, such as '2.10', not {version!r}")
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]


def typed(report: type[Report], answer: Answer) -> Report:
    """The report as an object; what the command would have warned of is a warning at the line that asked."""
    text, shown, remarks, is_finding = answer
    for remark in remarks:
        warnings.warn(in_pythons_words(remark), VramwiseWarning, stacklevel=user_level())
    return report._of(json.loads(text), text=shown, is_finding=is_finding, _json=text)
