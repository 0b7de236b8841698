"""`longtail evaluate MODEL DATA`: measure predictions, overall and for frequent, medium and rare labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.card import write_card
from longtail.cli.output import UsageError, say, say_json
from longtail.cli.reading import Data, Filter, Json, Model, load_estimator, read_data, read_filter, top_labels
from longtail.errors import DataError

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.methods import ExtremeClassifier
    from longtail.metrics import Evaluation
    from longtail.topk import TopK

EXAMPLES = 5  # rows shown in a report


def evaluate(
    model: Model,
    data: Data,
    train: Annotated[
        str | None,
        typer.Option("--train", metavar="DATA", help="The training data, for PSP@k and bands by frequency."),
    ] = None,
    train_labels: Annotated[
        str | None,
        typer.Option("--train-labels", metavar="FILE", help="The labels of --train, where they are in their own file."),
    ] = None,
    train_dense: Annotated[
        str | None, typer.Option("--train-dense", metavar="FILE", help="The --dense of --train, if it holds texts.")
    ] = None,
    filter: Filter = None,
    ks: Annotated[str | None, typer.Option("--ks", "--top-k", metavar="K,K,…", help="The k of P@k and others.")] = None,
    propensity: Annotated[
        tuple[float, float] | None, typer.Option(metavar="A B", help="Constants of the propensity model of PSP@k.")
    ] = None,
    report: Annotated[str | None, typer.Option("--report", metavar="FILE", help="Also write an HTML page.")] = None,
    card: Annotated[
        bool, typer.Option("--card", help="Keep the figures with the model, for the page of longtail serve.")
    ] = False,
    json: Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Measure how good the predictions of MODEL are.

    P@k, nDCG@k, recall@k, coverage@k and, with --train, the propensity-scored PSP@k and PSnDCG@k; overall and for
    frequent (head), medium (torso) and rare (tail) labels. Then precision, recall and F1 of the labels above the
    threshold and, if MODEL is calibrated, how true its probabilities are.
    """
    options: dict[str, Any] = {"ks": _numbers(ks)} if ks is not None else {}
    if propensity is not None:
        options |= {"A": propensity[0], "B": propensity[1]}
    clf = load_estimator(model)
    from longtail import metrics
    from longtail.metrics.evaluation import KS

    dataset, _ = read_data(data, reading, like=clf.model_)
    if not dataset.Y.nnz:
        raise DataError(data, "has no labels that the model knows, so predictions cannot be compared with anything")
    train_Y = None if train is None else _labels_of(train, {"labels": train_labels, "dense": train_dense}, reading, clf)
    pairs = read_filter(filter, *dataset.Y.shape)
    top, seconds = top_labels(clf, dataset.X, max(options.get("ks", KS)), pairs)
    evaluation = metrics.evaluate(dataset.Y, top, train_Y=train_Y, **options)
    sets = metrics.set_metrics(dataset.Y, _predicted(clf, dataset))
    chances = _chances(dataset, top)
    microseconds = 1e6 * seconds / dataset.n_samples
    if json:
        more = {"sets": sets, "probabilities": chances, "predict_microseconds_per_row": microseconds}
        say_json({"model": model, "data": data, **evaluation.as_dict(), **more})
    else:
        say(evaluation)
        say(f"\n{_sets_table(clf, sets)}\n")
        if chances is not None:
            say(f"{_chances_text(chances)}\n")
        if train is None:
            say("PSP@k needs the label frequencies of the training data: add --train DATA.")
        say(f"Predicting took {microseconds:,.0f} µs per row.")
    if card:
        write_card(model, train_Y=train_Y, test=dataset, top=top, evaluation=evaluation)
    if report is not None:
        counts = (dataset.Y if train_Y is None else train_Y).sum(axis=0)
        page = _page(model, data, clf, dataset, top, evaluation, counts, _sets_table(clf, sets))
        page.write_html(report)


def _labels_of(train: str, files: dict[str, str | None], reading: dict[str, Any], clf: ExtremeClassifier) -> Any:
    """The labels of the training data, which has its own `files`. Those of `reading` belong to the evaluated data."""
    own = {name: value for name, value in reading.items() if name not in files}
    own |= {name: file for name, file in files.items() if file is not None}
    Y = read_data(train, own, like=clf.model_)[0].Y
    if not Y.nnz:
        raise DataError(train, "has no labels that the model knows; if they are in a file of their own: --train-labels")
    return Y


def _numbers(words: str) -> tuple[int, ...]:
    numbers = tuple(int(word) for word in words.split(",") if word.isdecimal())
    if len(numbers) != words.count(",") + 1 or min(numbers) < 1:
        raise UsageError(f"--ks takes whole numbers from 1, such as 1,3,5, but got {words!r}")
    return numbers


def _predicted(clf: ExtremeClassifier, dataset: Dataset) -> Any:
    """Indicator of the labels that `predict` returns."""
    import numpy as np

    from longtail.matrix import ones

    if not clf.multiclass_:
        return clf.model_.predict_labels(dataset.X, n_jobs=clf.n_jobs)
    best = clf.model_.predict_topk(dataset.X, 1, n_jobs=clf.n_jobs).labels[:, 0]
    return ones(best, np.arange(len(best) + 1), dataset.Y.shape)


def _chances(dataset: Dataset, top: TopK) -> dict[str, float] | None:
    from longtail import metrics

    if top.probabilities is None:
        return None
    k = top.labels.shape[1]
    return {
        f"ECE@{k}": metrics.calibration_error(dataset.Y, top, k),
        f"log-loss@{k}": metrics.log_loss(dataset.Y, top, k),
    }


def _sets_table(clf: ExtremeClassifier, sets: dict[str, float]) -> Any:
    from longtail.report import Table

    rows = [
        [average, *(100 * sets[f"{average}-{name}"] for name in ("precision", "recall", "F1"))]
        for average in ("micro", "macro", "sample")
    ]
    thresholds = clf.model_.thresholds
    target = "the default threshold" if thresholds is None else f"a threshold for {thresholds.target}"
    note = f"In per cent, of the labels that predict returns with {target}: {sets['labels per row']:.2f} per row."
    return Table(["predicted labels", "precision", "recall", "F1"], rows, note)


def _chances_text(chances: dict[str, float]) -> str:
    figures = ", ".join(f"{name} {value:.4f}" for name, value in chances.items())
    return f"Probabilities: {figures}. ECE is the mean distance between probability and share of hits."


def _page(
    model: str,
    data: str,
    clf: ExtremeClassifier,
    dataset: Dataset,
    top: TopK,
    evaluation: Evaluation,
    counts: Any,
    sets: Any,
) -> Any:
    from longtail import metrics
    from longtail.cli.examples import example
    from longtail.report import (
        BandBars,
        Examples,
        Facts,
        FrequencyCurve,
        ReliabilityDiagram,
        Report,
        Section,
        Table,
    )

    sizes = {"rows": dataset.n_samples, "features": dataset.n_features, "labels": dataset.n_labels}
    names = [name for name in evaluation.overall if name.startswith("P@")]
    sections = [
        Section("Data", Facts(sizes), FrequencyCurve(counts)),
        Section(
            "Scores",
            BandBars(evaluation, names),
            Table.of(evaluation),
        ),
        Section("Predicted labels", sets),
    ]
    if top.probabilities is not None:
        found = metrics.reliability(dataset.Y, top, top.labels.shape[1])
        sections.append(Section("Probabilities", ReliabilityDiagram(found)))
    if dataset.texts is not None:
        shown = range(0, dataset.n_samples, max(1, dataset.n_samples // EXAMPLES))[:EXAMPLES]
        sections.append(Section("Examples", Examples([example(clf, dataset, i, top) for i in shown])))
    return Report(f"Evaluation of {model}", f"{clf.method} on {data}", sections)
