"""Tables in the libraries that people read them with; `cargo xtask test --tools` installs those."""

import gzip
import pathlib
import pickle

import pytest

vramwise = pytest.importorskip("vramwise")
pytest.importorskip("vramwise._native", reason="the native part is not built: run `cargo xtask python`")

from vramwise import errors  # noqa: E402

SNAPSHOTS = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "snapshots"
RECORDING = SNAPSHOTS / "oom_fragmented__default__stacks.snapshot.pickle.gz"


@pytest.fixture(scope="module")
def table():
    return vramwise.read(RECORDING).events()


@pytest.fixture(scope="module")
def recorded():
    """The same entries as Python reads them; the recording was made for this project."""
    (trace,) = [t for t in pickle.loads(gzip.decompress(RECORDING.read_bytes()))["device_traces"] if t]
    return trace


def address(event):
    return None if event["action"] == "oom" else event["addr"]


def test_pandas(table, recorded):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = table.to_pandas()
    assert list(frame.columns) == table.column_names
    assert list(frame["size_bytes"]) == [event["size"] for event in recorded]
    assert [None if missing else int(a) for a, missing in zip(frame["address"], frame["address"].isna())] == [
        address(event) for event in recorded
    ]
    assert list(frame["action"]) == [event["action"] for event in recorded]


def test_polars(table, recorded):
    pytest.importorskip("polars")
    frame = table.to_polars()
    assert frame.columns == table.column_names
    assert frame["address"].to_list() == [address(event) for event in recorded]
    assert frame["stack"][0].splitlines()[0].startswith("train.py:")


def test_pyarrow(table, recorded):
    pyarrow = pytest.importorskip("pyarrow")
    taken = pyarrow.table(table)
    taken.validate(full=True)
    assert taken.column("address").to_pylist() == [address(event) for event in recorded]
    assert taken.schema.field("size_bytes").nullable is False


def test_duckdb(table, recorded):
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    connection = duckdb.connect()
    connection.register("events", table)
    ((most,),) = connection.execute("select max(size_bytes) from events").fetchall()
    assert most == max(event["size"] for event in recorded)


def test_what_is_missing_is_told(table, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(errors.NotAvailableError, match="pip install polars") as caught:
        table.to_polars()
    assert caught.value.missing == "polars"
