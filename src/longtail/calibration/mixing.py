"""Fits the mixture of an ensemble on held-out candidates: a logistic regression with bounds.

models/mixture.py has the formula. w s + b t is fitted as

    u s + c (t - s) + p t,     u >= 0, c <= 0, p >= 0,     so that w = u - c and b = c + p                          (1)

which has all values with w >= 0 and w + b >= 0, and no others. Variables have mean 0 and standard deviation 1, and the
penalty is SMOOTH / 2 times the squared differences between the coefficients of neighbouring knots, plus RIDGE / 2 times
the squares of all. So where there are few candidates of some frequency, coefficients are those of other frequencies.
As in fitting.py, the best candidates have more weight than the others.

The loss is minimised by Newton's method. Each step is a least squares problem with bounds. A candidate has the
coefficients of two knots only, so candidates are sorted by frequency, and all between two knots are a dense matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import lsq_linear

from longtail.calibration.fitting import N_BEST, OTHERS
from longtail.models.mixture import Mixture

KNOTS = np.log1p([1, 3, 10, 30, 100, 1000])  # of log(1 + n)
SMOOTH = 1000.0
RIDGE = 0.1
MAX_STEPS = 50
TOL = 1e-9  # gain of a step per candidate, at which the fit ends
SHORTEST = 1e-3  # part of a step that may be tried
SIGNS = (1, -1, 1, -1)  # of u, c, p and the coefficient of the rank


class Joint(NamedTuple):
    """Candidates of held-out rows, as all members see them.

    margin, best : (candidates, members), s and t of the formula
    rank : (candidates, members), from 1
    rank_offset : (members,), q of the formula
    frequency : (candidates,), log(1 + n)
    hit : (candidates,), whether the label is right
    """

    margin: np.ndarray
    best: np.ndarray
    rank: np.ndarray
    rank_offset: np.ndarray
    frequency: np.ndarray
    hit: np.ndarray

    @classmethod
    def concatenated(cls, parts: Sequence[Joint]) -> Joint:
        """Join the candidates of parts with the same members."""
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in cls._fields}
        return cls(**{**joined, "rank_offset": parts[0].rank_offset})

    def of(self, members: np.ndarray) -> Joint:
        """The same candidates for some members."""
        margin, best, rank, rank_offset = (each[..., members] for each in self[:4])
        return Joint(margin, best, rank, rank_offset, self.frequency, self.hit)


def fit_mixture(joint: Joint) -> Mixture | None:
    """Fit the mixture, or return None if the candidates are all right or all wrong, or if no member is of use.

    A member without a positive coefficient of its margin is left out.
    """
    if joint.hit.all() or not joint.hit.any():
        return None
    first, last = np.searchsorted(KNOTS, [joint.frequency.min(), joint.frequency.max()], side="right") - 1
    knots = KNOTS[max(first, 0) : max(last, 0) + 1]
    used = np.ones(joint.margin.shape[1], bool)
    while used.any():
        found = _fitted(joint.of(used), knots)
        of_use = found.margin.any(axis=1)
        if of_use.all():
            whole = np.zeros((4, len(used), len(knots)))
            whole[:, used] = found.lines
            return Mixture(knots, *whole)
        used[used] = of_use
    return None


def _fitted(joint: Joint, knots: np.ndarray) -> Mixture:
    """Fit the mixture of all these members."""
    n, members = joint.margin.shape
    s, t = joint.margin, joint.best
    columns = np.stack([s, t - s, t, np.log(joint.rank + joint.rank_offset)], axis=2).reshape(n, -1)
    centre, spread = columns.mean(axis=0), columns.std(axis=0)
    spread[spread == 0] = 1.0
    columns -= centre
    columns /= spread
    weights = np.where(joint.rank.min(axis=1) <= N_BEST, 1.0, OTHERS)
    regression = Regression(columns, joint.frequency, joint.hit, weights, knots)
    found = regression.solved(np.tile(SIGNS, members))
    slopes = found[:, 1:] / spread
    intercept = found[:, 0] - slopes @ centre
    u, c, p, rank = slopes.reshape(len(knots), members, 4).transpose(2, 1, 0)
    shares = np.broadcast_to(intercept / members, u.shape)
    return Mixture(knots, shares, u - c, rank, c + p)


class Regression:
    """A logistic regression whose coefficients are linear in the frequency between knots.

    columns : (n, d), the variables beside the intercept, with standard deviation 1
    frequency, hit, weights : (n,)
    """

    def __init__(
        self, columns: np.ndarray, frequency: np.ndarray, hit: np.ndarray, weights: np.ndarray, knots: np.ndarray
    ) -> None:
        self.n_knots = len(knots)
        place = np.interp(frequency, knots, np.arange(len(knots)))
        left = np.minimum(place.astype(np.intp), max(len(knots) - 2, 0))
        order = np.argsort(left, kind="stable")
        self.A = np.column_stack([np.ones(len(columns)), columns])[order]
        self.share = (place - left)[order]  # of the right knot
        self.hit = hit[order].astype(np.float64)
        self.weights = weights[order]
        self.ends = np.searchsorted(left[order], np.arange(max(len(knots) - 1, 1) + 1))
        steps = np.diff(np.eye(len(knots)), axis=0)
        size = self.A.shape[1]
        self.penalty = np.kron(SMOOTH * steps.T @ steps, np.eye(size)) + RIDGE * np.eye(len(knots) * size)

    def _sides(self) -> list[tuple[slice, list[tuple[int, np.ndarray]]]]:
        """For each range of candidates between two knots: the numbers of these knots, and their shares."""
        found = []
        for left, (start, end) in enumerate(zip(self.ends[:-1], self.ends[1:], strict=True)):
            share = self.share[start:end]
            sides = [(left, 1 - share), (left + 1, share)]
            found.append((slice(start, end), sides[: self.n_knots]))
        return found

    def predictor(self, theta: np.ndarray) -> np.ndarray:
        """z of every candidate, with coefficients theta of shape (knots, 1 + d)."""
        z = np.zeros(len(self.A))
        for part, sides in self._sides():
            for knot, share in sides:
                z[part] += share * (self.A[part] @ theta[knot])
        return z

    def loss(self, theta: np.ndarray, z: np.ndarray) -> float:
        flat = theta.ravel()
        return float(self.weights @ (np.logaddexp(0, z) - self.hit * z) + 0.5 * flat @ self.penalty @ flat)

    def derivatives(self, theta: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The gradient and the Hessian of the loss, by the flat theta."""
        p = 1 / (1 + np.exp(-np.clip(z, -500, 500)))
        first = self.weights * (p - self.hit)
        second = self.weights * p * (1 - p)
        gradient = self.penalty @ theta.ravel()
        hessian = self.penalty.copy()
        size = self.A.shape[1]
        for part, sides in self._sides():
            A = self.A[part]
            for knot, share in sides:
                rows = slice(knot * size, (knot + 1) * size)
                gradient[rows] += A.T @ (first[part] * share)
                for other, more in sides:
                    hessian[rows, other * size : (other + 1) * size] += A.T @ (
                        A * (second[part] * share * more)[:, None]
                    )
        return gradient, hessian

    def solved(self, signs: np.ndarray) -> np.ndarray:
        """The theta with the least loss whose slopes have these signs: (knots, 1 + d)."""
        shape = self.n_knots, self.A.shape[1]
        low = np.tile([-np.inf, *np.where(signs > 0, 0, -np.inf)], shape[0])
        high = np.tile([np.inf, *np.where(signs > 0, np.inf, 0)], shape[0])
        theta = np.zeros(shape)
        z = self.predictor(theta)
        loss = self.loss(theta, z)
        for _ in range(MAX_STEPS):
            gradient, hessian = self.derivatives(theta, z)
            root = np.linalg.cholesky(hessian)
            wanted = root.T @ theta.ravel() - np.linalg.solve(root, gradient)
            step = lsq_linear(root.T, wanted, bounds=(low, high), method="bvls").x.reshape(shape) - theta
            part = 1.0
            while self.loss(theta + part * step, self.predictor(theta + part * step)) > loss and part > SHORTEST:
                part /= 2
            before, theta = loss, theta + part * step
            z = self.predictor(theta)
            loss = self.loss(theta, z)
            if before - loss < TOL * len(z):
                break
        return np.clip(theta, low.reshape(shape), high.reshape(shape))
