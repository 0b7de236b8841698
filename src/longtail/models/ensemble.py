"""An ensemble: several calibrated models of the same labels and features, averaged in log-odds.

    log-odds(x, label) = a + sum_m w_m logit p_m(x, label),     w_m >= 0                                            (1)

p_m is the calibrated probability of member m (models/calibrator.py). The candidates of a row are the union of the
members' best labels, and every member scores every candidate exactly. The rank of a candidate, which its probability
depends on, is its rank among the candidates. The score of the ensemble is the log-odds (1). The probability is its
sigmoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from longtail.errors import InputError
from longtail.hybrid import Rows, squares
from longtail.models.base import Explanation, FeaturePipeline, Model
from longtail.models.calibrator import Calibrator
from longtail.models.rules import Rules
from longtail.models.thresholds import Thresholds
from longtail.topk import TopK

MOST_CERTAIN = 1e-6  # probabilities of members are clipped to this distance from 0 and 1


@dataclass(frozen=True)
class EnsembleModel(Model):
    """Members, each with a calibrator, and the weights of (1).

    The `depth` best labels of every member are candidates. The ensemble has the names and the text pipeline; members
    need none. Each member has its own `normalize`.
    """

    members: tuple[Model, ...]
    weights: np.ndarray
    intercept: float
    depth: int
    n_features: int
    multiclass: bool = False
    label_names: np.ndarray | None = None
    feature_names: Sequence[str] | None = None
    text_features: FeaturePipeline | None = None
    normalize: bool = False
    calibrator: Calibrator | None = None
    thresholds: Thresholds | None = None
    rules: Rules | None = None
    bias: ClassVar[float] = 0.0  # type: ignore[misc]
    threshold: ClassVar[float] = 0.0  # a probability of 1/2
    log_scores: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.members or len(self.weights) != len(self.members):
            raise InputError(f"an ensemble needs members with one weight each; got {len(self.members)} members")
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all() and np.isfinite(self.intercept)):
            raise InputError("the weights of an ensemble must be finite and not negative")
        if self.depth < 1 or self.calibrator is not None or self.normalize:
            raise InputError("an ensemble takes at least 1 candidate per member; only members calibrate and normalize")
        for member in self.members:
            if member.calibrator is None:
                raise InputError("every member of an ensemble must be calibrated; train it with calibrate=True")
            if (member.n_labels, member.n_features) != (self.n_labels, self.n_features):
                raise InputError("the members of an ensemble must have the same labels and features")
        self._check_names()
        self._check_decisions()

    @property
    def n_labels(self) -> int:
        return self.members[0].n_labels

    @property
    def n_weights(self) -> int:
        return sum(member.n_weights for member in self.members)

    @property
    def dense_columns(self) -> np.ndarray | None:
        return next((member.dense_columns for member in self.members if member.dense_columns is not None), None)

    @property
    def is_calibrated(self) -> bool:
        return True

    @property
    def frequencies(self) -> tuple[np.ndarray, int] | None:
        return self.members[0].frequencies

    @cached_property
    def index(self) -> EnsembleIndex:
        members = self.members
        if self.rules is not None:  # members leave out labels that are not allowed; offsets are added to the log-odds
            barred = Rules(np.where(self.rules.offsets > -np.inf, 0, -np.inf).astype(np.float32))
            members = tuple(replace(member, rules=barred) for member in members)  # type: ignore[type-var]
        for member in members:
            _ = member.index
        return EnsembleIndex(members, self.weights, self.intercept, self.depth, self.rules)

    def predict_topk(self, X: Rows, k: int = 5, *, n_jobs: int | None = None) -> TopK:
        """The k best labels of every row among the candidates, by probability."""
        top = self._best(X, k, n_jobs)
        return TopK(top.labels, top.scores, sigmoid(top.scores))

    def scores(self, X: Rows, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the scores of the given labels (column numbers). All labels count as candidates here."""
        ids = self._label_ids(labels)
        everything = np.broadcast_to(np.arange(self.n_labels), (X.shape[0], self.n_labels))
        return self.index.pairs(self._rows(X), everything)[:, ids]

    def probabilities(self, X: Rows) -> np.ndarray:
        return sigmoid(self.scores(X, np.arange(self.n_labels)))

    # --- explaining --------------------------------------------------------------------------------------------------

    def label_weights(self, label: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the features with a weight (in increasing order), their weights in log-odds, and the bias term.

        The weights of member m are multiplied by w_m b_m, the slope of (1) if ranks and best scores do not change.
        """
        return self._combined_weights(label, np.ones(len(self.members)))

    def explain(self, x: Rows, label: int, *, top: int | None = None) -> Explanation:
        """The features of the single row `x` behind its score for `label` (a column number), largest share first.

        The shares are a first-order approximation: the weights of `label_weights` times the values of x. Everything
        else that changes the log-odds, such as ranks and frequencies, is part of the bias.
        """
        x = self._one_row(x)
        (label,) = self._label_ids([label])
        length = float(np.sqrt(squares(x)[0])) or 1.0
        scale = np.array([1 / length if member.normalize else 1.0 for member in self.members])
        features, weights, _ = self._combined_weights(int(label), scale)
        shares = self._shares(x, dict(zip(features.tolist(), weights.tolist(), strict=True)))
        offset = 0.0 if self.rules is None else float(self.rules.offsets[label])
        score = float(self.index.pairs(x, self._with_candidates(x, int(label)))[0, 0])
        bias = score - offset - sum(share.contribution for share in shares)
        probability = float(sigmoid(np.array(score)))
        return Explanation(int(label), self.label_name(label), score, bias, shares[:top], offset, probability)

    def _combined_weights(self, label: int, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Add up the weights of all members, each times its slope and its entry of `scale`. The bias is not scaled."""
        total = np.zeros(self.n_features)
        bias = 0.0
        for member, slope, factor in zip(self.members, self._slopes, scale.tolist(), strict=True):
            features, weights, share = member.label_weights(label)
            total[features] += slope * factor * weights
            bias += slope * share
        used = np.flatnonzero(total)
        return used, total[used], bias

    def _with_candidates(self, x: Rows, label: int) -> np.ndarray:
        """Return the label, followed by the candidates of the row."""
        candidates = self.index.candidates(x, self.depth)[0]
        return np.concatenate([[label], candidates[(candidates >= 0) & (candidates != label)]])[None, :]

    @property
    def _slopes(self) -> list[float]:
        slopes = [member.calibrator.coefficients.margin for member in self.members if member.calibrator is not None]
        return [float(weight) * slope for weight, slope in zip(self.weights, slopes, strict=True)]


@dataclass(frozen=True)
class EnsembleIndex:
    """The search for the best labels."""

    members: tuple[Model, ...]
    weights: np.ndarray
    intercept: float
    depth: int
    rules: Rules | None

    def top(self, X: Rows, k: int) -> TopK:
        """The k best candidates of every row of X."""
        labels = self.candidates(X, max(k, self.depth))
        scores = self.pairs(X, labels)
        order = np.lexsort((labels, -scores), axis=1)[:, :k]
        return TopK(
            np.take_along_axis(labels, order, axis=1).astype(np.int32), np.take_along_axis(scores, order, axis=1)
        )

    def above(self, X: Rows, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The candidates that score more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        labels = self.candidates(X, self.depth)
        chosen = self.pairs(X, labels) > threshold
        return labels[chosen].astype(np.int32), np.concatenate([[0], np.cumsum(chosen.sum(axis=1))])

    def candidates(self, X: Rows, depth: int) -> np.ndarray:
        """Return, for every row, the union of the members' `depth` best labels in column order, padded with -1."""
        found = np.concatenate([member._best(X, depth, 1).labels for member in self.members], axis=1).astype(np.int64)
        found.sort(axis=1)
        twice = np.zeros(found.shape, bool)
        twice[:, 1:] = found[:, 1:] == found[:, :-1]
        last = np.iinfo(np.int64).max
        found[twice] = last
        found.sort(axis=1)
        found[found == last] = -1
        return found[:, : found.shape[1] - int(twice.sum(axis=1).min(initial=found.shape[1]))]

    def pairs(self, X: Rows, labels: np.ndarray) -> np.ndarray:
        """The scores of these candidates of every row; -inf for a label of -1."""
        logits = member_logits(self.members, X, labels)
        scores = (self.intercept + logits @ self.weights).astype(np.float32)
        if self.rules is not None:
            scores += self.rules.offsets[np.maximum(labels, 0)]
        return np.where(labels >= 0, scores, np.float32(-np.inf))


def member_logits(members: Sequence[Model], X: Rows, labels: np.ndarray) -> np.ndarray:
    """logit p_m of the candidates `labels` (rows, c) for every member: (rows, c, members)."""
    absent = labels < 0
    ids = np.maximum(labels, 0)
    logits = np.empty((*labels.shape, len(members)))
    for m, member in enumerate(members):
        assert member.calibrator is not None
        scores = member.pair_scores(X, ids)
        scores[absent] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(1, labels.shape[1] + 1)[None, :], axis=1)
        least = scores.min(axis=1, keepdims=True, where=np.isfinite(scores), initial=np.inf)
        p = member.calibrator.probabilities(ids, np.where(np.isfinite(scores), scores, least), ranks)
        p = np.clip(p.astype(np.float64), MOST_CERTAIN, 1 - MOST_CERTAIN)
        logits[:, :, m] = np.log(p / (1 - p))
    return logits


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Probabilities from log-odds, as float32."""
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-np.asarray(scores, np.float64)))).astype(np.float32)
