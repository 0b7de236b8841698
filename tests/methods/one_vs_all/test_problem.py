"""The problem of one-vs-all: what labels share, blocks, and the settings that it writes down."""

from __future__ import annotations

import gc
import json
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail as lt
from longtail.methods.one_vs_all import label_tree, newton, starts
from longtail.methods.one_vs_all.order import ROOT, subtree_blocks
from longtail.methods.one_vs_all.starts import ova_primal
from longtail.parallel import Stopped, Work
from tests.methods.one_vs_all.problems import problem_of, random_problem, text_like


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=12), st.booleans())
@settings(deadline=None)
def test_twins_are_the_first_label_on_the_same_rows_with_the_same_weight(columns, with_weights):
    Y = sp.csr_array(np.array(columns, np.int32).T)
    weights = [1.0 + (label % 2) * with_weights for label in range(len(columns))]
    problem = problem_of(sp.csr_array(np.eye(4, dtype=np.float32)), Y, positive_weight=weights)
    keys = [(*column, weight) for column, weight in zip(columns, weights, strict=True)]
    assert problem.item_of().tolist() == [keys.index(key) for key in keys]


@pytest.mark.parametrize("start", ["msi", "tree"])
@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_every_label_but_the_twins_is_in_exactly_one_block(solver, start):
    X, Y = text_like(2, n=120, d=80, L=30)
    problem = problem_of(X, sp.csr_array(sp.hstack([Y, Y[:, [3, 1]]])), solver=solver, start=start, block_size=4)
    blocks = problem.blocks()
    assert [block.number for block in blocks] == list(range(len(blocks)))
    assert sorted(np.concatenate([block.items for block in blocks]).tolist()) == list(range(30))
    assert problem.item_of()[30:].tolist() == [3, 1]


@given(st.lists(st.integers(-1, 10**6), min_size=1, max_size=80), st.integers(1, 20))
@settings(deadline=None)
def test_blocks_are_whole_subtrees(draws, size):
    parent = np.array([ROOT if draw < 0 or label == 0 else draw % label for label, draw in enumerate(draws)])
    parent = label_tree.cut(np.arange(len(parent)), parent, 12)
    blocks = subtree_blocks(np.arange(len(parent)), parent, size)
    assert sorted(np.concatenate(blocks).tolist()) == list(range(len(parent)))
    assert max(map(len, blocks)) < size + 12
    for block in blocks:
        assert set(parent[block].tolist()) <= {ROOT, *block.tolist()}


def test_without_a_tree_blocks_are_ranges():
    labels = np.array([0, 1, 3, 4, 6, 9, 10])
    blocks = subtree_blocks(labels, np.full(11, ROOT), 3)
    assert [block.tolist() for block in blocks] == [[0, 1, 3], [4, 6, 9], [10]]


def test_what_labels_share_is_made_once(monkeypatch):
    X, Y = text_like(2, n=120, d=80, L=30)
    made = []

    def counted(module, name):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **options: (made.append(name), original(*args, **options))[1])

    counted(ova_primal, "all_negative")
    counted(label_tree, "spanning_tree")
    lt.OneVsAll(start="tree", solver="newton", block_size=3).fit(X, Y)
    assert made == ["all_negative", "spanning_tree"]


def test_a_problem_is_freed_with_its_last_reference():
    """A cycle of references would keep normalised rows in memory until the garbage collector comes."""
    gc.disable()
    try:
        for start in starts.STARTS:
            problem = problem_of(*random_problem(1), start=start)
            gone = weakref.ref(problem)
            del problem
            assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("params", "resolved"),
    [
        ({}, {"solver": "dual", "tol": 0.01, "start": "msi:s=1.0,t=-1.1", "block_size": 512}),
        ({"solver": "newton"}, {"solver": "newton", "tol": 0.01, "start": "msi:s=1.0,t=-2.0", "block_size": 256}),
        ({"loss": "logistic", "start": "msi:s=2"}, {"solver": "sampled-newton", "start": "msi:s=2.0,t=-3.0"}),
        ({"start": "tree", "tol": 1}, {"start": "tree:stop=loose", "tol": 1.0}),
        ({"start": "zero", "block_size": 5}, {"start": "zero", "block_size": 5}),
        ({"bias": 1e7}, {"solver": "newton"}),  # beyond float32
        ({"positive_weight": [2.0] * 7}, {"positive_weight": 2.0}),
        ({"positive_weight": np.arange(1, 8)}, {"positive_weight": "one per label"}),
        ({"random_state": 7}, {"seed": 7}),
        ({"random_state": None}, {"seed": 0}),
    ],
)
def test_settings_are_resolved_plain_values(params, resolved):
    X, Y = random_problem(1)
    found = problem_of(X, Y, **params).settings
    assert {name: found[name] for name in resolved} == resolved
    assert None not in found.values()
    assert json.loads(json.dumps(found)) == found


def test_a_resolved_start_is_a_valid_parameter():
    X, Y = random_problem(1)
    for start in starts.STARTS:
        text = problem_of(X, Y, start=start).settings["start"]
        assert problem_of(X, Y, start=text).settings["start"] == text


@pytest.mark.parametrize("params", [{"tol": 1e-9}, {"solver": "newton", "start": "tree"}, {}])
def test_blocks_report_how_far_they_are_and_can_be_stopped(params):
    X, Y = text_like(4)
    problem, seen = problem_of(X, Y, **params), []
    (block,) = problem.blocks()
    problem.solve(block, Work(1, seen.append))
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert 0 <= seen[0] <= seen[-1] <= 1

    def stop(share):
        raise Stopped

    with pytest.raises(Stopped):
        problem.solve(block, Work(1, stop))


def test_labels_that_the_dual_solver_gives_to_newton_can_be_stopped(monkeypatch):
    problem, begun = problem_of(*text_like(4), tol=1e-9), []
    solve = newton.solve
    monkeypatch.setattr(newton, "solve", lambda *args, **options: (begun.append(True), solve(*args, **options))[1])
    monkeypatch.setattr(newton.kernels, "newton_block", lambda *args: pytest.fail("Newton was not stopped"))

    def report(share):
        if begun:
            raise Stopped

    with pytest.raises(Stopped):
        problem.solve(problem.blocks()[0], Work(1, report))
