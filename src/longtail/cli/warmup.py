"""`longtail warmup`: compile the kernels now, so that later commands and services find them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from longtail.cli.output import say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import Json, load_estimator

SENTENCES = ("a small text about one thing", "another text about two things", "a third one, about both")


def warmup(
    models: Annotated[list[str] | None, typer.Argument(metavar="MODEL", help="Model folders to try as well.")] = None,
    prediction: Annotated[
        bool, typer.Option("--prediction", help="Only what prediction needs, as for an image of a service.")
    ] = False,
    json: Json = False,
) -> None:
    """Compile the kernels of all methods ahead of time.

    For container images: a command or service that is started with the same cache is ready at once. NUMBA_CACHE_DIR
    says where the cache is.
    """
    begin = time.perf_counter()
    with step("Compiling"):
        for clf in _small_models(prediction):
            _predict(clf, [*SENTENCES])
    for path in models or ():
        clf = load_estimator(path)
        _predict(clf, [*SENTENCES] if clf.model_.takes_texts else None)
    seconds = time.perf_counter() - begin
    what = "Kernels of prediction" if prediction else "All kernels"
    say_json({"seconds": round(seconds, 2)}) if json else say(f"{what} are compiled ({seconds:.1f} s).")


def _small_models(prediction: bool) -> Iterator[Any]:
    """Models of every kind and method. For prediction, they are made by hand, so that no solver is compiled."""
    import warnings

    import numpy as np
    import scipy.sparse as sp

    from longtail.data import TextFeatures
    from longtail.methods import METHODS, OneVsAll
    from longtail.models import LinearModel
    from longtail.models.compact import compacted
    from longtail.models.compact_weights import EIGHT_BIT, HALF

    texts, labels = list(SENTENCES), [["one"], ["two"], ["one", "two"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three texts need not converge
        if prediction:
            features = TextFeatures().fit(texts)
            clf = OneVsAll()
            names = np.array(["one", "two"])
            W = sp.csr_array(np.ones((2, features.n_features_out_ + 1), np.float32))
            clf.model_ = LinearModel(W, features.n_features_out_, 1.0, label_names=names, text_features=features)
            clf.classes_ = names
            clf.multiclass_ = False
            clf.n_features_in_ = features.n_features_out_
        else:
            clf = OneVsAll(solver="newton").fit(texts, labels)
        yield clf
        for form in (HALF, EIGHT_BIT):
            clf.model_ = compacted(clf.model_, form)
            yield clf
        small = {"mach": {"n_buckets": 2, "n_repetitions": 2}}
        for name, method in METHODS.items():
            if not prediction or name == "mach":
                yield method(**small.get(name, {})).fit(texts, labels)


def _predict(clf: Any, texts: list[str] | None) -> None:
    """Every way to predict, as the service and the command line use them."""
    import numpy as np
    import scipy.sparse as sp

    inner = clf.model_
    _ = inner.index  # without it, the first rows would be scored without kernels
    X = inner.text_features.transform(texts) if texts else sp.csr_array((2, inner.n_features), dtype=np.float32)
    clf.predict_topk(texts or X, 2)
    clf.predict(X)
    inner.scores(X, [0])
    clf.explain(X[[0]], column=0)
