"""The ensemble estimator: it combines members of any method by their margins (models/mixture.py)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from longtail import metrics, training
from longtail.calibration import HeldOut, Joint, choose, fit_mixture, rising
from longtail.errors import InputError, ModelError
from longtail.hybrid import model_rows
from longtail.matrix import normalize_rows
from longtail.methods.base import ExtremeClassifier
from longtail.methods.calibrating import (
    Solve,
    all_fits,
    counts_of,
    in_proportion,
    n_candidates,
    part_of,
    rows_to_hold_out,
)
from longtail.methods.problem import Problem
from longtail.methods.solving import Progress
from longtail.methods.updating import Change
from longtail.metrics.hits import find_hits
from longtail.models import Calibrator, EnsembleModel, Mixture, Model
from longtail.models.base import ROWS_PER_BLOCK
from longtail.models.calibrator import margins_of
from longtail.models.ensemble import calibrators_of, interpolated
from longtail.models.ensemble_index import EnsembleIndex
from longtail.parallel import Workers
from longtail.store import Provenance
from longtail.topk import TopK
from longtail.training import Status, Training

MAX_ROWS = 20_000  # most rows to hold out; a mixture has more coefficients than a calibrator
SHORTER = (5, 10)  # candidates per member that may be enough at prediction
LOSS = 0.0005  # of precision on held-out rows that shorter lists may cost


class Ensemble(ExtremeClassifier):
    """Several classifiers whose scores are combined. The weights depend on the frequency of the label.

    The members may use any method and need not be calibrated. The ensemble holds rows out and trains every member
    without them. On these rows it calibrates the members and fits the weights. It then trains every member on all rows.
    Prediction takes about as long as prediction with all members.

    Parameters
    ----------
    members : sequence of estimators
        Estimators of this package. They are cloned. `model_.members` holds their fitted models.
    calibrate : bool or str, default=True
        How to hold rows out: True, "held-out:fraction=0.2" or "cross-fit:folds=5". An ensemble needs held-out rows.
    normalize : bool, default=False
        Must be False. Each member has its own `normalize`.
    n_jobs : int or None, default=None
        Number of threads. It replaces the members' own `n_jobs`. None and -1 mean all cores.
    random_state : int, RandomState or None, default=0
        Seed of the choice of held-out rows.
    verbose : int, default=0
        1 prints a line about the progress of a fit every 10 seconds, 2 every second; 0 prints nothing.

    Attributes
    ----------
    model_ : EnsembleModel
        `model_.weights` says how much each member counts, `model_.members` are their models.
    classes_ : ndarray
        Names of the labels; `classes_[top.labels]` turns predictions into names.
    training_ : Training
        The training record, with one unit for each member.

    Examples
    --------
    >>> import longtail as lt
    >>> X = [[1, 0], [1, 0.2], [0, 1], [0.1, 1]] * 5
    >>> clf = lt.Ensemble([lt.OneVsAll(), lt.Mach()]).fit(X, ["fruit", "fruit", "red", "red"] * 5)
    >>> clf.predict([[0, 2]])
    array(['red'], dtype='<U5')
    """

    method = "ensemble"

    def __init__(
        self,
        members: Sequence[ExtremeClassifier] = (),
        *,
        calibrate: bool | str = True,
        normalize: bool = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.members = members
        self.calibrate = calibrate
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def of(cls, fitted: Sequence[ExtremeClassifier], X: Any = None, y: Any = None) -> Self:
        """Make an ensemble of calibrated estimators that are already fitted, or were loaded.

        The weights are fitted on the rows X with labels y, which must not be training rows. Without X, all members
        have the same weight. Names and the text pipeline are taken from the first member.
        """
        first = fitted[0].model_
        members = tuple(_bare(each.model_) for each in fitted)
        names = {"multiclass": first.multiclass, "label_names": first.label_names}
        columns = {"feature_names": first.feature_names, "text_features": first.text_features}
        calibrators = calibrators_of(members)
        mixture = Mixture.average(calibrators)
        depth = max(each.depth for each in calibrators)
        model = EnsembleModel(members, mixture, depth, first.n_features, **names, **columns)  # type: ignore[arg-type]
        estimator = cls([type(each)(**each.get_params(deep=False)) for each in fitted])
        estimator.model_ = model
        estimator.held_out_ = None
        estimator.growth_ = None
        estimator.training_ = _record(fitted)
        estimator._expose()
        if X is None:
            return estimator
        rows = estimator._rows(X)
        truth = estimator._truth(X.Y if y is None and hasattr(X, "Y") else y, rows.shape[0])
        combination, _ = _combined([Fold(members, rows, truth, np.ones(model.n_labels, bool))], depth, None)
        estimator.model_ = replace(model, **combination._asdict())
        return estimator.set_threshold("micro-f1", rows, truth)

    def _check_parameters(self) -> None:
        if not self.members or not all(isinstance(each, ExtremeClassifier) for each in self.members):
            raise InputError(
                "The 'members' parameter of Ensemble must be a list of estimators, such as [OneVsAll(), Mach()]. "
                f"Got {self.members!r} instead."
            )
        if self.calibrate is False or self.normalize:
            raise InputError("Ensemble needs calibrate=True or a way to hold rows out, and normalize=False")
        for member in self.members:
            member._check_all_parameters()

    def _problem(self, X: Any, Y: sp.csr_array) -> Problem:
        raise InputError("an ensemble is trained member by member")

    def _n_fits(self, Y: sp.csr_array) -> float:
        raise InputError("an ensemble is trained member by member; make a plan of each member")

    def _train(
        self, solve: Solve, X: Any, Y: sp.csr_array, progress: Progress
    ) -> tuple[Model, Training, HeldOut | None]:
        """Fit every member on all rows, and then without the held-out rows."""
        masks = rows_to_hold_out(self.calibrate, Y, self.random_state, MAX_ROWS)
        depth = n_candidates(Y)
        finals: list[Model] = []
        records = []
        scales = []
        first: list[list[Model]] = []  # of each member, the models without held-out rows
        for m, each in enumerate(self.members):
            member = type(each)(**{**each.get_params(deep=False), "n_jobs": self.n_jobs})
            rows = normalize_rows(X) if member.normalize else X
            step = part_of(progress, m, len(self.members))
            # rough solutions are worse than those of a whole fit, so that their member would get too little weight
            fits = all_fits(member, solve, rows, Y, masks, step, f"member-{m}-", rough=False)
            calibrator = fits.calibrator(Y)
            first.append(
                [
                    _finished(model, member, replace(calibrator, counts=in_proportion(counts_of(Y[~mask]), mask)))
                    for model, mask in zip(fits.models, masks, strict=True)
                ]
            )
            finals.append(_finished(fits.final.model, member, fits.scale.applied(calibrator)))
            records.append(fits.final.record)
            scales.append(fits.scale)

        folds = [
            Fold(tuple(members), model_rows(X[mask]), Y[mask], eligible(Y, mask))
            for mask, *members in zip(masks, *first, strict=True)
        ]
        combination, top = _combined(folds, depth, self.n_jobs)
        combination = combination._replace(mixture=combination.mixture.rescaled(scales))
        truth = sp.csr_array(sp.vstack([fold.Y for fold in folds]))
        found = HeldOut.of(top, truth, counts_of(Y))
        thresholds = choose("micro-f1", "micro-f1", {}, found, counts_of(Y))
        model = EnsembleModel(tuple(finals), **combination._asdict(), n_features=X.shape[1], thresholds=thresholds)
        return model, _joined(records), found

    def _solved(self, X: Any, change: Change, progress: Progress) -> tuple[Model, Training, np.ndarray]:
        """Train all members again, because their weights in the ensemble need held-out rows."""
        if self._nothing_changed(change):
            return self.model_, self.training_, np.zeros(len(change.label_names), bool)
        model, record, self.held_out_ = self._trained(X, change, progress, None, Workers(), None)
        return model, record, np.ones(len(change.label_names), bool)

    def _saved_params(self) -> dict[str, Any]:
        members = [{"method": each.method, "params": each._saved_params()} for each in self.members]
        return {**super()._saved_params(), "members": members}

    @classmethod
    def _fitted(cls, model: Model, provenance: Provenance, *, where: str | os.PathLike[str]) -> Self:
        from longtail.methods import METHODS

        described = provenance.params.get("members")
        try:
            members = [METHODS[each["method"]](**each["params"]) for each in described]  # type: ignore[union-attr]
        except (TypeError, KeyError) as error:
            raise ModelError(where, f"has members that this version does not know: {error}") from error
        params = {**provenance.params, "members": members}
        return super()._fitted(model, replace(provenance, params=params), where=where)


def _finished(model: Model, member: ExtremeClassifier, calibrator: Calibrator) -> Model:
    """Return a model that was trained on rows as the member scales them, with its calibrator."""
    return replace(model, normalize=bool(member.normalize), calibrator=calibrator)  # type: ignore[type-var]


class Fold(NamedTuple):
    """Held-out rows, their labels, and members that were trained without them.

    eligible : (n_labels,), the labels whose candidates the mixture is fitted on
    """

    members: tuple[Model, ...]
    X: Any
    Y: sp.csr_array
    eligible: np.ndarray

    def joint(self, depth: int) -> Joint:
        """The candidates of all rows, with `depth` candidates per member."""
        one = np.ones((len(self.members), 1))
        index = EnsembleIndex(self.members, Mixture(np.zeros(1), 0 * one, one, 0 * one, 0 * one), depth, None)
        calibrators = calibrators_of(self.members)
        parts = []
        for start in range(0, self.X.shape[0], ROWS_PER_BLOCK):
            found = index.candidates(self.X[start : start + ROWS_PER_BLOCK], depth)
            there = found.labels >= 0
            found.settle(there)
            there &= self.eligible[found.labels]
            row, _ = np.nonzero(there)
            label = found.labels[there]
            log_scores = [each.log_scores for each in calibrators]
            s = [margins_of(each[there], log) for each, log in zip(found.found, log_scores, strict=True)]
            t = [margins_of(each[row], log) for each, log in zip(found.best_scores, log_scores, strict=True)]
            rank = np.stack([each[there] for each in found.ranks], axis=1)
            offsets = np.array([each.rank_offset for each in calibrators])
            frequency = np.log1p(calibrators[0].counts[label])
            hit = np.asarray(self.Y[start + row, label]).ravel() > 0
            parts.append(Joint(np.stack(s, axis=1), np.stack(t, axis=1), rank, offsets, frequency, hit))
        return Joint.concatenated(parts)

    def top(self, mixture: Mixture, depth: int, n_jobs: int | None) -> TopK:
        """The `depth` best labels of every row, with `depth` candidates per member."""
        return EnsembleModel(self.members, mixture, depth, self.X.shape[1]).predict_topk(self.X, depth, n_jobs=n_jobs)


def eligible(Y: sp.csr_array, mask: np.ndarray) -> np.ndarray:
    """Return which labels have enough rows outside `mask` for the fit of a mixture.

    If all labels have two rows, one that has a single row left surely has a held-out row, but a new label with one row
    need not come again. So the rarest labels are left out, as long as at most half of them are as rare in all rows.
    """
    counts, left = counts_of(Y), counts_of(Y[~mask])
    before, after = (np.cumsum(np.bincount(each, minlength=Y.shape[0] + 1)) for each in (counts, left))
    return np.asarray(left >= np.argmax(2 * before >= after))


class Combination(NamedTuple):
    """The fields of an EnsembleModel that held-out rows determine."""

    mixture: Mixture
    depth: int
    knots: np.ndarray
    values: np.ndarray


def _combined(folds: Sequence[Fold], depth: int, n_jobs: int | None) -> tuple[Combination, TopK]:
    """Return how to combine the members, and the best labels of the held-out rows with their probabilities.

    Mixture and probabilities are fitted on `depth` candidates per member. If no mixture can be fitted, the members have
    equal weights. Long lists take most of the time of a prediction, so prediction uses the shortest ones that give the
    same precision on the held-out rows, up to LOSS.
    """
    truth = sp.csr_array(sp.vstack([fold.Y for fold in folds]))
    mixture = fit_mixture(Joint.concatenated([fold.joint(depth) for fold in folds]))
    if mixture is None:
        mixture = Mixture.average(calibrators_of(folds[0].members))

    def best(depth: int) -> TopK:
        tops = [fold.top(mixture, depth, n_jobs) for fold in folds]
        return TopK(np.concatenate([each.labels for each in tops]), np.concatenate([each.scores for each in tops]))

    top = best(depth)
    knots, values = rising(top.scores, find_hits(truth, top).hit)
    least = _precision(truth, top) - LOSS
    for fewer in SHORTER:
        if fewer < depth and _precision(truth, best(fewer)) >= least:
            break
    else:
        fewer = depth
    top = TopK(top.labels, top.scores, interpolated(top.scores, knots, values))
    return Combination(mixture, fewer, knots, values), top


def _precision(truth: sp.csr_array, top: TopK) -> float:
    """Return the mean of P@1, P@3 and P@5, or of those that there are labels for."""
    return float(metrics.precision_curve(truth, top, min(SHORTER[0], top.labels.shape[1]))[::2].mean())


def _bare(model: Model) -> Model:
    """Return a model as a member of an ensemble: without names, text pipeline, thresholds and rules."""
    nothing = dict.fromkeys(("label_names", "feature_names", "text_features", "thresholds", "rules"))
    return replace(model, **nothing)  # type: ignore[type-var]


def _record(fitted: Sequence[ExtremeClassifier]) -> Training:
    return _joined([each.training_ for each in fitted])


def _joined(records: Sequence[Training]) -> Training:
    """Combine records into one, with one unit per member.

    Each unit has the worst status of the member's own units, and their largest number of iterations.
    """
    status = [
        max(record.counts(), key=lambda each: not each.is_success, default=Status.COMPLETED) for record in records
    ]
    n_iter = np.array([record.n_iter.max(initial=0) for record in records], np.int32)
    codes = np.array(status, np.uint8)
    seconds = np.array([record.block_seconds.sum() for record in records], np.float32)
    settings = {f"member {number}": dict(record.settings) for number, record in enumerate(records)}
    return training.Training("member", codes, n_iter, codes, n_iter, seconds, settings=settings)
