"""Exceptions of this package. Each has its facts as attributes."""

from __future__ import annotations


class VramwiseError(Exception):
    """Base of everything that this package raises on its own account.

    Out of memory is not among them: ``torch.OutOfMemoryError`` reaches the caller as torch raised it.
    """


class UnreadableFileError(VramwiseError, ValueError):
    """A file is no snapshot, or damaged beyond use.

    Attributes:
        path: the file as it was given.
        offset: where in the (uncompressed) file, in bytes; ``None`` if that has no meaning.
    """

    def __init__(self, message: str, *, path: str = "", offset: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class NoBatchFitsError(VramwiseError, RuntimeError):
    """Not even the smallest batch that may be tried fits.

    The last out-of-memory error is its ``__cause__``.

    Attributes:
        tried: the batch sizes that ran out of memory, in the order of the attempts.
        smallest: the smallest batch size that might have been tried.
    """

    def __init__(self, message: str, *, tried: tuple[int, ...] = (), smallest: int = 1) -> None:
        super().__init__(message)
        self.tried = tried
        self.smallest = smallest


class OtherRankError(VramwiseError, RuntimeError):
    """Another rank failed, with an error that is not out of memory, while this one was fine.

    Raised so that this rank does not wait for one that is gone; the reason is in the other rank's log.
    """


class NoHistoryError(VramwiseError, ValueError):
    """A snapshot has no history of the allocator, and the question needs one.

    Attributes:
        path: the file as it was given.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class NotReproducedError(VramwiseError, RuntimeError):
    """The model does not reproduce a recording, so that a replay of it proves nothing.

    Attributes:
        path: the file as it was given.
        device: the device.
        allocs: allocations of the recording.
        allocs_exact: those whose address the model reproduced.
        first_divergence_event: the event where model and recording part, or ``None``.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        device: int = 0,
        allocs: int = 0,
        allocs_exact: int = 0,
        first_divergence_event: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.device = device
        self.allocs = allocs
        self.allocs_exact = allocs_exact
        self.first_divergence_event = first_divergence_event


class ArgumentError(VramwiseError, ValueError):
    """An argument means nothing, or nothing for this file; the message says what to do."""


class SettingsError(VramwiseError, ValueError):
    """A string of allocator settings that PyTorch would refuse, or that means something else than it seems.

    Attributes:
        settings: the whole string.
        position: index of the first character at fault, or ``None``.
    """

    def __init__(self, message: str, *, settings: str = "", position: int | None = None) -> None:
        super().__init__(message)
        self.settings = settings
        self.position = position


class NotAvailableError(VramwiseError, RuntimeError):
    """Something that this call needs is not there: torch, its CUDA build, a device, a library of this package.

    Attributes:
        missing: what is not there, in one word or two.
    """

    def __init__(self, message: str, *, missing: str = "") -> None:
        super().__init__(message)
        self.missing = missing


class VramwiseWarning(UserWarning):
    """Something that an answer leaves open, or that was decided for the caller."""
