"""Successive halving over training rows (K. Jamieson, A. Talwalkar, AISTATS 2016), within a time budget.

Candidates are methods with parameters. All of them are trained on a part of the rows and scored on the same held-out
rows. The better half continues with twice as many rows, and so on, until the last ones are trained on all rows that are
not held out. The time of a fit is assumed to be proportional to its number of rows. The first trial determines how many
candidates the budget allows. A step begins only if its candidates are expected to finish within the budget. Otherwise
the best candidates are compared once more, on as many rows as the remaining time allows.

scikit-learn's HalvingGridSearchCV searches the parameters of one estimator and has no time budget. Optuna's pruners
need scores during a fit. Neither resumes after an interruption by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data import Dataset, split
from longtail.errors import InputError
from longtail.methods import METHODS, ExtremeClassifier
from longtail.metrics import evaluate
from longtail.metrics.table import align
from longtail.tuning.candidates import candidates

K = 5  # the default metric is nDCG@K
HELD_OUT = 0.2
MAX_HELD_OUT = 10_000  # largest number of held-out rows
MIN_ROWS = 500  # least number of training rows of the first step
FINALISTS = 2  # least number of candidates in the last step


@dataclass(frozen=True)
class Trial:
    """One candidate trained on some rows.

    method, params : what was trained
    n_rows : number of training rows
    score : the metric on the held-out rows
    seconds : wall time of the fit and the prediction
    """

    method: str
    params: dict[str, Any]
    n_rows: int
    score: float
    seconds: float

    @property
    def name(self) -> str:
        """The candidate as one line."""
        return " ".join([self.method, *(f"{name}={_short(value)}" for name, value in self.params.items())])


@dataclass(frozen=True)
class Tuning:
    """The result of `tune`.

    trials : the trials, in the order in which they were made
    metric : the name of the score
    n_held_out : number of rows on which the score was measured
    """

    trials: tuple[Trial, ...]
    metric: str
    n_held_out: int

    @property
    def best(self) -> Trial:
        """The best trial among those with the most rows."""
        most = max(trial.n_rows for trial in self.trials)
        return max((trial for trial in self.trials if trial.n_rows == most), key=lambda trial: trial.score)

    def estimator(self, **more: Any) -> ExtremeClassifier:
        """Return the best candidate as an untrained estimator, with further parameters such as `calibrate=True`."""
        return METHODS[self.best.method](**{**self.best.params, **more})

    def command(self, data: str, model: str = "MODEL") -> str:
        """Return the command that trains the best candidate."""
        options = [f"--{name.replace('_', '-')} {_short(value)}" for name, value in self.best.params.items()]
        flags = ["--normalize" if option == "--normalize True" else option for option in options]
        return " ".join(["longtail train", data, model, "--method", self.best.method, *flags])

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Header and rows: every candidate with its score at every number of rows, best first."""
        steps = sorted({trial.n_rows for trial in self.trials})
        found: dict[str, dict[int, Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.name, {})[trial.n_rows] = trial
        order = sorted(found, key=lambda name: [-found[name][n].score if n in found[name] else 1 for n in steps[::-1]])
        rows: list[list[Any]] = []
        for name in order:
            scores = [100 * found[name][n].score if n in found[name] else "" for n in steps]
            rows.append([name, *scores, sum(trial.seconds for trial in found[name].values())])
        return ["candidate", *(f"{n:,} rows" for n in steps), "seconds"], rows

    def __str__(self) -> str:
        table = align(*self.table())
        return f"{table}\n\n{self.metric} in per cent on {self.n_held_out:,} held-out rows. Best: {self.best.name}"


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
    metric : a metric of `longtail.metrics.evaluate`; "nDCG@5" by default, or with fewer labels nDCG at their number
    n_jobs : threads, as in the estimators
    random_state : seed of the choice of rows
    state : a file, optional
        Trials are written to this file as they end. A later call with the same data and arguments resumes from it.
    progress : callable, optional
        Called with the share of the work that is done and the name of the next candidate.
    """
    methods = _known(methods)
    Y = data.Y
    metric = f"nDCG@{min(K, data.n_labels)}" if metric is None else metric
    mask = split.held_out(Y, min(HELD_OUT, MAX_HELD_OUT / max(data.n_samples, 1)), random_state)
    rows = np.flatnonzero(~mask)[np.random.RandomState(random_state).permutation(int((~mask).sum()))]
    search = _Search(data, np.flatnonzero(mask), rows, metric, n_jobs, _State.open(state, data, metric, random_state))
    everything = candidates(methods, data.X)
    report = progress or (lambda share, name: None)
    start = time.perf_counter()
    report(0.0, everything[0][0])
    first = search.trial(*everything[0], step_sizes(len(everything), len(rows))[0])
    search.trials.clear()  # this trial counts when its step comes; the step then finds it in the state
    left = everything[: affordable_candidates(len(everything), len(rows), budget, first.seconds / first.n_rows)]
    steps = step_sizes(len(left), len(rows))
    for number, n_rows in enumerate(steps):
        expected = sum(search.expected_seconds(each, n_rows) for each in left)
        if number and time.perf_counter() - start + expected > budget:
            n_rows, left = search.affordable(left, budget - (time.perf_counter() - start), n_rows)
            if not left:
                break
        trials = []
        for at, each in enumerate(left):
            report((number + at / len(left)) / len(steps), " ".join([each[0], *map(str, each[1].items())]))
            trials.append(search.trial(*each, n_rows))
        if n_rows != steps[number]:
            break
        trials.sort(key=lambda trial: -trial.score)
        left = [(trial.method, trial.params) for trial in trials[: max(FINALISTS, (len(trials) + 1) // 2)]]
    report(1.0, "")
    return Tuning(tuple(search.trials), metric, int(mask.sum()))


def affordable_candidates(n_candidates: int, n_rows: int, budget: float, seconds_per_row: float) -> int:
    """Return how many candidates a search within the budget can start with, if all take as long as the first."""
    while n_candidates > FINALISTS:
        left, rows = n_candidates, 0
        for size in step_sizes(n_candidates, n_rows):
            rows += left * size
            left = max(FINALISTS, (left + 1) // 2)
        if rows * seconds_per_row <= budget:
            break
        n_candidates -= 1
    return n_candidates


def step_sizes(n_candidates: int, n_rows: int) -> list[int]:
    """Return the number of training rows of every step. It doubles from step to step. The last step trains the
    FINALISTS on all rows."""
    sizes = [n_rows]
    while n_candidates > FINALISTS and sizes[0] > 2 * MIN_ROWS:
        sizes.insert(0, sizes[0] // 2)
        n_candidates = (n_candidates + 1) // 2
    return sizes


class _Search:
    """Trains candidates on some rows and scores them on the held-out rows."""

    def __init__(
        self, data: Dataset, held_out: np.ndarray, rows: np.ndarray, metric: str, n_jobs: int | None, state: _State
    ) -> None:
        self.data = data
        self.test = data.select(held_out)
        self.rows = rows
        self.metric = metric
        self.n_jobs = n_jobs
        self.state = state
        self.trials: list[Trial] = []

    def trial(self, method: str, params: dict[str, Any], n_rows: int) -> Trial:
        done = self.state.find(method, params, n_rows)
        if done is None:
            start = time.perf_counter()
            clf = METHODS[method](**params, n_jobs=self.n_jobs).fit(self.data.select(np.sort(self.rows[:n_rows])))
            k = min(K, self.test.n_labels)
            evaluation = evaluate(self.test.Y, clf.predict_topk(self.test.X, k), ks=range(1, k + 1))
            if self.metric not in evaluation.overall:
                known = ", ".join(evaluation.overall)
                raise InputError(f"metric {self.metric!r} is not measured here; choose one of {known}")
            done = Trial(method, params, n_rows, evaluation[self.metric], time.perf_counter() - start)
            self.state.add(done)
        self.trials.append(done)
        return done

    def expected_seconds(self, candidate: tuple[str, dict[str, Any]], n_rows: int) -> float:
        """Return the time of the candidate's last trial, scaled to this number of rows."""
        mine = [each for each in self.trials if (each.method, each.params) == candidate]
        return mine[-1].seconds * n_rows / mine[-1].n_rows if mine else 0.0

    def affordable(
        self, left: list[tuple[str, dict[str, Any]]], seconds: float, n_rows: int
    ) -> tuple[int, list[tuple[str, dict[str, Any]]]]:
        """Return a last step within the budget: the finalists, on as many rows as the time allows, but more than
        before."""
        finalists = left[:FINALISTS]
        cost = sum(self.expected_seconds(each, n_rows) for each in finalists)
        size = min(len(self.rows), int(n_rows * max(seconds, 0) / max(cost, 1e-9)))
        return (size, finalists) if size > self.trials[-1].n_rows else (n_rows, [])


@dataclass
class _State:
    """Trials in a file, as one line of JSON each. The first line describes the data and the settings."""

    path: Path | None
    key: str
    trials: list[Trial]

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None, data: Dataset, metric: str, random_state: int) -> _State:
        digest = hashlib.sha256(json.dumps([data.X.shape, data.Y.shape, metric, random_state]).encode())
        for array in (data.X.data, data.X.indices, data.Y.indices, data.Y.indptr):
            digest.update(np.ascontiguousarray(array).tobytes())
        key = digest.hexdigest()[:16]
        if path is None:
            return cls(None, key, [])
        target = Path(path)
        if not target.exists():
            target.write_text(json.dumps({"tuning": key}) + "\n", encoding="utf-8")
            return cls(target, key, [])
        try:
            head, *lines = target.read_text(encoding="utf-8").splitlines()
            if json.loads(head)["tuning"] != key:
                raise InputError(f"{path} holds trials of other data or with other settings; choose another file")
            trials = [Trial(**json.loads(line)) for line in lines if line.endswith("}")]  # the last may be cut short
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not a file of tuning trials: {error}; choose another file") from None
        return cls(target, key, trials)

    def find(self, method: str, params: dict[str, Any], n_rows: int) -> Trial | None:
        wanted = (method, params, n_rows)
        return next((each for each in self.trials if (each.method, each.params, each.n_rows) == wanted), None)

    def add(self, trial: Trial) -> None:
        self.trials.append(trial)
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(replace(trial, seconds=round(trial.seconds, 3)))) + "\n")


def _known(methods: Sequence[str]) -> list[str]:
    unknown = [name for name in methods if name not in METHODS]
    if unknown or not methods:
        raise InputError(f"unknown methods {unknown}; choose among {', '.join(METHODS)}")
    return list(methods)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
