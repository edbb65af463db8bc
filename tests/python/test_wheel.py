"""The wheel in a clean environment, as `pip install vramwise` leaves it: nothing but Python is there."""

import email
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
RECORDING = REPOSITORY / "testdata" / "snapshots" / "lstm_varlen__default.snapshot.pickle.gz"
WHEEL = os.environ.get("VRAMWISE_WHEEL")

pytestmark = pytest.mark.skipif(not WHEEL, reason="VRAMWISE_WHEEL names no wheel: run `cargo xtask python`")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The `bin` directory of an environment that has the wheel and nothing else."""
    path = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        path,
        "install",
        "--quiet",
        "--no-index",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, WHEEL], check=True)
    return path / "bin"


@pytest.fixture
def clean(tmp_path):
    """Runs a command far from the repository, with none of the variables that the tests set."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("VRAMWISE", "PYTHON"))}

    def run(*command, **options):
        command = [str(part) for part in command]
        return subprocess.run(
            command, cwd=tmp_path, env={**environ, **options}, capture_output=True, text=True, check=False
        )

    return run


def test_the_program_is_on_the_search_path_and_finds_settings(environment, clean):
    done = clean(environment / "vramwise", "tune", RECORDING, "--candidates", "20", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["files"][0]["exact"]
    assert report["recommended"]["peak_reserved_bytes"] <= report["baseline"]["peak_reserved_bytes"]


def test_the_program_runs_as_a_module_too(environment, clean):
    done = clean(environment / "python", "-m", "vramwise", "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("vramwise ")


def test_python_and_the_program_and_the_wheel_agree_on_the_version(environment, clean):
    program = clean(environment / "vramwise", "--version").stdout.split()[1]
    ask = "import vramwise, importlib.metadata as m; print(vramwise.__version__, m.version('vramwise'))"
    assert clean(environment / "python", "-c", ask).stdout.split() == [program, program]


@pytest.mark.skipif(sys.platform != "linux", reason="the emulated device is for Linux")
def test_the_program_finds_the_emulated_device_of_the_package(environment, clean):
    # There is no torch here; the libraries are looked for before it is missed.
    done = clean(environment / "vramwise", "rehearse", "--", environment / "python", "-c", "pass")
    assert "libvramwise_emulator" not in done.stderr, done.stderr
    assert "torch" in done.stderr.lower(), done.stderr


def test_the_package_is_imported_without_torch_and_without_what_is_slow(environment, clean):
    program = (
        "import sys, vramwise; vramwise.read; "
        "assert not {'torch', 'numpy', 'pandas', 'pyarrow'} & set(sys.modules); "
        f"print(vramwise.read({str(RECORDING)!r}).tune(candidates=8).recommended.env)"
    )
    done = clean(environment / "python", "-W", "error", "-c", program)
    assert done.returncode == 0, done.stderr
    assert re.match(r"PYTORCH_(CUDA_)?ALLOC_CONF=|None", done.stdout)


def test_what_torch_calls_on_import_is_there_and_needs_no_torch(environment, clean):
    # torch calls it while it is being imported itself, and does not survive its failure.
    program = (
        "import sys; from importlib.metadata import entry_points; "
        "(entry,) = entry_points(group='torch.backends'); entry.load()(); assert 'torch' not in sys.modules"
    )
    done = clean(environment / "python", "-c", program)
    assert done.returncode == 0, done.stderr


def test_the_wheel_says_who_it_is():
    with zipfile.ZipFile(WHEEL) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["Name"] == "vramwise"
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert not [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert "abi3" in pathlib.Path(WHEEL).name

