"""Settings strings taken apart and put together again; what they mean is PyTorch's affair (and ``_native``'s)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..errors import SettingsError

# Each parse of a string puts these back to their defaults before it reads on; all others stay as they were.
RESET_BY_EACH_PARSE = frozenset(
    {
        "max_split_size_mb",
        "max_non_split_rounding_mb",
        "garbage_collection_threshold",
        "roundup_power2_divisions",
    }
)
# What the others are in a process that never set them.
DEFAULTS = {
    "expandable_segments": "False",
    "graph_capture_record_stream_reuse": "False",
    "large_segment_size_mb": "20",
    "pinned_num_register_threads": "1",
    "pinned_use_cuda_host_register": "False",
    "release_lock_on_cudamalloc": "False",
}
# Taken when the allocator, or the one for pinned memory, is made; setting them later changes nothing.
FIXED_AT_START = {
    "backend": "it is chosen when torch is imported",
    "per_process_memory_fraction": "devices in use keep their limit; call torch.cuda.set_per_process_memory_fraction",
    "pinned_reserve_segment_size_mb": "pinned memory is reserved once, at its first use",
    "pinned_use_background_threads": "the threads are made once, at the first use of pinned memory",
}
_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def from_environment(environment: Mapping[str, str] | None = None) -> str:
    """The string that PyTorch reads at its start: of the first variable that is set, even to nothing.

    >>> from_environment({"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": ""})
    ''
    """
    environment = os.environ if environment is None else environment
    return next((environment[name] for name in _VARIABLES if name in environment), "")


def options(text: str) -> dict[str, str]:
    """Options by name, the last one where one occurs twice; a list in brackets is one value.

    >>> options("max_split_size_mb:64, roundup_power2_divisions:[256:1,>:4]")
    {'max_split_size_mb': '64', 'roundup_power2_divisions': '[256:1,>:4]'}

    Raises:
        SettingsError: something is not of the form ``name:value``.
    """
    found: dict[str, str] = {}
    at = 0
    for part in _parts(text):
        name, colon, value = (word.strip() for word in part.partition(":"))
        if name or colon:
            if not (name and colon and value):
                lead = at + len(part) - len(part.lstrip())
                raise SettingsError(
                    f"{part.strip()!r} (at character {lead}) is not of the form name:value; write options as in "
                    "'max_split_size_mb:128,garbage_collection_threshold:0.8'",
                    settings=text,
                    position=lead,
                )
            found[name] = "".join(value.split())
        at += len(part) + 1
    return found


def text_of(found: Mapping[str, object]) -> str:
    """The reverse of :func:`options`; ``True`` and ``False`` as PyTorch writes them.

    >>> text_of({"expandable_segments": True, "max_split_size_mb": 64})
    'expandable_segments:True,max_split_size_mb:64'
    """
    return ",".join(f"{name}:{value}" for name, value in found.items())


def _parts(text: str) -> list[str]:
    """The pieces between commas that are outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
