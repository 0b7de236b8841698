"""All methods: interrupted anywhere, each goes on and ends with the model of an uninterrupted fit, byte for byte."""

from __future__ import annotations

import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning

from tests.runs.problems import KINDS, fit, model_id

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
def test_interrupted_again_and_again(tmp_path, expected, kind):
    """Each session ends after a number of reports of progress; the next one goes on from what was kept."""
    clf = None
    for session in range(500):
        patience = Patience(3 + 20 * session)
        try:
            clf = fit(kind, tmp_path / "run", patience)
        except OutOfPatienceError:
            continue
        break
    assert model_id(clf, tmp_path / "model") == expected(kind)
    assert session > 0
