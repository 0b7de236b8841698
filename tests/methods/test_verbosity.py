"""verbose: lines about the progress of a fit, for every method, and no other effect."""

from __future__ import annotations

import re

import numpy as np
import pytest

import longtail as lt
from longtail import compiled
from longtail.errors import InputError
from longtail.methods import METHODS, verbosity
from tests.methods.one_vs_all.problems import text_like

SMALL = {"mach": {"n_buckets": 4, "n_repetitions": 2}}


@pytest.fixture(params=METHODS)
def make(request):
    cls = METHODS[request.param]
    return lambda **more: cls(**SMALL.get(request.param, {}), n_jobs=1, **more)


@pytest.fixture(scope="module")
def data():
    X, Y = text_like(0, n=60, d=20, L=5)
    return X, Y[:, np.asarray(Y.sum(axis=0)).ravel() > 0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_lines_are_printed_if_asked_for_and_change_nothing(make, data, capsys, monkeypatch):
    silent = make().fit(*data)
    assert capsys.readouterr().out == ""
    make(verbose=1).fit(*data)
    said = [line for line in capsys.readouterr().out.splitlines() if "compiling" not in line]
    assert len(said) == 1
    assert re.fullmatch(rf"\[{type(silent).__name__}\] done in [\d.]+ s", said[0])
    monkeypatch.setattr(verbosity, "SECONDS", (1e9, 0.0))
    seen = []
    clf = make(verbose=2).fit(*data, progress=seen.append)
    said = capsys.readouterr().out.splitlines()
    assert any(re.fullmatch(r"\[\w+\] \d+% after [\d.]+ s, about [\d.]+ s left", line) for line in said)
    assert seen[-1] == 1.0
    for x in (data[0][:10], data[0][10:20]):
        assert clf.predict_topk(x) == silent.predict_topk(x)


def test_an_update_prints_too(data, capsys):
    lt.OneVsAll(verbose=True).fit(*data).update(*data)
    assert capsys.readouterr().out.count("[OneVsAll] done in") == 2


def test_compiling_is_told_once(capsys):
    with verbosity.shown(lt.Mach(verbose=1), None):
        for _ in range(3):
            for watcher in compiled.watchers:
                watcher()
    assert capsys.readouterr().out.startswith("[Mach] compiling kernels, once\n[Mach] done in")
    assert not compiled.watchers


def test_a_model_is_saved_without_it_and_a_run_is_the_same(data, tmp_path):
    lt.OneVsAll(verbose=1).fit(*data, run=tmp_path / "run").save(tmp_path / "model")
    assert lt.load(tmp_path / "model").verbose == 0
    lt.OneVsAll(verbose=0).fit(*data, run=tmp_path / "run")  # goes on, although `verbose` is another


@pytest.mark.parametrize("value", [-1, 0.5, "yes", None])
def test_other_values_are_refused(make, value):
    with pytest.raises(InputError, match=r"The 'verbose' parameter of .* must be 0 for no output, or 1 or more"):
        make(verbose=value).fit([[1.0]], ["a"])
