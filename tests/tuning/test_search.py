"""Tuning: the schedule, the budget, the winner, continuing after a stop, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail.errors import InputError
from longtail.matrix import indicator
from longtail.tuning import Trial, Tuning, search
from longtail.tuning.candidates import CANDIDATES, candidates, equal_lengths
from longtail.tuning.trials import INCUMBENTS, difference


def data(n: int = 400, *, equal: bool = True) -> lt.Dataset:
    """Each label has a word of its own."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 6, n)
    X = np.zeros((n, 20), np.float32)
    X[np.arange(n), label] = 1
    X[np.arange(n), rng.integers(6, 20, n)] = 1
    if not equal:
        X *= rng.uniform(0.5, 5, (n, 1)).astype(np.float32)
    Y = sp.csr_array((np.ones(n, np.int32), (np.arange(n), label)), shape=(n, 6))
    return lt.Dataset(sp.csr_array(X), indicator(Y))


@pytest.fixture
def fake(monkeypatch):
    """Trials without training: the score of a candidate is known, and so is its time."""
    done = []

    def trial(self, method, params, n_rows, fold=0):
        found = self.state.find(method, params, n_rows, fold)
        if found is None:
            score = {"C": 0.8}.get(next(iter(params), ""), 0.5) + n_rows / 1e6 - 0.01 * len(params) - params.get("C", 0)
            noise = 0.3 + 3 * params.get("C", 0)
            groups = [score - noise, score + noise, score]
            found = Trial(method, params, n_rows, score, n_rows / 100, fold, groups)
            done.append(found)
            self.state.add(found)
        self.trials.append(found)
        return found

    monkeypatch.setattr(search._Search, "trial", trial)
    return done


def test_rows_double_until_the_finalists_have_all():
    assert search.step_sizes(2, 10_000) == [10_000]
    assert search.step_sizes(4, 10_000) == [5_000, 10_000]
    assert search.step_sizes(9, 10_000) == [2_500, 5_000, 10_000]
    assert search.step_sizes(9, 1_500) == [750, 1_500]


def test_a_small_budget_begins_with_fewer_candidates():
    assert search.affordable_candidates(9, 10_000, 1e9, 1.0) == 9
    assert search.affordable_candidates(9, 10_000, 0.0, 1.0) == INCUMBENTS
    four = 4 * 5_000 + 3 * 10_000
    assert search.affordable_candidates(9, 10_000, four, 1.0) == 4


def test_the_better_half_continues(fake):
    found = lt.tune(data(4000), 1e9, methods=["one-vs-all"])
    steps = [trial for trial in found.trials if trial.fold == 0]
    sizes = sorted({trial.n_rows for trial in steps})
    assert sizes[-1] == 3200
    for small, large in pairwise(sizes):
        before = [trial for trial in steps if trial.n_rows == small]
        after = [trial.name for trial in steps if trial.n_rows == large]
        assert len(after) == max(3, (len(before) + 1) // 2)
        assert after[:2] == [trial.name for trial in before[:2]]  # the first two are in every step
        best = sorted(before[2:], key=lambda trial: -trial.score)[: len(after) - 2]
        assert [trial.name for trial in best] == after[2:]
    assert found.best.score == max(trial.score for trial in steps if trial.n_rows == 3200)


def test_time_that_is_left_is_spent_on_further_folds(fake, monkeypatch):
    found = lt.tune(data(4000), 1e9, methods=["one-vs-all"])
    last = [trial for trial in found.trials if trial.fold]
    assert {trial.fold for trial in last} == {1, 2, 3, 4}
    assert all(trial.n_rows == 3200 for trial in last)
    assert "differences over 5 folds" in str(found)
    monkeypatch.setattr(search, "HOPELESS", 0.0)  # all but the best are hopeless
    assert not any(trial.fold for trial in lt.tune(data(4000), 1e9, methods=["one-vs-all"]).trials)


def trials_of(*scores: float, noise: float) -> tuple[Trial, ...]:
    spread = noise * np.array([-1.0, 1.0, -1.0, 1.0])
    names = [{}, {"C": 2.0}, {"C": 3.0}]
    return tuple(
        Trial("one-vs-all", params, 100, score, 1.0, 0, (score + at * spread).tolist())
        for at, (params, score) in enumerate(zip(names, scores, strict=True))
    )


def test_another_candidate_must_be_better_by_a_standard_error():
    def best(*scores: float, noise: float) -> dict[str, float]:
        return Tuning(trials_of(*scores, noise=noise), "P@1", 40).best.params

    assert best(0.5, 0.4, 0.41, noise=0.0) == {}
    assert best(0.5, 0.51, 0.4, noise=0.5) == {"C": 2.0}  # the first two are compared by their scores
    assert best(0.5, 0.51, 0.6, noise=0.5) == {"C": 2.0}
    assert best(0.5, 0.51, 0.6, noise=0.01) == {"C": 3.0}
    assert best(0.5, 0.51, 0.505, noise=0.0) == {"C": 2.0}


def test_the_standard_error_is_that_of_paired_differences():
    one, other, _ = trials_of(0.5, 0.7, 0.0, noise=0.1)
    gain, error = difference([other], [one])
    assert gain == pytest.approx(0.2)
    assert error == pytest.approx(np.std([-0.1, 0.1, -0.1, 0.1], ddof=1) / 2)
    assert difference([replace(one, groups=())], [other])[1] == np.inf
    further = [replace(each, fold=1, score=each.score + 0.1) for each in (one, other)]
    assert difference([other, further[1]], [one])[0] == pytest.approx(0.2)  # fold 1 has no partner


def test_a_mean_of_several_metrics():
    found = lt.tune(data(), 0.0, methods=["one-vs-all"], metric="P@1,nDCG@3", n_jobs=1)
    assert found.metric == "P@1,nDCG@3"
    assert 0.9 < found.best.score <= 1.0
    assert len(found.best.groups) == 8
    assert np.mean(found.best.groups) == pytest.approx(found.best.score)


@pytest.mark.parametrize("budget", [0.0, 70.0, 150.0, 300.0])
def test_a_search_ends_with_the_budget(fake, monkeypatch, budget):
    monkeypatch.setattr(search.time, "perf_counter", lambda: sum(trial.seconds for trial in fake))
    found = lt.tune(data(4000), budget, methods=["one-vs-all"])
    first = [trial for trial in found.trials if trial.n_rows == found.trials[0].n_rows and trial.fold == 0]
    least = sum(trial.seconds for trial in first)  # the first step is always done
    assert sum(trial.seconds for trial in fake) <= max(budget, least + 16.0)  # and the trial that estimates the time
    assert budget < 100 or found.best.n_rows == 3200


def test_trials_are_kept_and_found_again(fake, tmp_path):
    state = tmp_path / "trials.jsonl"
    first = lt.tune(data(4000), 1e9, methods=["one-vs-all"], state=state)
    n_done = len(fake)
    again = lt.tune(data(4000), 1e9, methods=["one-vs-all"], state=state)
    assert len(fake) == n_done
    assert [trial.name for trial in again.trials] == [trial.name for trial in first.trials]
    lines = state.read_text().splitlines()
    state.write_text("\n".join([*lines[:3], lines[3][:20]]))  # stopped while writing
    lt.tune(data(4000), 1e9, methods=["one-vs-all"], state=state)
    assert len(fake) == n_done + n_done - 2
    lt.tune(data(4000), 1e9, methods=["one-vs-all"], state=state)  # the line that was cut short is gone
    assert len(fake) == n_done + n_done - 2


def test_a_state_of_other_data_is_refused(fake, tmp_path):
    state = tmp_path / "trials.jsonl"
    lt.tune(data(4000), 1e9, methods=["one-vs-all"], state=state)
    with pytest.raises(InputError, match="other data"):
        lt.tune(data(4001), 1e9, methods=["one-vs-all"], state=state)
    state.write_text("hello\n")
    with pytest.raises(InputError, match="not a file of tuning trials"):
        lt.tune(data(4000), 1e9, state=state)
    state.write_text(json.dumps({"tuning": "x"}) + "\n")
    with pytest.raises(InputError, match="other data"):
        lt.tune(data(4000), 1e9, state=state)


def test_real_trials_find_a_model_that_works():
    shares = []
    found = lt.tune(data(), 60.0, methods=["one-vs-all"], n_jobs=1, progress=lambda share, name: shares.append(share))
    assert found.metric == "P@1,P@3,P@5"
    assert 0.95 < found.best.score / np.mean([1, 1 / 3, 1 / 5]) <= 1.0001  # rows have one label
    assert found.n_held_out == 80
    clf = found.estimator(n_jobs=1).fit(data())
    assert clf.score(data()) > 0.95
    assert shares[-1] == 1.0
    assert "Best: one-vs-all" in str(found)


def test_the_command_trains_the_winner():
    trial = Trial("one-vs-all", {"C": 1 / 3, "positive_weight": 3.0, "normalize": True}, 10, 0.5, 1.0)
    command = Tuning((trial,), "P@1", 5).command("my train.txt", "model", ["--format", "xmc"])
    words = "longtail train 'my train.txt' model --method one-vs-all --C 0.3333333333333333 --positive-weight 3.0"
    assert command == f"{words} --normalize --format xmc"


def test_rows_of_different_lengths_are_also_normalized():
    assert equal_lengths(data().X)
    assert not equal_lengths(data(equal=False).X)
    plain, scaled = (candidates(["one-vs-all"], data(equal=each).X) for each in (True, False))
    assert len(scaled) == 2 * len(plain)
    assert scaled[:2] == plain[:2]
    assert scaled[2] == ("one-vs-all", {"normalize": True})
    assert candidates(["mach"], data().X) == [("mach", {})]
    assert {method for method, _ in CANDIDATES} == {"one-vs-all", "mach", "memoir", "pd-sparse"}


def test_unknown_methods_and_metrics_are_refused():
    with pytest.raises(InputError, match="unknown methods"):
        lt.tune(data(), 1.0, methods=["forest"])
    with pytest.raises(InputError, match="metric 'beauty' is not measured"):
        lt.tune(data(), 1.0, methods=["one-vs-all"], metric="beauty", n_jobs=1)
