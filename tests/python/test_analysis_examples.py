"""The examples that read recordings: a script and a notebook. They need the native part, and neither torch nor a GPU."""

import ast
import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("vramwise._native", reason="the native part is not built: run `cargo xtask python`")

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"
NOTEBOOK = EXAMPLES / "explore_snapshot.ipynb"


def run_cells(notebook: pathlib.Path) -> list[object]:
    """Runs the cells one after another; gives the value that each of them shows."""
    names: dict[str, object] = {}
    shown = []
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(notebook), "exec"), names)
        shown.append(eval(compile(ast.Expression(last.value), str(notebook), "eval"), names) if last else None)
    return shown


def test_the_notebook_runs_from_its_folder_and_shows_what_it_says(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    snapshot, peak, categories, report, tuned, smaller, table = run_cells(NOTEBOOK)
    for shown in (snapshot, peak, report):
        assert shown._repr_html_().startswith("<")
    assert categories[0][0] == "activations"
    assert tuned == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: 9.02 GiB become 4.87"
    assert smaller == [6, 0]
    assert table[0] == 50854


def test_the_notebook_runs_in_a_kernel(monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="for a notebook's own engine: cargo xtask test --tools")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}})
    client.execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("text/html" in output.get("data", {}) for output in shown)


def test_settings_are_tuned_and_proved():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "tune_settings.py"], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":  " in line)
    recommended, replayed = lines["recommended"].split(), lines["replayed"].split()
    assert recommended[0] == replayed[0], "a replay by itself holds what the recommendation promises"
    assert float(recommended[0]) < float(lines["recorded"].split()[0])
    assert done.stdout.count("ms in the driver") == 3
