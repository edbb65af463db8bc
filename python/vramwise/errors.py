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
