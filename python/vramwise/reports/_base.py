"""What all reports have."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import _html

if TYPE_CHECKING:
    from typing_extensions import Self


def _but_schema(data: dict[str, Any]) -> dict[str, Any]:
    """The keys that are fields; the number of the schema is none."""
    return {key: value for key, value in data.items() if key != "schema"}


@dataclass(frozen=True, repr=False)
class BaseReport:
    """A report of one command, as an object, as text and as JSON.

    Attributes:
        text: the report as the program prints it.
        is_finding: whether the program's exit status would be 1: a divergence, an out-of-memory, a leak.
    """

    text: str = field(kw_only=True, compare=False)
    is_finding: bool = field(kw_only=True)
    _json: str = field(kw_only=True, compare=False)

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> Self:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text.rstrip("\n")

    def __repr__(self) -> str:
        first = next((line for line in self.text.splitlines() if line.strip()), "")
        return f"<{type(self).__name__}: {first.strip()}>"

    def to_json(self) -> str:
        """The report as ``--json`` prints it."""
        return self._json

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, with the keys of ``--json``."""
        data: dict[str, Any] = json.loads(self._json)
        return data

    def _repr_html_(self) -> str:
        return _html.report(self.text)
