"""`longtail demo`: from a real corpus to a trained, saved, measured and explained model, in a few minutes.

The texts are the diagnoses of ICD-10-CM (longtail.data.icd10); the labels of a text are its code and everything above it.
"""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.examples import example
from longtail.cli.output import duration, say, say_json, size
from longtail.cli.progress import step
from longtail.cli.reading import Json, load_model, top_labels
from longtail.cli.train import check_target, save
from longtail.errors import ModelError

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.methods import ExtremeClassifier
    from longtail.metrics import Evaluation
    from longtail.report import Section
    from longtail.topk import TopK

K = 5
FIFTHS = (0, 1, 0, 2, 0)  # what to look for in each fifth of the test texts, see `telling_rows`
SHOWN = tuple(f"{metric}@{k}" for metric in ("P", "PSP") for k in (1, 3, 5))


def demo(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="Everything is written there.")
    ] = "demo-output",
    json: Json = False,
    texts: Annotated[
        int | None, typer.Option("--texts", hidden=True, min=10, help="Use only the first training texts.")
    ] = None,
) -> None:
    """Train on 48,000 diagnosis texts with 15,000 labels, measure, explain, and write a report."""
    begin = time.perf_counter()
    folder = Path(output)
    check_target(str(folder / "model"), force=True)
    run = Run(*_corpus(texts), folder=folder)
    tell = (lambda section: None) if json else (lambda section: say(f"{section}\n"))
    tell(run.data_section())
    run.train()
    tell(run.model_section())
    tell(run.scores_section())
    tell(run.examples_section())
    with step("Writing the report"):
        report = run.write_report()
    seconds = time.perf_counter() - begin
    if json:
        say_json({**run.figures(), "report": str(report), "total_seconds": round(seconds, 2)})
    else:
        say(run.farewell(report, seconds))


def _corpus(texts: int | None) -> tuple[Dataset, Dataset, dict[str, str], float]:
    from longtail.data import icd10

    with step("Reading ICD-10-CM and making features") as reading:
        train, test, titles = icd10.datasets()
    if texts is not None:
        train, test = train.select(slice(texts)), test.select(slice(max(texts // 4, 5)))
    return train, test, titles, reading.seconds


@dataclass
class Run:
    """One demo: the corpus, then everything that is made of it."""

    train_part: Dataset
    test_part: Dataset
    titles: dict[str, str]
    read_seconds: float
    folder: Path
    train_seconds: float = 0.0
    predict_seconds: float = 0.0
    clf: ExtremeClassifier = field(init=False)
    top: TopK = field(init=False)

    def train(self) -> None:
        """Train, save, and from then on use only what was read back: the model must travel."""
        from longtail.methods import OneVsAll

        trained = OneVsAll()
        with step("Training", "labels") as training:
            trained.fit(self.train_part, progress=training.update)
        self.train_seconds = training.seconds
        save(trained, str(self.model_folder))
        self.clf = load_model(str(self.model_folder))
        top_labels(self.clf, self.test_part.X[:1], K)  # inverts the weights, once
        self.top, self.predict_seconds = top_labels(self.clf, self.test_part.X, K)
        with step("Predicting from raw texts"):
            again = self.clf.predict_topk(self.test_part.texts, K)
        if (again.labels != trained.predict_topk(self.test_part.X, K).labels).any():
            raise ModelError(self.model_folder, "answers differently from the model that was saved; please report this")

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

        words = (
            "Texts are descriptions and other names of diagnoses. The labels of a text are its code and all codes, blocks "
            "and the chapter above it. A fifth of the texts, chosen by hash, is kept for the test."
        )
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

        peak = peak_memory()
        facts = {
            "reading, features": duration(self.read_seconds),
            "training": duration(self.train_seconds),
            "predicting": f"{self.predict_microseconds:,.0f} µs per text",
            "weights": int(self.clf.model_.W.nnz),
            "model on disk": size(self.model_bytes),
            "peak memory": "unknown" if peak is None else size(peak),
        }
        words = "Read back from disk and asked with raw texts, the model gives the same answers: its text features travel along."
        return Section("Model", Facts(facts), Paragraph(words))

    def scores_section(self) -> Section:
        from longtail.report import BandBars, Section, Table

        header, rows = self.evaluation.table()
        kept = [row for row in rows if row[0] in ("labels", "rows", *SHOWN)]
        bars = BandBars(self.evaluation, ["PSP@1", "PSP@3", "PSP@5"])
        return Section("Scores", Table(header, kept, self.evaluation.note), bars)

    def examples_section(self) -> Section:
        from longtail.report import Examples, Section

        shown = [example(self.clf, self.test_part, i, self.top, self.titles) for i in self.chosen]
        return Section("Examples from the test texts", Examples(shown))

    def write_report(self) -> Path:
        from longtail.report import Report

        subtitle = (
            f"One-vs-all on {self.train_part.n_samples:,} diagnosis texts with {self.train_part.n_labels:,} labels"
        )
        sections = [self.data_section(), self.model_section(), self.scores_section(), self.examples_section()]
        path = self.folder / "report.html"
        Report("longtail on ICD-10-CM", subtitle, sections).write_html(path)
        return path

    @cached_property
    def chosen(self) -> list[int]:
        return telling_rows(self.test_part, self.top)

    # --- the end -----------------------------------------------------------------------------------------------------

    def farewell(self, report: Path, seconds: float) -> str:
        """Where everything is, and what to try next."""
        text = self.test_part.texts[self.chosen[0]] if self.test_part.texts else ""
        label = self.clf.classes_[self.top.labels[self.chosen[0], 0]]
        model = shlex.quote(str(self.model_folder))
        return "\n".join(
            [
                f"Done in {duration(seconds)}. Open {report} in a browser, or try:",
                "",
                f"  longtail explain {model} --text {shlex.quote(text)}",
                f"  longtail predict {model} --text 'broken ankle after a fall from a ladder'",
                f"  longtail inspect {model} --label {shlex.quote(str(label))}",
            ]
        )

    def figures(self) -> dict[str, Any]:
        """Everything that was measured, for programs."""
        return {
            "data": asdict(self.train_part.summary()),
            "test_rows": self.test_part.n_samples,
            "read_seconds": round(self.read_seconds, 2),
            "train_seconds": round(self.train_seconds, 2),
            "predict_microseconds_per_row": round(self.predict_microseconds, 1),
            "peak_memory_bytes": peak_memory(),
            "model": str(self.model_folder),
            "model_bytes": self.model_bytes,
            "weights": int(self.clf.model_.W.nnz),
            "evaluation": self.evaluation.as_dict(),
        }


def telling_rows(test: Dataset, top: TopK) -> list[int]:
    """Five rows to look at: the corpus goes by chapters, so one from each fifth of it. Three are predicted well, the second
    is wrong in its best label, the fourth is half right."""
    import numpy as np

    right = np.array([np.isin(top.labels[i], test.Y[[i]].indices) for i in range(test.n_samples)])
    hits = right.sum(axis=1)
    words = np.array([len(text.split()) for text in test.texts or []])
    fine = (words >= 4) & (words <= 14) & (np.diff(test.Y.indptr) >= 4)
    wants = [hits + words / 100, top.scores[:, 0] - 9 * right[:, 0], -np.abs(hits - 2.6)]
    parts = np.array_split(np.arange(test.n_samples), len(FIFTHS))
    return [
        int(part[np.argmax((wants[want] + 99 * fine)[part])])
        for part, want in zip(parts, FIFTHS, strict=True)
        if len(part)
    ]


def peak_memory() -> int | None:
    """Bytes that this process held at the most; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
