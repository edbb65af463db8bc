"""Sizes as people write and read them: binary units."""

from __future__ import annotations

from ._numbers import whole_number

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(size: int | str) -> int:
    """Bytes of a size given as a number or as text with a binary unit.

    ``GB`` means what ``GiB`` means, as in the settings and messages of PyTorch.

    >>> parse_size("1.5GiB"), parse_size("512 MB"), parse_size(4096)
    (1610612736, 536870912, 4096)

    Raises:
        ValueError: it is neither, or negative.
        TypeError: it is no number and no text.
    """
    if not isinstance(size, str):
        try:
            bytes_given = whole_number(size, "a size")
        except TypeError:
            raise TypeError(
                f"a size is a number of bytes or a text such as '20GiB', not {type(size).__name__}"
            ) from None
        number, unit = float(bytes_given), 1
        if bytes_given >= 0:
            return bytes_given
    else:
        text = size.strip().lower().replace("_", "")
        digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
        word = text[len(digits) :].strip()
        short = word.removesuffix("b").removesuffix("i") if word != "b" else word
        if short not in _UNITS or (short == "" and word not in ("", "b")):
            raise ValueError(f"{size!r} is no size: write bytes, or a number with KiB, MiB, GiB or TiB behind it")
        try:
            number, unit = float(digits), _UNITS[short]
        except ValueError:
            raise ValueError(f"{size!r} is no size: write it as in '20GiB'") from None
    if not 0 <= number < float("inf"):
        raise ValueError(f"{size!r} is no size: sizes are not negative and have an end")
    return int(number * unit)


def show_size(size: int) -> str:
    """A number of bytes for people.

    >>> show_size(1536), show_size(20 << 30), show_size(7)
    ('1.50 KiB', '20.00 GiB', '7 B')
    """
    if abs(size) < 1 << 10:
        return f"{size} B"
    for unit, factor in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        if abs(size) < factor << 10:
            return f"{size / factor:.2f} {unit}"
    return f"{size / (1 << 40):.2f} TiB"
