"""A model that is loaded for serving. It takes rows or texts and returns the best labels.

The batching queue calls `score`, which takes the rows of several requests and answers all of them with one prediction.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail import store
from longtail.errors import InputError, ModelError
from longtail.metrics.evaluation import split_bands
from longtail.models.base import Explanation, Model
from longtail.serve.batching import Piece
from longtail.training import NO_RECORD

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
GOLDEN = ("the quick brown fox jumps over the lazy dog", "")  # texts of the trial prediction


@dataclass(frozen=True, slots=True)
class Answer:
    """The best labels of some rows: column numbers, scores and, if the model has them, probabilities."""

    labels: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray | None


class ServedModel:
    """A loaded model with its name in the service. It does not change after `load`.

    It needs no estimator, and so no import of scikit-learn, which would take longer than all else at the start.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        provenance: store.Provenance,
        version: str,
        card: store.Card | None,
        n_bytes: int = 0,
    ) -> None:
        if model.label_names is None:
            model = replace(model, label_names=np.arange(model.n_labels))  # type: ignore[type-var]
        assert model.label_names is not None
        self.name = name
        self.model = model
        self.method = provenance.method
        self.params = dict(provenance.params)
        self.training = provenance.training or NO_RECORD
        self.version = version
        self.card = card or store.Card(version)
        self.n_bytes = n_bytes
        self.labels: np.ndarray = model.label_names

    @classmethod
    def load(cls, name: str, folder: str | os.PathLike[str], *, mmap: bool = False) -> ServedModel:
        """Load and verify the model of `folder`, compile its kernels and make a test prediction.

        The model is read into memory, which the workers share. With `mmap` it stays on disk, so that it may be larger
        than the memory. longtail never changes a file in place, so saving a model there is safe. But a program that
        overwrites or truncates a mapped file changes the model while it is used, or ends the workers.
        """
        path = Path(folder)
        version = store.model_id(path)
        model, provenance = store.read_model(path, mmap=mmap)
        served = cls(name, model, provenance, version, _card(path, version, model.n_labels), store.model_size(path))
        if store.model_id(path) != version:
            raise ModelError(path, "was replaced while it was being read")
        served.warm_up()
        return served

    def warm_up(self) -> None:
        """Compile or load every kernel of the prediction path, and check that the model gives finite scores."""
        rows: Any = list(GOLDEN) if self.takes_texts else sp.csr_array((2, self.n_features), dtype=np.float32)
        _ = self.model.index  # without it, the first rows would be scored without kernels
        if not np.isfinite(self.best(rows, min(5, self.n_labels)).scores).all():
            raise ModelError(self.name, "gives scores that are not finite; train it again")
        self.model.scores(self.features(rows), np.arange(min(2, self.n_labels)))
        if self.n_labels:
            self.explain(rows[0] if self.takes_texts else rows[[0]], 0, 1)
        _ = self.search_text, self.by_frequency, self.bands, self._sorted

    # --- facts -------------------------------------------------------------------------------------------------------

    @property
    def takes_texts(self) -> bool:
        return self.model.takes_texts

    @property
    def n_labels(self) -> int:
        return int(self.model.n_labels)

    @property
    def n_features(self) -> int:
        return int(self.model.n_features)

    @property
    def has_probabilities(self) -> bool:
        return bool(self.model.is_calibrated)

    # --- prediction --------------------------------------------------------------------------------------------------

    def features(self, rows: Any) -> sp.csr_array:
        """Convert texts or rows to a canonical matrix."""
        if not isinstance(rows, list):
            return rows
        assert self.model.text_features is not None  # the door has checked it
        return self.model.text_features.transform(rows)

    def best(self, rows: Any, k: int, allow: np.ndarray | None = None) -> Answer:
        """Return the k best labels of each row. With `allow`, only these columns are ranked, by score."""
        if allow is not None:
            return self._best_of(self.features(rows), k, allow)
        top = self.model.predict_topk(self.features(rows), k, n_jobs=1)  # the rows are canonical: no further checks
        return Answer(top.labels, top.scores, top.probabilities)

    def _best_of(self, X: sp.csr_array, k: int, allow: np.ndarray) -> Answer:
        scores = self.model.scores(X, allow)
        order = np.lexsort((np.broadcast_to(allow, scores.shape), -scores))[:, :k]
        return Answer(allow[order].astype(np.int32), np.take_along_axis(scores, order, axis=1), None)

    def column(self, label: Any) -> int:
        """Return the column of the label with this name. Raise InputError if there is none."""
        numbered = self.labels.dtype.kind in "iu"
        if numbered and isinstance(label, str) and re.fullmatch(r"-?\d{1,18}", label):
            label = int(label)
        if isinstance(label, int if numbered else str) and self._sorted is not None:
            at = int(np.searchsorted(self.labels, label, sorter=self._sorted))
            if at < self.n_labels and self.labels[self._sorted[at]] == label:
                return int(self._sorted[at])
        elif self._sorted is None:
            found = np.flatnonzero(self.labels == label)
            if len(found):
                return int(found[0])
        raise InputError(f"the model {self.name} has no label {label!r}")

    @cached_property
    def _sorted(self) -> np.ndarray | None:
        """Columns in the order of their names. None if the names have several types."""
        if self.labels.dtype.kind in "iuU" or all(isinstance(name, str) for name in self.labels):
            return np.argsort(self.labels, kind="stable")
        return None

    # --- labels ------------------------------------------------------------------------------------------------------

    @cached_property
    def search_text(self) -> tuple[str, np.ndarray]:
        """Names and titles of all labels, one per line in lower case, and the position where each line begins."""
        titles = self.card.titles or [""] * self.n_labels
        lines = [f"{name} {title}".lower().replace("\n", " ") for name, title in zip(self.labels, titles, strict=True)]
        starts = np.zeros(len(lines) + 1, np.int64)
        np.cumsum([len(line) + 1 for line in lines], out=starts[1:])
        return "\n".join(lines), starts

    @cached_property
    def by_frequency(self) -> np.ndarray:
        """Columns, the most frequent first. In column order if frequencies are not known."""
        frequency = self.card.frequency
        return np.arange(self.n_labels) if frequency is None else np.argsort(-frequency, kind="stable")

    @cached_property
    def bands(self) -> np.ndarray | None:
        """The band of each label, as numbers of ("head", "torso", "tail")."""
        if self.card.frequency is None:
            return None
        found = split_bands(self.card.frequency)
        return np.select([found["head"], found["torso"]], [0, 1], default=2).astype(np.int8)

    def find(self, query: str, band: int | None, order: str) -> np.ndarray:
        """Return the columns of the labels with `query` in their name or title, in the given order."""
        columns = np.arange(self.n_labels) if order == "name" else self.by_frequency
        if order == "quality" and self.card.quality is not None:
            quality = np.nan_to_num(self.card.quality, nan=-1.0)
            columns = np.argsort(-quality, kind="stable")
        wanted = np.ones(self.n_labels, bool) if not query else self._holding(query.lower())
        if band is not None:
            wanted &= self.bands == band if self.bands is not None else False
        return np.asarray(columns[wanted[columns]])

    def _holding(self, query: str) -> np.ndarray:
        text, starts = self.search_text
        found, at = np.zeros(self.n_labels, bool), text.find(query)
        while at >= 0:
            line = int(np.searchsorted(starts, at, side="right")) - 1
            found[line] = True
            at = text.find(query, int(starts[line + 1])) if line + 1 < self.n_labels else -1
        return found

    def strongest(self, column: int, top: int) -> list[tuple[str, float]]:
        """The features with the largest weights of a label."""
        features, weights, _ = self.model.label_weights(column)
        order = np.argsort(-np.abs(weights), kind="stable")[:top]
        return [(self.model.feature_name(int(features[at])), float(weights[at])) for at in order]

    # --- explanations ------------------------------------------------------------------------------------------------

    def explain(self, row: Any, column: int, top: int) -> Explanation:
        """The features of one row or text behind its score for a label."""
        return self.model.explain(self.features([row] if isinstance(row, str) else row), column, top=top)

    def spans(self, text: str, terms: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
        """Return the positions of each term in the text, in characters. Features that are not terms have none."""
        features = self.model.text_features
        lowered = text.lower() if getattr(features, "lowercase", True) else text
        if features is None or len(lowered) != len(text):
            lowered = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
        if getattr(features, "analyzer", "word") == "word":
            shortest = getattr(features, "min_token_length", 1)
            return _word_spans(lowered, terms, re.compile(rf"\b\w{{{shortest},}}\b"))
        return {term: [match.span() for match in re.finditer(re.escape(term.strip()), lowered)]
                for term in terms if term.strip()}  # fmt: skip


def _card(folder: Path, version: str, n_labels: int) -> store.Card | None:
    """Return the card of the model. A model can be served without a card, so a damaged card is only logged."""
    try:
        card = store.read_card(folder, version)
    except ModelError as error:
        log.warning("%s; the model is served without its card", error)
        return None
    known = [each for each in (card.titles, card.frequency, card.quality) if each is not None] if card else []
    if known and len(known[0]) != n_labels:
        log.warning("the card of %s describes %d labels, not %d; it is ignored", folder, len(known[0]), n_labels)
        return None
    return card


def _word_spans(text: str, terms: Sequence[str], token: re.Pattern[str]) -> dict[str, list[tuple[int, int]]]:
    tokens = [(match.group(), *match.span()) for match in token.finditer(text)]
    found: dict[str, list[tuple[int, int]]] = {term: [] for term in terms}
    for length in {term.count(" ") + 1 for term in terms}:
        for i in range(len(tokens) - length + 1):
            run = tokens[i : i + length]
            term = " ".join(word for word, _, _ in run)
            if term in found:
                found[term].append((run[0][1], run[-1][2]))
    return found


def score(pieces: list[Piece]) -> list[Any]:
    """Answer all pieces, which are for one model. There is one prediction for each kind of rows."""
    answers: list[Any] = [None] * len(pieces)
    for kind in (list, sp.csr_array):
        plain = [i for i, each in enumerate(pieces) if each.job.allow is None and isinstance(each.job.rows, kind)]
        if not plain:
            continue
        model = pieces[plain[0]].job.model
        parts = [pieces[i].rows for i in plain]
        if len(parts) == 1:
            rows = parts[0]
        elif kind is list:
            rows = [text for part in parts for text in part]
        else:
            rows = sp.vstack(parts, format="csr")
        answer = model.best(rows, max(pieces[i].job.k for i in plain))
        start = 0
        for i in plain:
            stop = start + pieces[i].stop - pieces[i].start
            answers[i] = _cut(answer, start, stop, pieces[i].job.k)
            start = stop
    for i, piece in enumerate(pieces):
        if piece.job.allow is not None:
            answers[i] = piece.job.model.best(piece.rows, piece.job.k, piece.job.allow)
    return answers


def _cut(answer: Answer, start: int, stop: int, k: int) -> Answer:
    probabilities = answer.probabilities
    return Answer(
        answer.labels[start:stop, :k],
        answer.scores[start:stop, :k],
        None if probabilities is None else probabilities[start:stop, :k],
    )


def parse_models(words: Sequence[str]) -> dict[str, Path]:
    """Return names and folders from the arguments of the command line: FOLDER, or NAME=FOLDER."""
    table: dict[str, Path] = {}
    for word in words:
        name, _, folder = word.rpartition("=")
        path = Path(folder)
        name = name or path.resolve().name
        if not NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot be the name of a model; write NAME={folder} with letters, digits, . _ -")
        if name in table:
            raise InputError(f"two models are called {name!r}; give them names: first={table[name]} second={folder}")
        table[name] = path
    return table
