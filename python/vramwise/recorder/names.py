"""Names of files: why, which rank, which step. vramwise reads all three out of them again."""

from __future__ import annotations

import os
from typing import Any

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def ranks(torch: Any = None) -> dict[str, int | None]:
    """``rank``, ``local_rank`` and ``world_size`` of this process; ``None`` where nothing says so.

    ``torch.distributed`` counts first where it is initialised, then the variables that launchers set.
    """
    found = {"rank": _first(_RANK), "local_rank": _first(_LOCAL), "world_size": _first(_WORLD)}
    distributed = getattr(torch, "distributed", None)
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            found["rank"] = int(distributed.get_rank())
            found["world_size"] = int(distributed.get_world_size())
    except (RuntimeError, ValueError):
        pass
    return found


def stem(reason: str, rank: int | None, step: int | None) -> str:
    """The name of a file without its ending.

    >>> stem("oom", 3, 12), stem("end", None, None)
    ('oom_rank3_step12', 'end_rank0')
    """
    name = f"{reason}_rank{0 if rank is None else rank}"
    return name if step is None else f"{name}_step{step}"


def _first(names: tuple[str, ...]) -> int | None:
    for name in names:
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return None
