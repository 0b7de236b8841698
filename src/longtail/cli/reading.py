"""Arguments for data and models, options that say how to read data, and the reading itself."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.options import option, options_of, or_word
from longtail.cli.output import note
from longtail.cli.progress import Step, step
from longtail.errors import DataError, InputError

if TYPE_CHECKING:
    import inspect

    from scipy.sparse import csr_array

    from longtail.data import Dataset, TextFeatures
    from longtail.methods import ExtremeClassifier
    from longtail.models import Model as AnyModel
    from longtail.topk import TopK

_DATA = typer.Argument(metavar="DATA", help="A data file, a saved dataset, or - for standard input.")
Data = Annotated[str, _DATA]
OptionalData = Annotated[str | None, _DATA]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a trained model.")]
Filter = Annotated[
    str | None,
    typer.Option("--filter", metavar="FILE", help="Leave out these predictions; a row and a label number per line."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

SCALE = "text_embedding_scale"
ROWS = 8192  # rows predicted between two steps of a bar, or two writes
SHOWN_FROM = 1 << 28  # bytes of a model whose loading is shown; to show it takes longer than to load a smaller one
SUGGEST_AMONG = 100_000  # labels; searching more of them for a similar name takes too long


def _how(name: str, kind: Any, flag: str, text: str, metavar: str | None = None) -> inspect.Parameter:
    return option(name, kind, flag, help=text, metavar=metavar)


FORMAT = "xmc, split, npz, jsonl, json, csv, tsv, txt, parquet, arrow or dataset; else by the file name."
READING = [
    _how("labels", str, "--labels", "The labels, where they are in a file of their own.", "FILE"),
    _how("format", str, "--format", FORMAT, "NAME"),
    _how("dense", str, "--dense", "Embeddings of the rows, computed elsewhere: an array in a .npy file.", "FILE"),
    _how(
        "text_field", str, "--text-field",
        "Texts: the field or column of the text; title,abstract joins two.  [default: text]", "NAME",
    ),
    _how(
        "labels_field", str, "--labels-field", "Texts: the field or column of the labels.  [default: labels]", "NAME"
    ),
    _how(
        "label_separator", str, "--label-separator",
        "Tables: what divides the labels in their column.  [default: |]", "SIGN",
    ),
    _how("delimiter", str, "--delimiter", "Tables: what divides the columns; else found in the header.", "SIGN"),
    _how("encoding", str, "--encoding", "Texts: such as utf-8 or cp1252; else found.", "NAME"),
    _how("zero_based", bool, "--zero-based/--one-based", "Vectors: where feature numbers begin."),
]  # fmt: skip
NAMING = [
    _how("label_names", str, "--label-names", "A file with one label name per line.", "FILE"),
    _how("feature_names", str, "--feature-names", "A file with one feature name per line.", "FILE"),
    option("drop_unknown", bool, "--drop-unknown", help="Texts: drop labels that --label-names lacks, however many."),
]


def text_options() -> list[inspect.Parameter]:
    """`--text-…`: the parameters of TextFeatures."""
    from longtail.data import TextFeatures

    found = options_of(TextFeatures, prefix="text_")
    return [or_word(each, "auto chooses it on held-out rows") if each.name == SCALE else each for each in found]


def text_features(options: dict[str, Any]) -> TextFeatures | None:
    """The text pipeline of the given `--text-…` options, checked before a long file is read."""
    if not options:
        return None
    from longtail.data import TextFeatures

    given = {name: value for name, value in options.items() if (name, value) != (SCALE, "auto")}
    features = TextFeatures(**{name.removeprefix("text_"): value for name, value in given.items()})
    features._check_parameters()
    return features


def with_chosen_scale(dataset: Dataset, options: dict[str, Any]) -> Dataset:
    """The dataset with the scale of `--text-embedding-scale auto`, which then has the chosen number among the options.

    Any other dataset is returned as it is.
    """
    if options.get(SCALE) != "auto":
        return dataset
    from longtail.tuning import choose_embedding_scale

    with step("Choosing the scale of embeddings"):
        chosen = choose_embedding_scale(dataset)
    assert chosen.text_features is not None
    options[SCALE] = chosen.text_features.embedding_scale
    note(f"Embedding scale {options[SCALE]:g}, chosen on held-out rows.")
    return chosen


def read_data(
    path: str, reading: dict[str, Any], *, empty: bool = False, labelled: bool = False, **more: Any
) -> tuple[Dataset, float]:
    """The data and the seconds that reading took.

    Data without rows is an error unless `empty` is set, and data without any label if it must be `labelled`.
    """
    from longtail.data import read

    with step(f"Reading {path}") as reading_step:
        data = read(path, **reading, **more)
    if not data.n_samples and not empty:
        raise DataError("<stdin>" if path == "-" else path, "holds no rows")
    if labelled and not data.Y.nnz:
        raise DataError(
            "<stdin>" if path == "-" else path,
            f"has no labels: none of its {data.n_samples:,} rows has one, so there is nothing to learn; see --labels, "
            "--labels-field and --label-names",
        )
    return data, reading_step.seconds


def divided(dataset: Dataset, fraction: float, *, stratify: bool = False) -> tuple[Dataset, Dataset]:
    """Train and test parts. Features of texts are fitted on the training texts alone."""
    from longtail.hybrid import HybridRows

    train, test = dataset.split(test_size=fraction, stratify=stratify)
    if dataset.text_features is None or train.texts is None or test.texts is None:
        return train, test
    fitted = dataset.text_features.with_words_of(train.texts)

    def again(part: Dataset) -> Dataset:
        assert part.texts is not None
        given = part.X.dense if isinstance(part.X, HybridRows) and fitted.takes_vectors else None
        X = fitted.transform(part.texts) if given is None else HybridRows(fitted.words(part.texts), given)
        return replace(part, X=X, text_features=fitted)

    return again(train), again(test)


def load_estimator(path: str) -> ExtremeClassifier:
    from longtail.methods import load

    with step(f"Loading {path}"):
        return load(path)


def open_model(path: str) -> AnyModel:
    """The model alone. It predicts without its estimator, and without the import of scikit-learn."""
    from longtail.store import load_model, model_size

    large = os.path.isdir(path) and model_size(path) > SHOWN_FROM
    with step(f"Loading {path}", show=large):
        return load_model(path)


def predictions(
    clf: ExtremeClassifier, X: csr_array, k: int, shown: Step, pairs: csr_array | None = None
) -> Iterator[TopK]:
    """The k best labels, for some thousand rows at a time; without `pairs` of a row and a label if they are given."""
    for start in range(0, X.shape[0], ROWS):
        rows = slice(start, start + ROWS)
        yield top_without(clf, X[rows], k, None if pairs is None else pairs[rows])
        shown.update(min(start + ROWS, X.shape[0]), X.shape[0])


def top_without(clf: ExtremeClassifier | AnyModel, X: csr_array, k: int, pairs: csr_array | None) -> TopK:
    """The k best labels that are not among the pairs of these rows."""
    import numpy as np

    if pairs is None or not pairs.nnz:
        return clf.predict_topk(X, k)
    return clf.predict_topk(X, k + int(np.diff(pairs.indptr).max())).without(pairs, k)


def top_labels(clf: ExtremeClassifier, X: csr_array, k: int, pairs: csr_array | None = None) -> tuple[TopK, float]:
    """The k best labels of all rows, and the seconds that took."""
    import numpy as np

    from longtail.topk import TopK

    _ = clf.model_.index  # without it, the first rows would be scored without kernels
    clf.predict_topk(X[:1], k)  # the first call may compile
    with step("Predicting", "rows") as predicting:
        parts = list(predictions(clf, X, k, predicting, pairs))
    names = ("labels", "scores") if parts[0].probabilities is None else ("labels", "scores", "probabilities")
    return TopK(*(np.concatenate([getattr(part, name) for part in parts]) for name in names)), predicting.seconds


def read_filter(path: str | None, n_rows: int, n_labels: int) -> csr_array | None:
    """The pairs of `--filter`."""
    if path is None:
        return None
    from longtail.data.pairs import read_pairs

    return read_pairs(path, (n_rows, n_labels))


def label_called(clf: ExtremeClassifier, name: str) -> int:
    """The column of the label with this name. Labels without names are called by their number."""
    numbered = clf.classes_.dtype.kind in "iu"
    try:
        return clf._column(int(name) if numbered else name)
    except (ValueError, InputError):
        pass
    if numbered:
        raise InputError(f"there is no label {name!r}; the {len(clf.classes_):,} labels of the model are numbers")
    names = [str(each) for each in clf.classes_[:SUGGEST_AMONG]]
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise InputError(f"there is no label {name!r} among the {len(clf.classes_):,} of the model{hint}")
