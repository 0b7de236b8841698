"""Reading data files of every known format, the Dataset class, and features of texts.

Dataset and TextFeatures are imported at first use, because they need scikit-learn, whose import takes longer than a
prediction.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from longtail.data.read import read

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset as Dataset
    from longtail.data.dataset import Summary as Summary
    from longtail.data.text_features import TextFeatures as TextFeatures

_HOME = {"Dataset": "dataset", "Summary": "dataset", "TextFeatures": "text_features"}

__all__ = ["Dataset", "Summary", "TextFeatures", "read"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'longtail.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"longtail.data.{_HOME[name]}"), name)
