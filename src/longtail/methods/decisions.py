"""From scores to predictions: classes or indicators, probabilities, thresholds and rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.metaestimators import available_if

from longtail import check, memory
from longtail.calibration import TARGETS, HeldOut, choose
from longtail.calibration.targets import WITHOUT_ROWS
from longtail.errors import InputError
from longtail.matrix import canonical_csr
from longtail.methods import spec
from longtail.methods.calibrating import counts_of, n_candidates
from longtail.metrics.propensity import DEFAULT_A, DEFAULT_B, weights_from_counts
from longtail.models import Model, Rules

if TYPE_CHECKING:
    from longtail.growth import Growth
    from longtail.models import Thresholds


def _has_probabilities(estimator: Any) -> bool:
    """Whether `predict_proba` exists, as scikit-learn asks: after training, only if the model is calibrated."""
    model = getattr(estimator, "model_", None)
    if model.is_calibrated if model is not None else estimator.calibrate is not False:
        return True
    raise AttributeError("the model is not calibrated, so it has no probabilities; train with calibrate=True")


class Decisions:
    """Mixin of all estimators that turns scores into predictions."""

    model_: Model
    classes_: np.ndarray
    multiclass_: bool
    held_out_: HeldOut | None
    growth_: Growth | None
    n_jobs: int | None

    if TYPE_CHECKING:  # written in methods/base.py

        def _rows(self, X: Any) -> sp.csr_array: ...

    def _truth(self, y: Any, n_samples: int) -> sp.csr_array:
        """Return y as an indicator with the model's columns. Labels that the model does not know are left out."""
        indicator = sp.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] > 1)
        Y, names, _ = check.label_matrix(y, n_samples)
        if indicator and Y.shape[1] != self.model_.n_labels:
            raise InputError(f"y has {Y.shape[1]} columns, but the model has {self.model_.n_labels} labels")
        if indicator or np.array_equal(names, self.classes_):
            return Y
        column = {name: j for j, name in enumerate(self.classes_.tolist())}
        kept = np.array([column.get(name, -1) for name in names.tolist()])
        known = np.flatnonzero(kept >= 0)
        to_model = sp.csr_array(
            (np.ones(len(known), np.int32), (known, kept[known])), shape=(len(names), self.model_.n_labels)
        )
        return canonical_csr(Y @ to_model)

    def predict(self, X: Any) -> np.ndarray | sp.csr_array:
        """Predict the labels of every row, in the form of the y that the model was trained on.

        If y was 1-d, the result is the best class of every row. Otherwise it is a sparse 0/1 indicator of the labels
        above the model's threshold. For a calibrated model this is a threshold on the probability: the one with the
        best micro-F1 on held-out rows, or the one that `set_threshold` chose. Without calibration, it is a score of 0
        for linear models and of 0.5 for hashed models.
        """
        rows = self._rows(X)
        if self.multiclass_:
            best = self.model_.predict_topk(rows, 1, n_jobs=self.n_jobs).labels[:, 0]
            return np.asarray(self.classes_[best])
        return self.model_.predict_labels(rows, n_jobs=self.n_jobs)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of all labels: a dense float32 array of shape (n_samples, n_labels).

        This method exists only if the model is calibrated (`calibrate=True`). Each label has its own probability, so a
        row need not sum to 1. If the array would not fit in memory, InputError is raised.
        `predict_topk(X, k).probabilities` needs no such array.
        """
        rows = self._rows(X)
        memory.must_fit(
            rows.shape[0] * self.model_.n_labels,
            f"probabilities ({rows.shape[0]:,} rows by {self.model_.n_labels:,} labels)",
            40,
            "use predict_topk(X, k).probabilities, which has the k best of each row, or pass fewer rows",
        )
        return self.model_.probabilities(rows)

    # --- thresholds --------------------------------------------------------------------------------------------------

    def set_threshold(self, target: str = "micro-f1", X: Any = None, y: Any = None) -> Self:
        """Choose which labels `predict` returns, without training again.

        Parameters
        ----------
        target : str, default="micro-f1"
            "micro-f1"; "macro-f1:by=band" or "macro-f1:by=label"; "precision:at_least=0.9"; "recall:at_least=0.8";
            "top:k=3" for a fixed number per row; "fixed:value=0.2" for a given threshold.
        X, y : rows with their labels, as in `fit`, or a Dataset as X
            The rows on which the threshold is chosen. They must not be training rows, because the model scores those
            too well. Right after a fit with calibration, X may be omitted: the held-out rows of the fit are then used.
        """
        rows = None if X is None else self._rows(X)
        name, options = _parse_target(target)
        found = getattr(self, "held_out_", None)
        if rows is not None:
            y = X.Y if y is None and hasattr(X, "Y") else y
            truth = self._truth(y, rows.shape[0])
            top = self.model_.predict_topk(rows, self._depth(truth), n_jobs=self.n_jobs)
            found = HeldOut.of(top, truth, self._counts(counts_of(truth)))
        elif found is None and name not in WITHOUT_ROWS:
            raise InputError(f"the threshold for {target!r} is chosen on held-out rows; pass their X and y")
        counts = None if found is None else self._counts(found.positives)
        self._set(thresholds=choose(target, name, options, found, counts))
        return self

    def _depth(self, truth: sp.csr_array) -> int:
        """Return the number of candidates per row: the calibrator's, or the number that a calibrator would use."""
        calibrator = self.model_.calibrator
        return n_candidates(truth) if calibrator is None else calibrator.depth

    def _counts(self, otherwise: np.ndarray) -> np.ndarray:
        """Return the number of training rows of every label, or `otherwise` if the model does not store it."""
        return otherwise if self.model_.frequencies is None else self.model_.frequencies[0]

    # --- rules -------------------------------------------------------------------------------------------------------

    def set_rules(
        self,
        *,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] = (),
        offsets: Mapping[Any, float] | None = None,
        tail_boost: float = 0.0,
    ) -> Self:
        """Restrict or shift labels at prediction. Each call replaces the rules of the model; without arguments, it
        removes them. Labels that `update` retired stay denied.

        Parameters
        ----------
        allow : names of labels, as in `classes_`
            Only these labels are returned. By default, all labels are allowed.
        deny : names of labels
            These are never returned.
        offsets : mapping of names to numbers
            Added to the score of a label, or to its logarithm where scores are probabilities (`Mach`).
        tail_boost : float, default=0.0
            Adds tail_boost · log(1 / propensity) to the score of every label, so that rare labels rank higher. The
            model must be calibrated, because only a calibrated model stores the frequencies of its labels.
        """
        shifts = np.zeros(self.model_.n_labels, np.float32)
        if tail_boost:
            if self.model_.frequencies is None:
                raise InputError("tail_boost needs the frequencies of labels; train with calibrate=True")
            inverse = weights_from_counts(*self.model_.frequencies, A=DEFAULT_A, B=DEFAULT_B)
            shifts += np.float32(tail_boost) * np.log(inverse).astype(np.float32)
        if offsets:
            shifts[self._columns(offsets)] += np.array(list(offsets.values()), np.float32)
        if allow is not None:
            allowed = np.zeros(len(shifts), bool)
            allowed[self._columns(allow)] = True
            shifts[~allowed] = -np.inf
        shifts[self._columns(deny)] = -np.inf
        if self.growth_ is not None:
            shifts[self.growth_.retired] = -np.inf
        self._set(rules=Rules(shifts) if shifts.any() else None)
        return self

    def _columns(self, names: Iterable[Any]) -> np.ndarray:
        """Return the columns of the labels with these names."""
        wanted = list(names)
        if not wanted:
            return np.empty(0, np.int64)
        column = {name: j for j, name in enumerate(self.classes_.tolist())}
        unknown = [name for name in wanted if name not in column]
        if unknown:
            raise InputError(f"label {unknown[0]!r} is not among the {len(column):,} names in classes_")
        return np.array([column[name] for name in wanted], np.int64)

    def _set(self, **fields: Rules | Thresholds | None) -> None:
        self.model_ = replace(self.model_, **fields)  # type: ignore[type-var]


def _parse_target(target: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a threshold's target. Raise InputError if a required option is missing."""
    name, options = spec.parse(target, TARGETS, "The target of a threshold")
    missing = [each for each in spec.option_types(TARGETS[name]) if each not in options and each != "by"]
    if missing:
        raise InputError(f"the target {name!r} needs a value; write '{name}:{missing[0]}=…'")
    return name, options
