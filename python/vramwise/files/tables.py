"""Tables for data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NotAvailableError

if TYPE_CHECKING:
    from .. import _native


class Table:
    """Columns of a snapshot, which every library with Arrow's PyCapsule interface takes as they are.

    ``polars.DataFrame(table)``, ``pyarrow.table(table)``, ``pandas.DataFrame.from_arrow(table)`` and
    ``duckdb.sql("select * from table")`` work, and none of these libraries is needed otherwise. Numbers are unsigned
    64-bit integers, texts are dictionaries. The columns are those of ``vramwise convert --to parquet``.
    """

    def __init__(self, table: _native.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._table)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return self._table.column_names

    def __arrow_c_schema__(self) -> object:
        """The types of the columns, as Arrow's PyCapsule interface has them."""
        return self._table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows, as Arrow's PyCapsule interface has them."""
        return self._table.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """The table as a ``pandas.DataFrame``; this needs pandas and pyarrow.

        Numbers stay whole where some are missing (``UInt64``), which addresses need.
        """
        try:
            import pandas
            import pyarrow
        except ImportError as error:
            raise NotAvailableError(
                "to_pandas() needs pandas and pyarrow: pip install pandas pyarrow", missing="pyarrow"
            ) from error
        whole = {pyarrow.uint64(): pandas.UInt64Dtype()}
        return pyarrow.table(self).to_pandas(types_mapper=whole.get)

    def to_polars(self) -> Any:
        """The table as a ``polars.DataFrame``; this needs polars."""
        try:
            import polars
        except ImportError as error:
            raise NotAvailableError("to_polars() needs polars: pip install polars", missing="polars") from error
        return polars.DataFrame(self)

    def __repr__(self) -> str:
        return f"<vramwise.Table: {len(self):,} rows of {', '.join(self.column_names)}>"
