"""Finds the largest batch that trains on this card, by trying.

``finder`` has what is called, ``executable`` what the decorator makes, ``search`` the form without a function,
``trials`` what is tried. ``bracket`` decides purely which size is next, ``predict`` asks the emulated card, ``results``
keeps answers.
"""

from __future__ import annotations

from .finder import find_executable_batch_size, predict_batch_size, scale_batch_size, search_batch_size
from .predict import Prediction
from .search import Attempt, BatchSizeResult, BatchSizeSearch
from .trials import TrainingTrial

__all__ = [
    "Attempt",
    "BatchSizeResult",
    "BatchSizeSearch",
    "Prediction",
    "TrainingTrial",
    "find_executable_batch_size",
    "predict_batch_size",
    "scale_batch_size",
    "search_batch_size",
]
