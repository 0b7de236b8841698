"""Successive halving over training rows (K. Jamieson, A. Talwalkar, AISTATS 2016), within a time budget.

Candidates are methods with parameters. All of them are trained on a part of the rows and scored on the same held-out
rows. The better half continues with twice as many rows, and so on, until the last ones are trained on all rows that are
not held out. The time of a fit is assumed to be proportional to its number of rows. The first trial determines how many
candidates the budget allows. A step begins only if its candidates are expected to finish within the budget. Otherwise
it has fewer candidates, or fewer rows.

Scores on held-out rows are noisy, and the best of many noisy scores is too high. Three rules keep this from doing harm:

- The first two candidates, which are good in general, are in every step. Another candidate wins only if it is better by
  more than a standard error (`Tuning.best`).
- Candidates are compared on the same rows, so that the noise that they share cancels.
- If time is left, the candidates that may still win are trained once more, with other rows held out.

scikit-learn's HalvingGridSearchCV searches the parameters of one estimator and has no time budget. Optuna's pruners
need scores during a fit. Neither resumes after an interruption by itself.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data import Dataset, split
from longtail.errors import InputError
from longtail.methods import METHODS
from longtail.metrics import evaluate
from longtail.tuning.candidates import candidates
from longtail.tuning.trials import INCUMBENTS, Trial, TrialFile, Tuning, difference

KS = (1, 3, 5)  # the default metric is the mean of P@k for these k
FOLDS = 5  # a fold is held out at a time; there are more folds if a fold would have more than MAX_HELD_OUT rows
MAX_HELD_OUT = 10_000
MIN_ROWS = 500  # least number of training rows of the first step
FINALISTS = 3  # least number of candidates in a step, if the budget allows
GROUPS = 20  # groups of held-out rows
GROUP_ROWS = 10  # least number of rows of a group
HOPELESS = 2.0  # a candidate that is this many standard errors behind is not trained again
Candidate = tuple[str, dict[str, Any]]


def tune(
    data: Dataset,
    budget: float = 600.0,
    *,
    methods: Sequence[str] = tuple(METHODS),
    metric: str | None = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    state: str | os.PathLike[str] | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Tuning:
    """Find the best method and parameters for a dataset, on held-out rows.

    Parameters
    ----------
    data : Dataset
    budget : seconds of wall time, default=600
        The first step is always done. The budget does not include training the best candidate on all rows.
    methods : names of methods to choose among; all by default
    metric : a metric of `longtail.metrics.evaluate`, or the mean of several, separated by commas
        The default is "P@1,P@3,P@5".
    n_jobs : threads, as in the estimators
    random_state : seed of the choice of rows
    state : a file, optional
        Trials are written to this file as they end. A later call with the same data and arguments resumes from it.
    progress : callable, optional
        Called with the share of the work that is done and the name of the next candidate.
    """
    methods = _known(methods)
    metric = ",".join(f"P@{k}" for k in KS if k <= data.n_labels) if metric is None else metric
    folds = split.folds(data.Y, min(max(FOLDS, math.ceil(data.n_samples / MAX_HELD_OUT)), data.n_samples), random_state)
    search = _Search(data, folds, metric, n_jobs, random_state, TrialFile.open(state, data, metric, random_state))
    return search.run(candidates(methods, data.X), budget, progress or (lambda share, name: None))


def affordable_candidates(n_candidates: int, n_rows: int, budget: float, seconds_per_row: float) -> int:
    """Return how many candidates a search within the budget can start with, if all take as long as the first."""
    while n_candidates > INCUMBENTS:
        left, rows = n_candidates, 0
        for size in step_sizes(n_candidates, n_rows):
            rows += left * size
            left = n_survivors(left)
        if rows * seconds_per_row <= budget:
            break
        n_candidates -= 1
    return n_candidates


def n_survivors(n_candidates: int) -> int:
    """Return how many candidates continue after a step."""
    return min(n_candidates, max(FINALISTS, (n_candidates + 1) // 2))


def step_sizes(n_candidates: int, n_rows: int) -> list[int]:
    """Return the number of training rows of every step. It doubles from step to step. The last step trains the
    FINALISTS on all rows."""
    sizes = [n_rows]
    while n_candidates > FINALISTS and sizes[0] > 2 * MIN_ROWS:
        sizes.insert(0, sizes[0] // 2)
        n_candidates = n_survivors(n_candidates)
    return sizes


class _Search:
    """Trains candidates on some rows and scores them on the held-out rows."""

    def __init__(
        self, data: Dataset, folds: np.ndarray, metric: str, n_jobs: int | None, random_state: int, state: TrialFile
    ) -> None:
        self.data = data
        self.folds = folds
        self.metric = metric
        self.n_jobs = n_jobs
        self.order = np.random.RandomState(random_state).permutation(data.n_samples)
        self.state = state
        self.trials: list[Trial] = []

    @property
    def n_rows(self) -> int:
        """The number of rows that are not held out. Some folds have one row less."""
        return int((self.folds != 0).sum())

    def run(self, everything: list[Candidate], budget: float, report: Callable[[float, str], None]) -> Tuning:
        """Search within the budget."""
        start = time.perf_counter()

        def time_left() -> float:
            return budget - (time.perf_counter() - start)

        report(0.0, everything[0][0])
        first = self.trial(*everything[0], step_sizes(len(everything), self.n_rows)[0])
        self.trials.clear()  # this trial counts when its step comes; the step then finds it in the state
        left = everything[: affordable_candidates(len(everything), self.n_rows, budget, first.seconds / first.n_rows)]
        steps = step_sizes(len(left), self.n_rows)
        n_stages = len(steps) + int(self.folds.max())

        def stage(number: int, each: list[Candidate], n_rows: int, fold: int = 0) -> None:
            for at, candidate in enumerate(each):
                report((number + at / len(each)) / n_stages, " ".join([candidate[0], *map(str, candidate[1].items())]))
                self.trial(*candidate, n_rows, fold)

        for number, n_rows in enumerate(steps):
            size = n_rows
            if number:
                left = self.survivors(left)
                size, left = self.affordable(left, time_left(), n_rows)
            stage(number, left, size)
            if size < n_rows or not left:
                break
        else:
            for fold in range(1, int(self.folds.max()) + 1):
                left = self.contenders(left)
                if len(left) < 2 or sum(self.expected_seconds(each, self.n_rows) for each in left) > time_left():
                    break
                stage(len(steps) + fold - 1, left, self.n_rows, fold)
        report(1.0, "")
        return self.tuning()

    def tuning(self) -> Tuning:
        return Tuning(tuple(self.trials), self.metric, int((self.folds == 0).sum()))

    def trial(self, method: str, params: dict[str, Any], n_rows: int, fold: int = 0) -> Trial:
        done = self.state.find(method, params, n_rows, fold)
        if done is None:
            start = time.perf_counter()
            rows = self.order[self.folds[self.order] != fold][:n_rows]
            test = self.data.select(np.flatnonzero(self.folds == fold))
            clf = METHODS[method](**params, n_jobs=self.n_jobs).fit(self.data.select(np.sort(rows)))
            top = clf.predict_topk(test.X, min(max(KS), test.n_labels))
            score, groups = compared(test.Y, top, self.metric)
            done = Trial(method, params, n_rows, score, time.perf_counter() - start, fold, groups)
            self.state.add(done)
        self.trials.append(done)
        return done

    def survivors(self, left: list[Candidate]) -> list[Candidate]:
        """Return the candidates of the next step: the first ones, then the best of the others."""
        last = {trial.name: trial for trial in self.trials[-len(left) :]}
        others = sorted(list(last.values())[INCUMBENTS:], key=lambda trial: -trial.score)
        kept = [*list(last.values())[:INCUMBENTS], *others][: n_survivors(len(left))]
        return [(trial.method, trial.params) for trial in kept]

    def contenders(self, left: list[Candidate]) -> list[Candidate]:
        """Return the candidates that may still win."""
        finals = self.tuning().finals
        best = finals[self.tuning().best.name]
        found = []
        for trials in finals.values():
            gain, error = difference(trials, best)
            if gain > -HOPELESS * error or trials is best:
                found.append((trials[0].method, trials[0].params))
        return [each for each in left if each in found]

    def expected_seconds(self, candidate: Candidate, n_rows: int) -> float:
        """Return the time of the candidate's last trial, scaled to this number of rows."""
        mine = [each for each in self.trials if (each.method, each.params) == candidate]
        return mine[-1].seconds * n_rows / mine[-1].n_rows

    def affordable(self, left: list[Candidate], seconds: float, n_rows: int) -> tuple[int, list[Candidate]]:
        """Return a step within the budget: fewer candidates if the time is short, then fewer rows, but more than
        before. It has no candidates if even that takes too long."""
        while len(left) > INCUMBENTS and sum(self.expected_seconds(each, n_rows) for each in left) > seconds:
            left = left[:-1]
        cost = sum(self.expected_seconds(each, n_rows) for each in left)
        if cost <= seconds:
            return n_rows, left
        size = int(n_rows * max(seconds, 0) / max(cost, 1e-9))
        return (size, left) if size > self.trials[-1].n_rows else (n_rows, [])


def compared(Y: sp.csr_array, top: Any, metric: str) -> tuple[float, list[float]]:
    """Return the metric on all rows, and on each of several groups of them."""
    n_groups = min(GROUPS, Y.shape[0] // GROUP_ROWS)
    return measured(Y, top, metric), [measured(Y[at::n_groups], top[at::n_groups], metric) for at in range(n_groups)]


def measured(Y: sp.csr_array, top: Any, metric: str) -> float:
    """Return the mean of the metrics, whose names are separated by commas."""
    found = evaluate(Y, top, ks=range(1, top.labels.shape[1] + 1))
    names = metric.split(",")
    unknown = [name for name in names if name not in found.overall]
    if unknown:
        raise InputError(f"metric {unknown[0]!r} is not measured here; choose one of {', '.join(found.overall)}")
    return float(np.mean([found[name] for name in names]))


def _known(methods: Sequence[str]) -> list[str]:
    unknown = [name for name in methods if name not in METHODS]
    if unknown or not methods:
        raise InputError(f"unknown methods {unknown}; choose among {', '.join(METHODS)}")
    return list(methods)
