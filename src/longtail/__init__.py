"""longtail: extreme classification for Python.

    import longtail as lt
    train, test = lt.read("train.txt.xz"), lt.read("test.txt.xz")
    clf = lt.OneVsAll().fit(train)
    top = clf.predict_topk(test.X, k=5)
    print(lt.metrics.evaluate(test.Y, top, train_Y=train.Y))
    clf.save("model"); clf = lt.load("model")

Public names are imported at first use, so that `import longtail` and `longtail --help` are quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from longtail import metrics as metrics
    from longtail.data import Dataset as Dataset
    from longtail.data import TextFeatures as TextFeatures
    from longtail.data.read import read as read
    from longtail.data.split import LabelKFold as LabelKFold
    from longtail.hybrid import HybridRows as HybridRows
    from longtail.methods import Ensemble as Ensemble
    from longtail.methods import Mach as Mach
    from longtail.methods import Memoir as Memoir
    from longtail.methods import OneVsAll as OneVsAll
    from longtail.methods import PDSparse as PDSparse
    from longtail.methods import load as load
    from longtail.methods import merge as merge
    from longtail.models import HashedModel as HashedModel
    from longtail.models import LinearModel as LinearModel
    from longtail.store import load_model as load_model
    from longtail.topk import TopK as TopK
    from longtail.tuning import choose_embedding_scale as choose_embedding_scale
    from longtail.tuning import tune as tune

_HOME = {
    "Dataset": "longtail.data",
    "Ensemble": "longtail.methods",
    "HashedModel": "longtail.models",
    "HybridRows": "longtail.hybrid",
    "LabelKFold": "longtail.data.split",
    "LinearModel": "longtail.models",
    "Mach": "longtail.methods",
    "Memoir": "longtail.methods",
    "OneVsAll": "longtail.methods",
    "PDSparse": "longtail.methods",
    "TextFeatures": "longtail.data",
    "TopK": "longtail.topk",
    "choose_embedding_scale": "longtail.tuning",
    "load": "longtail.methods",
    "load_model": "longtail.store",
    "merge": "longtail.methods",
    "read": "longtail.data",
    "tune": "longtail.tuning",
}

__all__ = [*_HOME, "errors", "metrics"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in ("errors", "metrics"):
        value = importlib.import_module(f"longtail.{name}")
    else:
        raise AttributeError(f"module 'longtail' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
