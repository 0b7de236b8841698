"""Tuning: the schedule, the budget, the winner, continuing after a stop, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail.errors import InputError
from longtail.matrix import indicator
from longtail.tuning import Trial, Tuning, search
from longtail.tuning.candidates import CANDIDATES, candidates, equal_lengths
from longtail.tuning.trials import TrialFile, difference


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

    def train(self, method, params, n_rows, fold):
        score = {"C": 0.8}.get(next(iter(params), ""), 0.5) + n_rows / 1e6 - 0.01 * len(params) - params.get("C", 0)
        noise = 0.3 + 3 * params.get("C", 0)
        found = Trial(method, params, n_rows, score, n_rows / 100, fold, [score - noise, score + noise, score])
        done.append(found)
        return found

    monkeypatch.setattr(search._Search, "train", train)
    return done


@pytest.fixture
def clock(fake, monkeypatch):
    """The time is that of the fake trials."""
    monkeypatch.setattr(search.time, "perf_counter", lambda: sum(trial.seconds for trial in fake))


def first_step(found: Tuning, n_rows: int) -> list[Trial]:
    """The trials with this number of rows, without those of other folds."""
    return [trial for trial in found.trials if trial.n_rows == n_rows and trial.fold == 0]


def test_the_first_candidates_are_compared_on_all_rows(fake):
    found = lt.tune(data(4000), 1e9, methods=["one-vs-all"])
    assert (
        [(trial.n_rows, trial.params) for trial in found.trials[:4]]
        == [
            (500, {}),  # tells how long a fit takes
            *((3200, params) for _, params in CANDIDATES[: search.FIRST]),
        ]
    )
    assert found.n_first == search.FIRST


def test_a_small_budget_compares_the_first_candidates_on_fewer_rows(fake, clock):
    for budget, rows in ((0.0, 500), (50.0, (50.0 - 5) / 96 * 3200), (110.0, 3200)):  # 96 s for three fits
        fake.clear()
        found = lt.tune(data(4000), budget, methods=["one-vs-all"])
        last = first_step(found, int(rows))
        assert [trial.params for trial in last] == [params for _, params in CANDIDATES[: search.FIRST]]
        assert found.best in last


def test_the_other_candidates_are_halved(fake):
    others = [("one-vs-all", {"C": 0.5 + at}) for at in range(5)]
    tried = search._Search(data(8000), np.arange(8000) % 5, "P@1", 1, 0, TrialFile(None, "", []))
    tried.budget, tried.start = 1e9, search.time.perf_counter()
    tried.trial("one-vs-all", {}, 800)
    tried.halve(others)
    sizes = [(trial.n_rows, trial.params["C"]) for trial in tried.trials[1:]]
    assert sizes[:5] == [(800, 0.5 + at) for at in range(5)]
    assert sizes[5:] == [(1600, 0.5), (1600, 1.5), (1600, 2.5), (3200, 0.5), (3200, 1.5), (6400, 0.5)]
    assert sum(n_rows for n_rows, _ in sizes) == search.halving_rows(5, 800, 6400)


def test_little_time_halves_fewer_candidates(fake, clock):
    methods = ["one-vs-all", "mach", "memoir", "pd-sparse"]

    def n_others(budget: float) -> int:
        fake.clear()
        found = lt.tune(data(4000), budget, methods=methods)
        return len({trial.name for trial in found.trials}) - search.FIRST

    assert [n_others(budget) for budget in (105.0, 235.0, 1e9)] == [0, 1, 6]


def test_time_that_is_left_is_spent_on_further_folds(fake, monkeypatch):
    found = lt.tune(data(4000), 1e9, methods=["one-vs-all"])
    last = [trial for trial in found.trials if trial.fold]
    assert {trial.fold for trial in last} == {1, 2, 3, 4}
    assert all(trial.n_rows == 3200 for trial in last)
    assert "differences over 5 folds" in str(found)
    monkeypatch.setattr(search, "HOPELESS", 0.0)  # all but the best have no chance
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
        return Tuning(trials_of(*scores, noise=noise), "P@1", 40, 2).best.params

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
def test_a_search_ends_with_the_budget(fake, clock, budget):
    lt.tune(data(4000), budget, methods=["one-vs-all"])
    least = search.FIRST * 5.0  # the first candidates are always compared, on 500 rows
    assert sum(trial.seconds for trial in fake) <= max(budget, least)


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
    command = Tuning((trial,), "P@1", 5, 1).command("my train.txt", "model", ["--format", "xmc"])
    words = "longtail train 'my train.txt' model --method one-vs-all --C 0.3333333333333333 --positive-weight 3.0"
    assert command == f"{words} --normalize --format xmc"


def test_the_first_candidate_decides_whether_rows_are_scaled(monkeypatch):
    def params(better: bool) -> list[dict[str, object]]:
        def train(self, method, params, n_rows, fold):
            return Trial(method, params, n_rows, 0.5 + (0.1 if ("normalize" in params) == better else 0.0), 1.0, fold)

        monkeypatch.setattr(search._Search, "train", train)
        found = lt.tune(data(2000, equal=False), 1e9, methods=["one-vs-all"])
        assert found.n_first == search.FIRST + 1
        return [trial.params for trial in found.trials if trial.n_rows == 1600]

    assert equal_lengths(data().X)
    assert not equal_lengths(data(equal=False).X)
    (_, plain), *others = CANDIDATES[: search.FIRST]
    assert params(False)[:4] == [plain, {"normalize": True}, *(each for _, each in others)]
    assert params(True)[:4] == [plain, {"normalize": True}, *({**each, "normalize": True} for _, each in others)]


def test_the_candidates_of_the_chosen_methods():
    assert candidates(["mach"]) == [("mach", {})]
    assert {method for method, _ in CANDIDATES} == {"one-vs-all", "mach", "memoir", "pd-sparse"}


def test_unknown_methods_and_metrics_are_refused():
    with pytest.raises(InputError, match="unknown methods"):
        lt.tune(data(), 1.0, methods=["forest"])
    with pytest.raises(InputError, match="metric 'beauty' is not measured"):
        lt.tune(data(), 1.0, methods=["one-vs-all"], metric="beauty", n_jobs=1)
