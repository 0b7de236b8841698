"""`longtail demo`: train, save, measure and explain a model of a real corpus, in a minute or two.

The texts are the diagnoses of ICD-10-CM (longtail.data.icd10), labelled with their codes and all codes above them.
"""

from __future__ import annotations

import math
import shlex
import time
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.card import write_card
from longtail.cli.examples import example
from longtail.cli.output import say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import Json, load_estimator, top_labels
from longtail.cli.train import check_target, save
from longtail.errors import ModelError
from longtail.words import duration, size

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.methods import ExtremeClassifier
    from longtail.metrics import Evaluation
    from longtail.report import Section
    from longtail.topk import TopK

K = 5
FIFTHS = (0, 1, 0, 2, 0)  # the kind of example that is taken from each fifth of the test texts; see `telling_rows`
SHOWN = tuple(f"{metric}@{k}" for metric in ("P", "PSP") for k in (1, 3, 5))


def demo(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="Everything is written there.")
    ] = "demo-output",
    json: Json = False,
    serve: Annotated[bool, typer.Option("--serve", help="Then open a page to try the model.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of that page.")] = 8080,
    texts: Annotated[int | None, typer.Option("--texts", hidden=True, min=10, help="Use fewer.")] = None,
) -> None:
    """Train on a real corpus, measure, explain, report.

    About 48,000 diagnosis texts of ICD-10-CM with 15,000 labels; a minute or two on two cores.
    """
    begin = time.perf_counter()
    folder = Path(output)
    check_target(str(folder / "model"), force=True)
    run = DemoRun(**_corpus(texts), folder=folder)

    def tell(section: Section) -> None:
        if not json:
            say(f"{section}\n")

    tell(run.data_section())
    run.train()
    tell(run.model_section())
    tell(run.scores_section(plot=False))
    run.train_with_embeddings()
    if run.embedded is not None:
        tell(run.embedded)
    tell(run.examples_section())
    with step("Writing the report"):
        report = run.write_report()
        run.write_card()
    seconds = time.perf_counter() - begin
    if json:
        say_json({**run.figures(), "report": str(report), "total_seconds": round(seconds, 2)})
    else:
        say(run.farewell(report, seconds))
    if serve:
        from longtail.cli.serve import run as run_service

        run_service([f"demo={run.model_folder}"], port=port, access_log=False)


def _corpus(texts: int | None) -> dict[str, Any]:
    """Both parts of the corpus (or of its first texts only), titles of labels, and how long reading took."""
    from longtail.data import Dataset, icd10

    with step("Reading ICD-10-CM") as reading:
        corpus = icd10.load()
    with step("Making features") as features:
        train = Dataset.from_texts(*zip(*corpus.train[:texts], strict=True))
        names = train.label_names.tolist() if train.label_names is not None else []
        rows, known = corpus.test[: texts and texts // 4], set(names)
        labels = [[label for label in row if label in known] for _, row in rows]
        test = Dataset.from_texts(
            [text for text, _ in rows], labels, text_features=train.text_features, label_names=names
        )
    seconds = {"read_seconds": reading.seconds, "features_seconds": features.seconds}
    return {"train_part": train, "test_part": test, "titles": corpus.titles, **seconds}


@dataclass
class DemoRun:
    """One demo: the corpus and everything made from it."""

    train_part: Dataset
    test_part: Dataset
    titles: dict[str, str]
    read_seconds: float
    features_seconds: float
    folder: Path
    train_seconds: float = 0.0
    predict_seconds: float = 0.0
    embedded: Section | None = None
    clf: ExtremeClassifier = field(init=False)
    top: TopK = field(init=False)

    def train(self) -> None:
        """Train, save and load. Everything after this uses the loaded model, as a user on another machine would."""
        from longtail.methods import OneVsAll

        trained = OneVsAll()
        with step("Training", "%") as training:
            trained.fit(self.train_part, progress=training.share)
        self.train_seconds = training.seconds
        save(trained, str(self.model_folder))
        self.clf = load_estimator(str(self.model_folder))

        self.top, self.predict_seconds = top_labels(self.clf, self.test_part.X, K)
        with step("Predicting from raw texts"):
            again = self.clf.predict_topk(self.test_part.texts, K)
        if (again.labels != trained.predict_topk(self.test_part.X, K).labels).any():
            raise ModelError(self.model_folder, "answers differently from the model that was saved; please report this")

    def train_with_embeddings(self) -> None:
        """Train a second model, on words and embeddings, if the package with a table of token vectors is installed."""
        from longtail import metrics
        from longtail.data import TextFeatures
        from longtail.data.embeddings.static import PACKAGED, packaged_folder
        from longtail.methods import OneVsAll
        from longtail.report import Paragraph, Section, Table

        if packaged_folder() is None or self.train_part.texts is None or self.test_part.texts is None:
            return
        features = TextFeatures(embeddings=PACKAGED)
        with step("Making embeddings"):
            X, X_test = features.fit_transform(self.train_part.texts), features.transform(self.test_part.texts)
        with step("Training with embeddings", "%") as training:
            clf = OneVsAll().fit(X, self.train_part.Y, progress=training.share)
        both = {"words": self.top, "words and embeddings": clf.predict_topk(X_test, K)}
        seconds = dict(zip(both, (self.train_seconds, training.seconds), strict=True))
        rows = [
            [name, *(f"{100 * metrics.precision_at_k(self.test_part.Y, top, k):.1f}" for k in (1, 3, 5)),
             duration(seconds[name])]
            for name, top in both.items()
        ]  # fmt: skip
        words = f"Token vectors beside the columns of words, as with: longtail train … --text-embeddings {PACKAGED}"
        header = ["", "P@1", "P@3", "P@5", "training"]
        self.embedded = Section("With embeddings", Table(header, rows), Paragraph(words))

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"

    @property
    def predict_microseconds(self) -> float:
        return 1e6 * self.predict_seconds / self.test_part.n_samples

    @cached_property
    def evaluation(self) -> Evaluation:
        from longtail import metrics

        return metrics.evaluate(self.test_part.Y, self.top, train_Y=self.train_part.Y, ks=(1, 3, 5))

    @cached_property
    def model_bytes(self) -> int:
        from longtail import store

        return store.model_size(self.model_folder)

    # --- sections of the page, which are also what the terminal shows ------------------------------------------------

    def data_section(self) -> Section:
        from longtail.report import Facts, FrequencyCurve, Paragraph, Section

        words = "Names of diagnoses, labelled with their code and all codes above it. Every fifth text is a test text."
        facts = {
            "training texts": self.train_part.n_samples,
            "test texts": self.test_part.n_samples,
            "labels": self.train_part.n_labels,
            "labels per text": round(self.train_part.Y.nnz / self.train_part.n_samples, 1),
            "features": self.train_part.n_features,
        }
        return Section("Data", Paragraph(words), Facts(facts), FrequencyCurve(self.train_part.Y.sum(axis=0)))

    def model_section(self) -> Section:
        from longtail.report import Facts, Paragraph, Section

        peak = self.clf.training_.peak_bytes
        facts: dict[str, str | int | float | None] = {
            "reading": duration(self.read_seconds),
            "making features": duration(self.features_seconds),
            "training": duration(self.train_seconds),
            "predicting": f"{self.predict_microseconds:,.0f} µs per text",
            "weights": self.clf.model_.n_weights,
            "model on disk": size(self.model_bytes),
            "peak memory": size(int(peak)) if math.isfinite(peak) else "unknown",
        }
        words = (
            "Loaded from disk and given raw texts, the model gives the same answers: its text pipeline is part of it."
        )
        return Section("Model", Facts(facts), Paragraph(words))

    def scores_section(self, *, plot: bool) -> Section:
        from longtail.report import BandBars, Section, Table

        header, rows = self.evaluation.table()
        kept = [row for row in rows if row[0] in ("labels", "rows", *SHOWN)]
        bars = [BandBars(self.evaluation, ["PSP@1", "PSP@3", "PSP@5"])] if plot else []
        return Section("Scores", Table(header, kept, self.evaluation.note), *bars)

    def examples_section(self) -> Section:
        from longtail.report import Examples, Section

        shown = [example(self.clf, self.test_part, i, self.top, self.titles) for i in self.chosen]
        return Section("Examples from the test texts", Examples(shown))

    def write_report(self) -> Path:
        from longtail.report import Report

        subtitle = (
            f"One-vs-all on {self.train_part.n_samples:,} diagnosis texts with {self.train_part.n_labels:,} labels"
        )
        sections = [self.data_section(), self.model_section(), self.scores_section(plot=True)]
        sections += [self.examples_section()] if self.embedded is None else [self.embedded, self.examples_section()]
        path = self.folder / "report.html"
        Report("longtail on ICD-10-CM", subtitle, sections).write_html(path)
        return path

    def write_card(self) -> None:
        write_card(
            str(self.model_folder),
            train_Y=self.train_part.Y,
            test=self.test_part,
            top=self.top,
            evaluation=self.evaluation,
            titles=self.titles,
            examples=[self.test_part.texts[i] for i in self.chosen] if self.test_part.texts else (),
            names=self.clf.classes_.tolist(),
        )

    @cached_property
    def chosen(self) -> list[int]:
        return telling_rows(self.test_part, self.top)

    # --- the end -----------------------------------------------------------------------------------------------------

    def farewell(self, report: Path, seconds: float) -> str:
        """Where everything is, and what to try next."""
        text = min((self.test_part.texts[i] for i in self.chosen if self.test_part.texts), key=len, default="")
        label = self.clf.classes_[self.top.labels[self.chosen[0], -1]]
        model = shlex.quote(str(self.model_folder))
        return "\n".join(
            [
                f"Done in {duration(seconds)}. Open {report} in a browser, or try:",
                "",
                f"  longtail explain {model} --text {shlex.quote(text)}",
                f"  longtail predict {model} --text 'fracture of the ankle after a fall from a ladder'",
                f"  longtail inspect {model} --label {shlex.quote(str(label))}",
                f"  longtail serve demo={model}   # then open http://127.0.0.1:8080",
            ]
        )

    def figures(self) -> dict[str, Any]:
        """Everything that was measured, for programs."""
        return {
            "data": asdict(self.train_part.summary()),
            "test_rows": self.test_part.n_samples,
            "read_seconds": round(self.read_seconds, 2),
            "features_seconds": round(self.features_seconds, 2),
            "train_seconds": round(self.train_seconds, 2),
            "predict_microseconds_per_row": round(self.predict_microseconds, 1),
            "training": self.clf.training_.as_dict(),
            "model": str(self.model_folder),
            "model_bytes": self.model_bytes,
            "weights": self.clf.model_.n_weights,
            "evaluation": self.evaluation.as_dict(),
        }


def telling_rows(test: Dataset, top: TopK) -> list[int]:
    """Five rows to show, one from each fifth of the corpus, which is ordered by chapter: three that are predicted well,
    one with a wrong best label, and one that is half right."""
    import numpy as np

    right = np.array([np.isin(top.labels[i], test.Y[[i]].indices) for i in range(test.n_samples)])
    hits = right.sum(axis=1)
    words = np.array([len(text.split()) for text in test.texts or []])
    fine = (words >= 4) & (words <= 14) & (np.diff(test.Y.indptr) >= 4)
    wants = [hits + words / 100, top.scores[:, 0] - 9 * right[:, 0], -np.abs(hits - 2.6)]
    parts = zip(np.array_split(np.arange(test.n_samples), len(FIFTHS)), FIFTHS, strict=True)
    return [int(part[np.argmax((wants[want] + 99 * fine)[part])]) for part, want in parts if len(part)]
