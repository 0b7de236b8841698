"""What `tune` tried: single trials, their comparison on the same held-out rows, and the file that keeps them."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data import Dataset
from longtail.errors import InputError
from longtail.hybrid import as_csr
from longtail.methods import METHODS, ExtremeClassifier
from longtail.metrics.table import align


@dataclass(frozen=True)
class Trial:
    """One candidate trained on some rows.

    method, params : what was trained
    n_rows : number of training rows
    score : the metric on the held-out rows
    seconds : wall time of the fit and the prediction
    fold : which rows were held out
    groups : the metric on each of several groups of the held-out rows, for the standard error of differences
    """

    method: str
    params: dict[str, Any]
    n_rows: int
    score: float
    seconds: float
    fold: int = 0
    groups: Sequence[float] = ()

    @property
    def name(self) -> str:
        """The candidate as one line."""
        return " ".join([self.method, *(f"{name}={short(value)}" for name, value in self.params.items())])


@dataclass(frozen=True)
class Tuning:
    """The result of `tune`.

    trials : the trials, in the order in which they were made
    metric : the name of the score
    n_held_out : number of rows of a fold, on which the score was measured
    n_first : number of candidates that are preferred; they are the first in `trials`
    """

    trials: tuple[Trial, ...]
    metric: str
    n_held_out: int
    n_first: int

    @property
    def finals(self) -> dict[str, list[Trial]]:
        """The trials with the most rows by the names of their candidates, the preferred ones first."""
        most = max(trial.n_rows for trial in self.trials if trial.fold == 0)
        found: dict[str, list[Trial]] = {trial.name: [] for trial in self.trials}
        for trial in self.trials:
            if trial.n_rows == most or trial.fold:
                found[trial.name].append(trial)
        return {name: trials for name, trials in found.items() if trials}

    @property
    def best(self) -> Trial:
        """The winner: the best of the first candidates, unless another one is better by more than a standard error of
        the difference. Only candidates that were trained on the most rows are compared."""
        preferred = list(dict.fromkeys(trial.name for trial in self.trials))[: self.n_first]
        finals = list(self.finals.values())
        winner = finals[0]
        for challenger in finals[1:]:
            gain, error = difference(challenger, winner)
            winner = challenger if gain > (0.0 if challenger[0].name in preferred else error) else winner
        return winner[0]

    def estimator(self, **more: Any) -> ExtremeClassifier:
        """Return the best candidate as an untrained estimator, with further parameters such as `calibrate=True`."""
        return METHODS[self.best.method](**{**self.best.params, **more})

    def command(self, data: str, model: str = "MODEL", more: Sequence[str] = ()) -> str:
        """Return the command that trains the best candidate. `more` are words to add, such as how to read the data."""
        words = ["longtail", "train", data, model, "--method", self.best.method]
        for name, value in self.best.params.items():
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
        return shlex.join([*words, *more])

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Header and rows: every candidate with its score at every number of rows, best first.

        Candidates in the last step also have their difference from the first candidate, with its standard error.
        """
        steps = sorted({trial.n_rows for trial in self.trials if trial.fold == 0})
        found: dict[str, dict[int, Trial]] = {}
        for trial in self.trials:
            if trial.fold == 0:
                found.setdefault(trial.name, {})[trial.n_rows] = trial
        order = sorted(found, key=lambda name: [-found[name][n].score if n in found[name] else 1 for n in steps[::-1]])
        finals = self.finals
        base = next(iter(finals))
        rows: list[list[Any]] = []
        for name in order:
            scores = [100 * found[name][n].score if n in found[name] else "" for n in steps]
            compared = ""
            if name in finals and name != base:
                gain, error = difference(finals[name], finals[base])
                compared = f"{100 * gain:+.2f}" + (f" ± {100 * error:.2f}" if math.isfinite(error) else "")
            seconds = sum(trial.seconds for trial in self.trials if trial.name == name)
            rows.append([name, *scores, compared, seconds])
        return ["candidate", *(f"{n:,} rows" for n in steps), "against the first", "seconds"], rows

    def __str__(self) -> str:
        folds = 1 + max(trial.fold for trial in self.trials)
        where = f"{self.n_held_out:,} held-out rows" + (f"; differences over {folds} folds" if folds > 1 else "")
        return f"{align(*self.table())}\n\n{self.metric} in per cent on {where}. Best: {self.best.name}"


def difference(one: Sequence[Trial], other: Sequence[Trial]) -> tuple[float, float]:
    """Return how much the first candidate scores above the other on the same held-out rows, and the standard error.

    Scores are compared on the folds and groups of rows that both candidates have. Groups are of about equal size. The
    error is infinite if there are no groups.
    """
    pairs = [(mine, theirs) for mine in one for theirs in other if mine.fold == theirs.fold]
    gain = float(np.mean([mine.score - theirs.score for mine, theirs in pairs]))
    alike = [pair for pair in pairs if len(pair[0].groups) == len(pair[1].groups)]
    gains = np.concatenate([[], *(np.subtract(mine.groups, theirs.groups) for mine, theirs in alike)])
    return gain, float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else math.inf


@dataclass
class TrialFile:
    """Trials in a file, as one line of JSON each. The first line describes the data and the settings."""

    path: Path | None
    key: str
    trials: list[Trial]

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None, data: Dataset, metric: str, random_state: int) -> TrialFile:
        digest = hashlib.sha256(json.dumps([data.X.shape, data.Y.shape, metric, random_state]).encode())
        X = as_csr(data.X)
        for array in (X.data, X.indices, data.Y.indices, data.Y.indptr):
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
        if lines and not lines[-1].endswith("}"):
            target.write_text("\n".join([head, *(line for line in lines if line.endswith("}"))]) + "\n", "utf-8")
        return cls(target, key, trials)

    def find(self, method: str, params: dict[str, Any], n_rows: int, fold: int) -> Trial | None:
        return find(self.trials, method, params, n_rows, fold)

    def add(self, trial: Trial) -> None:
        self.trials.append(trial)
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(replace(trial, seconds=round(trial.seconds, 3)))) + "\n")


def find(trials: Sequence[Trial], method: str, params: dict[str, Any], n_rows: int, fold: int) -> Trial | None:
    """Return the trial of a candidate with this number of rows and this fold held out."""
    wanted = (method, params, n_rows, fold)
    return next((t for t in trials if (t.method, t.params, t.n_rows, t.fold) == wanted), None)


def short(value: Any) -> str:
    """A parameter as text."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
