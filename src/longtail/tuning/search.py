"""Compares methods and parameters on held-out rows, within a time budget.

1. The first candidates, which are good in general, are trained on all rows that are not held out. If the budget does
   not allow this, all of them are trained on the same part of the rows. A trial on a few rows tells how long a fit
   takes.
2. If time is left and the best of them are hardly different, they are trained once more, with other rows held out.
3. If time is left, the other candidates compete by successive halving (K. Jamieson, A. Talwalkar, AISTATS 2016): all
   of them are trained on a few rows, the better half on twice as many, and so on, and the last one on all rows.
4. If time is left, the candidates that may still win are trained with other rows held out, fold by fold.

The first candidates are not halved, because fewer rows are no fair test: labels become rarer, and the rarer a label is,
the more its positives should weigh. The time of a fit is assumed to be proportional to its number of rows. A step
begins only if it is expected to end within the budget.

Scores on held-out rows are noisy, and the best of many noisy scores is too high. Two rules keep this from doing harm:

- Candidates are compared on the same rows, so that the noise that they share cancels.
- A candidate that is not one of the first wins only if it is better by more than a standard error (`Tuning.best`).

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
from longtail.tuning.candidates import candidates, equal_lengths
from longtail.tuning.trials import Trial, TrialFile, Tuning, difference, find

KS = (1, 3, 5)  # the default metric is the mean of P@k for these k
FOLDS = 5  # a fold is held out at a time; there are more folds if a fold would have more than MAX_HELD_OUT rows
MAX_HELD_OUT = 10_000
FIRST = 3  # candidates that are always compared
SMALLEST = 8  # the smallest trials have one of this many rows, and at least MIN_ROWS
MIN_ROWS = 500
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
        The first candidates are always compared, on few rows if need be. The budget does not include training the best
        candidate on all rows.
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
    return search.run(candidates(methods), budget, progress or (lambda share, name: None))


def halving_rows(n_candidates: int, least: int, n_rows: int) -> int:
    """Return the number of rows of all trials of a successive halving that begins with `least` rows."""
    total, size = 0, least
    while n_candidates:
        total += n_candidates * size
        n_candidates = (n_candidates + 1) // 2 if size < n_rows else 0
        size = next_size(n_candidates, size, n_rows)
    return total


def next_size(n_candidates: int, size: int, n_rows: int) -> int:
    """Return the number of rows of the next step of a successive halving. A single candidate gets all rows."""
    return n_rows if n_candidates == 1 else min(2 * size, n_rows)


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
        self.n_first = 0
        self.budget = 0.0
        self.start = 0.0
        self.report: Callable[[float, str], None] = lambda share, name: None

    @property
    def n_rows(self) -> int:
        """The number of rows that are not held out. Some folds have one row less."""
        return int((self.folds != 0).sum())

    @property
    def few_rows(self) -> int:
        """The number of rows of the smallest trials."""
        return min(max(self.n_rows // SMALLEST, MIN_ROWS), self.n_rows)

    def run(self, everything: list[Candidate], budget: float, report: Callable[[float, str], None]) -> Tuning:
        """Search within the budget."""
        self.start, self.budget, self.report = time.perf_counter(), budget, report
        others = self.compare_first(everything)
        if self.trials[-1].n_rows == self.n_rows:
            self.hold_out(1)
            self.halve(others)
            for fold in range(1, int(self.folds.max()) + 1):
                if not self.hold_out(fold):
                    break
        report(1.0, "")
        return self.tuning()

    def time_left(self) -> float:
        return self.budget - (time.perf_counter() - self.start)

    def tuning(self) -> Tuning:
        return Tuning(tuple(self.trials), self.metric, int((self.folds == 0).sum()), self.n_first)

    def compare_first(self, everything: list[Candidate]) -> list[Candidate]:
        """Train the first candidates on as many rows as the budget allows, and return the others.

        If the rows have different lengths, the first candidate decides whether all others scale them to length 1.
        """
        scales = not equal_lengths(self.data.X)
        first = everything[:FIRST]
        self.n_first = len(first) + scales
        sample = self.trial(*first[0], self.few_rows)
        cost = self.n_first * sample.seconds * self.n_rows / sample.n_rows
        share = 1.0 if cost <= self.time_left() else max(self.time_left(), 0.0) / cost
        n_rows = max(int(share * self.n_rows), self.few_rows)
        plain = self.trial(*first[0], n_rows)
        if scales:
            scaled = [(method, {**params, "normalize": True}) for method, params in everything]
            everything = scaled if self.trial(*scaled[0], n_rows).score > plain.score else everything
        for candidate in everything[1:FIRST]:
            self.trial(*candidate, n_rows)
        return everything[FIRST:]

    def halve(self, left: list[Candidate]) -> None:
        """Train as many of these candidates as the time allows on few rows, and the better ones on more rows."""
        n_rows = self.few_rows
        first = self.trials[0].method, self.trials[0].params
        while left and self.seconds(first, halving_rows(len(left), n_rows, self.n_rows)) > self.time_left():
            left = left[:-1]
        while left:
            done = [self.trial(*each, n_rows) for each in left if self.seconds(each, n_rows) <= self.time_left()]
            better = sorted(done, key=lambda trial: -trial.score)[: (len(done) + 1) // 2]
            left = [(trial.method, trial.params) for trial in better] if n_rows < self.n_rows else []
            n_rows = next_size(len(left), n_rows, self.n_rows)

    def hold_out(self, fold: int) -> bool:
        """Train the candidates that may still win with another fold held out, or those of them that time allows."""
        left = self.contenders() if fold <= self.folds.max() else []
        new = [each for each in left if find(self.trials, *each, self.n_rows, fold) is None]
        while new and sum(self.seconds(each, self.n_rows) for each in new) > self.time_left():
            left.remove(new.pop())
        if len(left) < 2:
            return False
        for candidate in left:
            self.trial(*candidate, self.n_rows, fold)
        return True

    def trial(self, method: str, params: dict[str, Any], n_rows: int, fold: int = 0) -> Trial:
        """Train and score a candidate, unless this has been done."""
        done = find(self.trials, method, params, n_rows, fold)
        if done is None:
            done = self.state.find(method, params, n_rows, fold)
            if done is None:
                share = 1 - self.time_left() / self.budget if self.budget > 0 else 1.0
                self.report(min(share, 1.0), " ".join([method, *map(str, params.items())]))
                done = self.train(method, params, n_rows, fold)
                self.state.add(done)
            self.trials.append(done)
        return done

    def train(self, method: str, params: dict[str, Any], n_rows: int, fold: int) -> Trial:
        start = time.perf_counter()
        rows = self.order[self.folds[self.order] != fold][:n_rows]
        test = self.data.select(np.flatnonzero(self.folds == fold))
        clf = METHODS[method](**params, n_jobs=self.n_jobs).fit(self.data.select(np.sort(rows)))
        top = clf.predict_topk(test.X, min(max(KS), test.n_labels))
        score, groups = compared(test.Y, top, self.metric)
        return Trial(method, params, n_rows, score, time.perf_counter() - start, fold, groups)

    def contenders(self) -> list[Candidate]:
        """Return the candidates that may still win, best first."""
        tuning = self.tuning()
        best = tuning.finals[tuning.best.name]
        gains = {name: difference(trials, best) for name, trials in tuning.finals.items()}
        order = sorted(gains, key=lambda name: (name != tuning.best.name, -gains[name][0]))
        left = [name for name in order if name == tuning.best.name or gains[name][0] > -HOPELESS * gains[name][1]]
        return [(trial.method, trial.params) for trial in (tuning.finals[name][0] for name in left)]

    def seconds(self, candidate: Candidate, n_rows: int) -> float:
        """Return the expected time of a trial, from the last one of this candidate or else of the first candidate."""
        mine = [trial for trial in self.trials if (trial.method, trial.params) == candidate]
        last = (mine or [trial for trial in self.trials if trial.name == self.trials[0].name])[-1]
        return last.seconds * n_rows / last.n_rows


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
