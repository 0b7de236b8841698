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


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_again_and_again(tmp_path, expected, kind):
    """Every report of progress but a few ends the run; the next one goes on from what was kept."""
    sessions = 0
    while True:
        reports = 0

        def stop(share):
            nonlocal reports
            reports += 1
            if reports == 8 + 5 * (sessions % 7):
                raise Interrupted

        sessions += 1
        try:
            clf = fit(kind, tmp_path / "run", stop)
        except Interrupted:
            assert sessions < 500
            continue
        break
    assert model_id(clf, tmp_path / "model") == expected(kind)
    assert sessions > (1 if kind in ("mach",) or "one-vs-all" in kind else 3)
