"""An ensemble: several calibrated models of the same labels and features, whose margins are combined (mixture.py).

The candidates of a row are the union of the members' lists of their best labels. The rank of a label is its rank in the
member's list; a label that is not in the list has the rank after the last one. The score of the ensemble is the
log-odds of the mixture. The probability is a rising piecewise linear function of the score, or its sigmoid.
ensemble_index.py finds the best labels.
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
from longtail.models.calibrator import Calibrator, points_fault
from longtail.models.ensemble_index import EnsembleIndex
from longtail.models.mixture import Mixture
from longtail.models.rules import Rules
from longtail.models.thresholds import Thresholds
from longtail.topk import TopK


@dataclass(frozen=True)
class EnsembleModel(Model):
    """Members, each with a calibrator, and the mixture that combines them.

    The `depth` best labels of every member are candidates. The probability of a score is linear between the points
    (knots[i], values[i]) and constant outside; without knots it is the sigmoid. The ensemble has the names and the text
    pipeline; members need none. Each member has its own `normalize`.
    """

    members: tuple[Model, ...]
    mixture: Mixture
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
    knots: np.ndarray | None = None
    values: np.ndarray | None = None
    bias: ClassVar[float] = 0.0  # type: ignore[misc]
    threshold: ClassVar[float] = 0.0  # even odds
    log_scores: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if any(member.calibrator is None for member in self.members):
            raise InputError("every member of an ensemble must be calibrated; train it with calibrate=True")
        if not self.members or len(self.mixture.margin) != len(self.members):
            n = len(self.mixture.margin)
            raise InputError(f"an ensemble needs members; got {len(self.members)}, and coefficients for {n}")
        if self.depth < 1 or self.calibrator is not None or self.normalize:
            raise InputError("an ensemble takes at least 1 candidate per member; only members calibrate and normalize")
        if (self.knots is None) != (self.values is None):
            raise InputError("the knots of an ensemble's probabilities need values")
        if self.knots is not None and self.values is not None and (fault := points_fault(self.knots, self.values)):
            raise InputError(f"the probabilities of the ensemble are not usable: {fault}")
        for member in self.members:
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

    def with_dense(self, columns: np.ndarray) -> EnsembleModel:
        return replace(self, members=tuple(member.with_dense(columns) for member in self.members))

    @cached_property
    def weights(self) -> np.ndarray:
        """How much each member counts: the slope of the log-odds by its margin, divided by that of its calibrator.

        This is the mean over all pairs of a training row and one of its labels. A member alone has the weight 1.
        """
        found = np.zeros(len(self.members))
        for m, calibrator in enumerate(calibrators_of(self.members)):
            slope = self.mixture.slopes(calibrator.counts)[m]
            share = calibrator.counts if calibrator.counts.any() else None
            found[m] = np.average(slope, weights=share) / (calibrator.coefficients.margin or 1.0)
        return found

    @property
    def is_calibrated(self) -> bool:
        return True

    @property
    def frequencies(self) -> tuple[np.ndarray, int] | None:
        return self.members[0].frequencies

    @cached_property
    def index(self) -> EnsembleIndex:
        members = self.members
        if self.rules is not None and self.rules.n_allowed < self.n_labels:  # members leave out what is not allowed
            barred = Rules(np.where(self.rules.offsets > -np.inf, 0, -np.inf).astype(np.float32))
            members = tuple(replace(member, rules=barred) for member in members)  # type: ignore[type-var]
        for member in members:
            _ = member.index
        return EnsembleIndex(members, self.mixture, self.depth, self.rules)

    def predict_topk(self, X: Rows, k: int = 5, *, n_jobs: int | None = None) -> TopK:
        """The k best labels of every row among the candidates, by probability."""
        top = self._best(X, k, n_jobs)
        return TopK(top.labels, top.scores, self._probabilities(top.scores))

    def scores(self, X: Rows, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the scores of the given labels (column numbers), which need not be candidates."""
        return self.index.scores(self._rows(X), self._label_ids(labels))

    def probabilities(self, X: Rows) -> np.ndarray:
        return self._probabilities(self.scores(X, np.arange(self.n_labels)))

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        if self.knots is None or self.values is None:
            return sigmoid(scores)
        return interpolated(scores, self.knots, self.values)

    # --- explaining --------------------------------------------------------------------------------------------------

    def label_weights(self, label: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the features with a weight (in increasing order), their weights in log-odds, and the bias term.

        The weights of member m are multiplied by w_m(n), the slope of the log-odds if ranks and best scores do not
        change.
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
        score = float(self.index.scores(x, np.array([label]))[0, 0])
        bias = score - offset - sum(share.contribution for share in shares)
        probability = float(self._probabilities(np.array(score)))
        return Explanation(int(label), self.label_name(label), score, bias, shares[:top], offset, probability)

    def _combined_weights(self, label: int, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Add up the weights of all members, each times its slope and its entry of `scale`. The bias is not scaled."""
        total = np.zeros(self.n_features)
        bias = 0.0
        for member, slope, factor in zip(self.members, self._slopes(label), scale.tolist(), strict=True):
            features, weights, share = member.label_weights(label)
            total[features] += slope * factor * weights
            bias += slope * share
        used = np.flatnonzero(total)
        return used, total[used], bias

    def _slopes(self, label: int) -> list[float]:
        """w_m(n) of the label for every member."""
        counts = [calibrator.counts[[label]] for calibrator in calibrators_of(self.members)]
        return [float(self.mixture.slopes(n)[m, 0]) for m, n in enumerate(counts)]


def calibrators_of(members: Sequence[Model]) -> list[Calibrator]:
    """The calibrators of the members that have one."""
    return [member.calibrator for member in members if member.calibrator is not None]


def interpolated(scores: np.ndarray, knots: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values between the points (knots[i], values[i]), as float32."""
    return np.asarray(np.interp(scores, knots, values), np.float32)


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Probabilities from log-odds, as float32."""
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-np.asarray(scores, np.float64)))).astype(np.float32)
