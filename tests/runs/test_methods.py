"""All methods: interrupted anywhere, each goes on and ends with the model of an uninterrupted fit, byte for byte."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from sklearn.exceptions import ConvergenceWarning

from longtail import runs
from longtail.runs.run import State
from tests.runs.problems import KINDS, fit, model_id
from tests.runs.ray_cluster import three_nodes

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """kind -> the name of the model of an uninterrupted fit without a run folder."""
    place, found = tmp_path_factory.mktemp("expected"), {}

    def of(kind):
        if kind not in found:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found[kind] = model_id(fit(kind), place / kind)
        return found[kind]

    return of


class OutOfPatienceError(Exception):
    """What a callback of a user may raise."""


class Patience:
    """A callback that fails after some calls."""

    def __init__(self, calls):
        self.calls = calls

    def __call__(self, share):
        self.calls -= 1
        if self.calls < 0:
            raise OutOfPatienceError


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_again_and_again(tmp_path, expected, monkeypatch, kind):
    """Each session ends after a number of reports of progress; the next one goes on from what was kept."""
    clf, saved, used = None, State.saved, []

    def counted(self):
        state = saved(self)
        used.append(state is not None)
        return state

    monkeypatch.setattr(State, "saved", counted)
    for session in range(500):
        patience = Patience(3 + 20 * session)
        try:
            clf = fit(kind, tmp_path / "run", patience)
        except OutOfPatienceError:
            continue
        break
    assert model_id(clf, tmp_path / "model") == expected(kind)
    assert session > 0
    assert any(used) == (kind.startswith(("pd-sparse", "memoir")))  # the others have blocks enough


def test_a_short_soak_loses_nothing():
    """The driver is killed a few times, in a process of its own; `make soak` does it for every method, and longer."""
    words = ["--kills", "4", "--rounds", "1", "--seed", "1", "--only", "driver", "flips"]
    kinds = ["--kinds", "one-vs-all", "pd-sparse", "memoir", "mach"]
    command = [sys.executable, "-m", "tests.runs.soak", *words, *kinds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.startswith("driver, ") and line.endswith("lost: 0")]) == 4
    assert lines[-1] == "lost: 0"


def test_a_ray_node_is_killed(tmp_path, expected):
    pytest.importorskip("ray")
    with three_nodes() as cluster:
        killed = []

        def progress(share):
            if not killed and runs.status(tmp_path / "run").n_done >= 1:
                killed.append(share)
                cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)

        clf = fit("one-vs-all", tmp_path / "run", progress, workers=f"ray:{cluster.address}")
    assert killed
    assert model_id(clf, tmp_path / "model") == expected("one-vs-all")
