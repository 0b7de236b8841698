"""Fits a calibrator on held-out rows: a logistic regression for all labels, then an isotonic regression.

models/calibrator.py has the formula. The logistic regression finds the coefficients of (1) there, the isotonic
regression the function p(z). A coefficient with the wrong sign is set to 0, and the others are fitted again, so that
probabilities always rise with the score. The formula cannot be exact for all candidates of a row. People look at the
best ones, so in both regressions these have more weight than the others. The frequency of a label can change the order
of labels, so it is used only if it clearly raises the precision on the held-out rows.
"""

from __future__ import annotations

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from longtail.calibration.held_out import HeldOut
from longtail.models.calibrator import Calibrator, Coefficients, margins_of

FEATURES = Coefficients._fields[1:]
WEAK_PENALTY = 100.0  # C of the logistic regression, on standardised features
N_BEST = 5  # labels of a row with weight 1
OTHERS = 0.1  # weight of the other candidates
RANK_OFFSET = 2.0  # q of (1)
KS = (1, 3, 5)  # the values of k for which the frequency must raise P@k
CLEARLY = 2.0  # standard errors by which each of them must rise


def fit_calibrator(held_out: HeldOut, counts: np.ndarray, n_samples: int, *, log_scores: bool) -> Calibrator:
    """Fit a calibrator on the scores of held-out rows.

    The calibrator is for a model that was trained on `n_samples` rows. `counts` is the number of these rows for every
    label.
    """
    columns = _columns(held_out, log_scores, RANK_OFFSET)

    def fitted(names: tuple[str, ...]) -> Calibrator:
        coefficients = _coefficients(columns, held_out.hit, names)
        knots, values = rising(_predictor(coefficients, columns), held_out.hit)
        depth = held_out.hit.shape[1]
        return Calibrator(coefficients, knots, values, counts, n_samples, log_scores, depth, RANK_OFFSET)

    calibrator = fitted(FEATURES)
    if calibrator.coefficients.frequency:
        ranked = held_out.with_probabilities(_probabilities(calibrator, columns))
        if not _clearly_better(ranked.hit, held_out.hit):
            calibrator = fitted(tuple(name for name in FEATURES if name != "frequency"))
    return calibrator


def calibrated(held_out: HeldOut, calibrator: Calibrator) -> HeldOut:
    """Return the held-out labels with their probabilities, sorted by probability. Frequencies are counted in the
    training rows."""
    columns = _columns(held_out, calibrator.log_scores, calibrator.rank_offset)
    return held_out.with_probabilities(_probabilities(calibrator, columns))


def _columns(held_out: HeldOut, log_scores: bool, rank_offset: float) -> dict[str, np.ndarray]:
    """The variables of (1), each of shape (rows, k)."""
    s = margins_of(held_out.top.scores, log_scores)
    ranks = np.arange(1, s.shape[1] + 1)
    return {
        "margin": s,
        "frequency": np.log1p(held_out.frequency),
        "rank": np.broadcast_to(np.log(ranks + rank_offset), s.shape),
        "best": np.broadcast_to(s[:, :1], s.shape),
    }


def _coefficients(columns: dict[str, np.ndarray], hit: np.ndarray, names: tuple[str, ...]) -> Coefficients:
    """Fit a logistic regression on these variables. Variables that would get the wrong sign are left out."""
    found = dict.fromkeys(Coefficients._fields, 0.0)
    varied = [name for name in names if np.ptp(columns[name]) > 0]
    if hit.all() or not hit.any() or not varied:
        return Coefficients(**found)
    X = np.stack([columns[name].ravel() for name in varied], axis=1)
    centre = X.mean(axis=0)
    spread = X.std(axis=0)
    weights = np.broadcast_to(_weights(hit.shape[1]), hit.shape).ravel()
    regression = LogisticRegression(C=WEAK_PENALTY, max_iter=1000).fit((X - centre) / spread, hit.ravel(), weights)
    slopes = regression.coef_[0] / spread
    found |= dict(zip(varied, slopes.tolist(), strict=True))
    found["intercept"] = float(regression.intercept_[0] - slopes @ centre)
    wrong = _wrong_sign(found)
    if wrong is None:
        return Coefficients(**found)
    return _coefficients(columns, hit, tuple(name for name in varied if name != wrong))


def _wrong_sign(found: dict[str, float]) -> str | None:
    """Return a variable that must be left out so that probabilities rise with the score, or None."""
    if found["rank"] > 0:
        return "rank"
    if found["best"] and found["margin"] + found["best"] < 0:
        return "best"
    return "margin" if found["margin"] < 0 else None


def _predictor(c: Coefficients, columns: dict[str, np.ndarray]) -> np.ndarray:
    """z of (1)."""
    return np.asarray(c.intercept + sum(getattr(c, name) * column for name, column in columns.items()))


def _probabilities(calibrator: Calibrator, columns: dict[str, np.ndarray]) -> np.ndarray:
    z = _predictor(calibrator.coefficients, columns)
    return np.asarray(np.interp(z, calibrator.knots, calibrator.values), np.float32)


def _weights(depth: int) -> np.ndarray:
    """The weight of each candidate of a row, in the order of their ranks."""
    return np.where(np.arange(depth) < N_BEST, 1.0, OTHERS)


def rising(z: np.ndarray, hit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit the points of p(z) by isotonic regression. No probability is exactly 0 or 1, because a sample does not
    justify certainty."""
    margin = 1.0 / (z.size + 2)
    weights = np.empty(z.shape)
    np.put_along_axis(weights, np.argsort(-z, axis=1, kind="stable"), _weights(z.shape[1])[None, :], axis=1)
    regression = IsotonicRegression(y_min=margin, y_max=1 - margin, out_of_bounds="clip")
    regression.fit(z.ravel(), hit.ravel(), weights.ravel())
    knots, first = np.unique(regression.X_thresholds_, return_index=True)
    return knots, np.maximum.accumulate(regression.y_thresholds_[first])


def _clearly_better(hit: np.ndarray, before: np.ndarray) -> bool:
    """Whether P@1, P@3 and P@5 are all higher than before, by more than chance explains. The same rows are compared."""
    for k in KS:
        gain = hit[:, :k].mean(axis=1) - before[:, :k].mean(axis=1)
        if gain.mean() <= CLEARLY * gain.std() / np.sqrt(len(gain)):
            return False
    return True
