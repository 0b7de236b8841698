"""The estimators. Each method has its own folder; base.py holds what they share.

To add a method, create a folder with an estimator that derives from ExtremeClassifier, and add it to METHODS.
"""

from __future__ import annotations

import os

from longtail import store
from longtail.data import TextFeatures
from longtail.errors import ModelError
from longtail.methods.base import ExtremeClassifier
from longtail.methods.ensemble import Ensemble
from longtail.methods.mach import Mach
from longtail.methods.memoir import Memoir
from longtail.methods.merging import merge
from longtail.methods.one_vs_all import OneVsAll
from longtail.methods.pd_sparse import PDSparse

METHODS: dict[str, type[ExtremeClassifier]] = {method.method: method for method in (OneVsAll, PDSparse, Memoir, Mach)}

__all__ = ["METHODS", "Ensemble", "ExtremeClassifier", "Mach", "Memoir", "OneVsAll", "PDSparse", "load", "merge"]


def load(folder: str | os.PathLike[str], *, mmap: bool = True) -> ExtremeClassifier:
    """Load the fitted estimator saved in `folder`.

    The files are verified before use. The weights are memory-mapped unless `mmap=False`.
    """
    model, provenance = store.read_model(folder, mmap=mmap, text_features=TextFeatures)
    known: dict[str, type[ExtremeClassifier]] = {**METHODS, Ensemble.method: Ensemble}
    if provenance.method not in known:
        raise ModelError(
            folder,
            f"was trained by the method {provenance.method!r}, which this version lacks; it knows {', '.join(known)}",
        )
    return known[provenance.method]._fitted(model, provenance, where=folder)
