"""A plugin for pytest: memory budgets of tests, tests on an emulated GPU, and a report of each test's peaks.

``@pytest.mark.max_gpu_memory("2GiB")`` fails a test whose peak goes beyond. ``--vramwise-rehearse[=GPU]`` runs the
tests on a card that is not there. ``--vramwise-report FILE`` writes the peaks as JSON.

pytest loads this file in every run of every project of an environment: it imports nothing that is slow or may be
missing, and does nothing where none of the three is used.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import pytest
except ImportError:  # imported without pytest, by a tool that looks at everything
    if not TYPE_CHECKING:

        class pytest:  # noqa: N801 (it stands for the module)
            """What of pytest is needed to read this file."""

            @staticmethod
            def hookimpl(**_: Any) -> Any:
                """Marks nothing."""
                return lambda function: function


_MARK = "max_gpu_memory"
_PROPERTY = "vramwise_gpu_memory"
_COUNTERS = ("allocated", "reserved")

#: In the process that the emulated GPU belongs to: where its exit status is to be written.
_STATUS_FILE = "VRAMWISE_PYTEST_STATUS"


def pytest_addoption(parser: Any) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("vramwise", "GPU memory (vramwise)")
    group.addoption(
        "--vramwise-rehearse",
        nargs="?",
        const="",
        default=None,
        metavar="GPU",
        help="run the tests on an emulated GPU: a name of `vramwise devices`, a size such as 24GiB, or both as "
        "a100:24GiB; write it with '=' (default: h200)",
    )
    group.addoption(
        "--vramwise-report",
        default=None,
        metavar="FILE",
        help="write the peaks of GPU memory of each test to FILE, as JSON; its folder is made, as for --junitxml",
    )


def pytest_configure(config: Any) -> None:
    """Makes the mark known."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(limit, counter='reserved'): fail the test if its peak of GPU memory, on any device, is more than the "
        "limit: bytes, or a text such as '2GiB'; counter='allocated' leaves out what the allocator only holds back",
    )
    if config.getoption("vramwise_report", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(config), "vramwise-report")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: Any) -> int | None:
    """Runs pytest again on the emulated GPU, in place of this run; gives its exit status."""
    wish = config.getoption("vramwise_rehearse", None)
    if wish is None or os.environ.get(_STATUS_FILE) or hasattr(config, "workerinput"):
        return None
    from ._rehearsed_pytest import run

    words = [str(word) for word in config.invocation_params.args]
    return run(words, wish, _STATUS_FILE)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_sessionfinish(session: Any) -> Generator[None, Any, None]:
    """Tells the process outside of the emulated GPU how the tests went."""
    yield
    # Only now: the report that cannot be written, and other plugins, change the status at the end.
    path = os.environ.get(_STATUS_FILE)
    if path and not hasattr(session.config, "workerinput"):
        with contextlib.suppress(OSError):
            Path(path).write_text(str(int(session.exitstatus)), encoding="ascii")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: Any) -> Generator[None, Any, None]:
    """Before fixtures are made: marked tests need a device, and the counters of what is measured begin anew."""
    mark = item.get_closest_marker(_MARK)
    if mark is not None:
        # A wrong mark is an error even where it could not be checked.
        _limit_of(mark)
        why = _why_not()
        if why is not None:
            pytest.skip(f"{_MARK}: {why}")
    if _is_measured(item):
        _begin()
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, None]:
    """After the test: compares its peaks with the limit; a test that failed by itself keeps its own error."""
    outcome = yield
    peaks = _peaks() if _is_measured(item) else []
    if peaks:
        item.user_properties.append((_PROPERTY, peaks))
        item.add_report_section("call", "GPU memory (peak)", _shown(peaks))
    mark = item.get_closest_marker(_MARK)
    if mark is None or outcome.excinfo is not None:
        return
    from ._sizes import show_size

    limit, counter = _limit_of(mark)
    beyond = [peak for peak in peaks if peak[f"{counter}_bytes"] > limit]
    if beyond:
        worst = max(beyond, key=lambda peak: peak[f"{counter}_bytes"])
        got = worst[f"{counter}_bytes"]
        message = (
            f"the peak of {counter} GPU memory is {show_size(got)} ({got:,} bytes) on device {worst['device']}, "
            f"{show_size(got - limit)} more than the limit of {show_size(limit)}"
        )
        outcome.force_exception(pytest.fail.Exception(message, pytrace=False))


def _is_measured(item: Any) -> bool:
    """Whether anybody wants to know; the cache of other projects' tests is theirs."""
    wanted = item.config.getoption("vramwise_report", None) or os.environ.get(_STATUS_FILE)
    return bool(wanted) or item.get_closest_marker(_MARK) is not None


def _limit_of(mark: Any) -> tuple[int, str]:
    """The limit in bytes and the counter that it is for.

    Raises:
        pytest.UsageError: the mark is not written as it should be.
    """
    from ._sizes import parse_size

    how = f"write @pytest.mark.{_MARK}('2GiB') or @pytest.mark.{_MARK}('2GiB', counter='allocated')"
    counter = mark.kwargs.get("counter", "reserved")
    wishes = [*mark.args, *(mark.kwargs[name] for name in ("limit",) if name in mark.kwargs)]
    if len(wishes) != 1 or counter not in _COUNTERS or set(mark.kwargs) - {"counter", "limit"}:
        raise pytest.UsageError(f"{_MARK} takes one limit and perhaps a counter, allocated or reserved: {how}")
    try:
        return parse_size(wishes[0]), counter
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{_MARK}: {error}; {how}") from None


def _why_not() -> str | None:
    """Why peaks cannot be measured here; ``None`` if they can."""
    with contextlib.suppress(ImportError, ValueError):
        if "torch" in sys.modules or importlib.util.find_spec("torch") is not None:
            # The test will import it anyway.
            import torch

            if torch.cuda.is_available():
                return None
            return "there is no CUDA device; --vramwise-rehearse runs the test on an emulated one"
    return "torch is not installed"


def _cuda() -> Any | None:
    """``torch.cuda`` where something may have been allocated."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    with contextlib.suppress(Exception):
        if cuda is not None and cuda.is_available() and cuda.is_initialized():
            return cuda
    return None


def _begin() -> None:
    """Lets peaks count from here, without what earlier tests have left in the cache."""
    cuda = _cuda()
    if cuda is None:
        return
    with contextlib.suppress(Exception):
        gc.collect()
        cuda.empty_cache()
        for device in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(device)


def _peaks() -> list[dict[str, int]]:
    """Peaks since the counters began, in bytes, for each device that was used."""
    cuda = _cuda()
    peaks = []
    with contextlib.suppress(Exception):
        for device in range(cuda.device_count() if cuda is not None else 0):
            reserved = int(cuda.max_memory_reserved(device))  # type: ignore[union-attr]
            if reserved:
                allocated = int(cuda.max_memory_allocated(device))  # type: ignore[union-attr]
                peaks.append({"device": device, "allocated_bytes": allocated, "reserved_bytes": reserved})
    return peaks


def _shown(peaks: list[dict[str, int]]) -> str:
    from ._sizes import show_size

    lines = []
    for peak in peaks:
        sizes = ", ".join(f"{show_size(peak[f'{counter}_bytes'])} {counter}" for counter in _COUNTERS)
        lines.append(f"device {peak['device']}: {sizes}")
    return "\n".join(lines)


class _Report:
    """Collects the peaks of all tests, also of those that workers of xdist ran, and writes them at the end."""

    def __init__(self, config: Any) -> None:
        self._path = Path(config.getoption("vramwise_report"))
        self._tests: dict[str, dict[str, Any]] = {}
        self._failure: str | None = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        test = self._tests.setdefault(report.nodeid, {"test": report.nodeid, "outcome": "passed", "devices": []})
        if report.outcome != "passed":
            # A failure in the setup is called an error, as pytest does.
            test["outcome"] = "error" if report.failed and report.when != "call" else report.outcome
        for name, value in report.user_properties:
            if name == _PROPERTY:
                test["devices"] = value

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        from ._atomic import replace_text

        tests = sorted(self._tests.values(), key=lambda test: str(test["test"]))
        text = json.dumps({"schema": 1, "tests": tests}, indent=2) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self._path, text)
        except OSError as error:
            self._failure = f"--vramwise-report: {self._path} cannot be written: {error}"
            session.exitstatus = session.exitstatus or pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from ._sizes import show_size

        rows = [
            (max(peak["reserved_bytes"] for peak in test["devices"]), str(test["test"]))
            for test in self._tests.values()
            if test["devices"]
        ]
        terminalreporter.section("GPU memory (peak reserved)")
        for reserved, test in sorted(rows, reverse=True)[:10]:
            terminalreporter.line(f"{show_size(reserved):>12}  {test}")
        terminalreporter.line(self._failure or f"{len(rows)} tests used a GPU; peaks of all: {self._path}")
