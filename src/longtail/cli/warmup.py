"""`longtail warmup`: compile the kernels of prediction now, so that the first start of a service need not."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from longtail.cli.output import say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import Json, load_model

SENTENCES = ("a small text about one thing", "another text about two things", "a third one, about both")


def warmup(
    models: Annotated[list[str] | None, typer.Argument(metavar="MODEL", help="Model folders to try as well.")] = None,
    json: Json = False,
) -> None:
    """Compile the kernels of prediction ahead of time.

    For container images: a service that is started with the same cache is ready at once. NUMBA_CACHE_DIR says where
    the cache is.
    """
    begin = time.perf_counter()
    for clf in _small_models():
        _predict(clf, [*SENTENCES])
    for path in models or ():
        clf = load_model(path)
        _predict(clf, [*SENTENCES] if clf.model_.text_features is not None else None)
    seconds = time.perf_counter() - begin
    say_json({"seconds": round(seconds, 2)}) if json else say(f"Kernels of prediction are compiled ({seconds:.1f} s).")


def _small_models() -> list[Any]:
    """One model of each kind that is saved, made by hand: to train one would compile the solvers, too."""
    from longtail.methods import Mach, OneVsAll

    labels = [["one"], ["two"], ["one", "two"]]
    with step("Compiling"):
        return [
            OneVsAll().fit(list(SENTENCES), labels),
            Mach(n_buckets=2, n_repetitions=2).fit(list(SENTENCES), labels),
        ]


def _predict(clf: Any, texts: list[str] | None) -> None:
    """Every way to predict, as the service and the command line use them."""
    import numpy as np
    import scipy.sparse as sp

    inner = clf.model_
    X = inner.text_features.transform(texts) if texts else sp.csr_array((2, inner.n_features), dtype=np.float32)
    clf.predict_topk(texts or X, 2)
    clf.predict(X)
    inner.scores(X, [0])
    clf.explain(X[[0]], column=0)
