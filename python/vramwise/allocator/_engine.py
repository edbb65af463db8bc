"""The engine's library, and the few of its functions that Python calls."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import NotAvailableError, SettingsError

LIBRARY = "libvramwise_allocator.so"
VERSION = 3
ALL_DEVICES = -1
_CHECK_ONLY = -2
_OK = 0


def library_directory() -> Path:
    """Where this package's libraries lie: VRAMWISE_LIB_DIR, or else ``lib`` in the package."""
    given = os.environ.get("VRAMWISE_LIB_DIR")
    return Path(given) if given else Path(__file__).resolve().parent.parent / "lib"


class _Calls(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("count", ctypes.c_uint64),
        ("total_ns", ctypes.c_uint64),
        ("longest_ns", ctypes.c_uint64),
    ]


@dataclass(frozen=True)
class DriverCalls:
    """The driver's calls of one kind that the allocator made on a device.

    Attributes:
        name: of the call.
        count: how many.
        total_ns: nanoseconds of all together, on the host's clock.
        longest_ns: nanoseconds of the longest.
    """

    name: str
    count: int
    total_ns: int
    longest_ns: int


class _Table(ctypes.Structure):
    """The beginning of the table; what follows is for the shim only."""

    _fields_ = [
        ("version", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("init", ctypes.c_void_p),
        ("set_settings", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_char_p)),
        ("settings", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int32, ctypes.c_char_p, ctypes.c_size_t)),
        ("last_message", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("driver_calls", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int32, ctypes.POINTER(_Calls), ctypes.c_size_t)),
        ("movable", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_int32)),
    ]


class Engine:
    """The loaded library. It is never unloaded."""

    def __init__(self) -> None:
        self.path = library_directory() / LIBRARY
        if not self.path.is_file():
            raise NotAvailableError(f"its library {self.path} is not there", missing=LIBRARY)
        try:
            library = ctypes.CDLL(str(self.path))
            get = library.vramwise_engine_table
        except (OSError, AttributeError) as error:
            raise NotAvailableError(f"its library cannot be loaded: {error}", missing=LIBRARY) from error
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_uint32]
        self.table = get(VERSION)
        if not self.table:
            raise NotAvailableError(f"{self.path} is of another version of vramwise than this package", missing=LIBRARY)
        self._functions = _Table.from_address(self.table)

    def set_settings(self, device: int, text: str) -> str:
        """Gives a device (or all) its settings; returns the engine's remark on them, mostly empty.

        Raises:
            SettingsError: with the engine's own words; nothing was changed.
        """
        if not isinstance(text, str):
            raise TypeError(f"allocator settings are text such as 'slack:2%', not {text!r}")
        if "\0" in text:
            at = text.index("\0")
            raise SettingsError(f"allocator settings {text!r}: a NUL character", settings=text, position=at)
        status = self._functions.set_settings(device, text.encode())
        said = self._said()
        if status != _OK:
            found = re.search(r"at position (\d+)", said)
            position = int(found[1]) if found else None
            raise SettingsError(f"allocator settings {text!r}: {said or 'refused'}", settings=text, position=position)
        return said

    def check_settings(self, text: str) -> None:
        """Raises what :meth:`set_settings` would for this text, and changes nothing."""
        self.set_settings(_CHECK_ONLY, text)

    def settings(self, device: int) -> str:
        """The settings in force, as text."""
        length = self._functions.settings(device, None, 0)
        text = ctypes.create_string_buffer(length + 1)
        self._functions.settings(device, text, length + 1)
        return text.value.decode(errors="replace")

    def driver_calls(self, device: int) -> list[DriverCalls]:
        """What the driver's calls cost so far, by kind; empty for a device that was not used."""
        room = self._functions.driver_calls(device, None, 0)
        calls = (_Calls * room)()
        self._functions.driver_calls(device, calls, room)
        return [DriverCalls(c.name.decode(), c.count, c.total_ns, c.longest_ns) for c in calls if c.count]

    def movable(self, device: int) -> int:
        """Free bytes that a request on any stream can have, beside what the driver has free."""
        return int(self._functions.movable(device))

    def _said(self) -> str:
        return (self._functions.last_message() or b"").decode(errors="replace")
