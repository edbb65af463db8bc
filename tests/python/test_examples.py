"""The examples in the documentation of the Python package say what happens."""

import doctest
import pathlib
import shutil

import pytest

pytest.importorskip("vramwise._native", reason="the native part is not built: run `cargo xtask python`")

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
RECORDING = REPOSITORY / "testdata" / "snapshots" / "moe__default.snapshot.pickle.gz"


@pytest.mark.parametrize("page", ["docs/python.md"])
def test_the_examples_say_what_happens(page, tmp_path, monkeypatch):
    shutil.copy(RECORDING, tmp_path / "snapshot.pickle.gz")
    monkeypatch.chdir(tmp_path)
    text = (REPOSITORY / page).read_text()
    # The fence that ends a block is no output of its last example.
    examples = text.replace("\n```\n", "\n\n")
    test = doctest.DocTestParser().get_doctest(examples, {}, page, str(REPOSITORY / page), 0)
    assert test.examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    told = []
    results = runner.run(test, out=told.append)
    assert results.failed == 0, "".join(told)
