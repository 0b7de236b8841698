"""The problem of PD-Sparse on the seam: one pure block whose part survives a disk."""

from __future__ import annotations

import json

import numpy as np
import pytest

import longtail as lt
from longtail.methods.pd_sparse.problem import LATER_PASS, POST_PASS, PDSparseProblem, pairs_to_try
from longtail.methods.pd_sparse.stages import STAGES
from longtail.parallel import Work
from tests.methods.mach.test_problem import solved, through_disk
from tests.methods.one_vs_all.problems import text_like
from tests.store.samples import assert_same_model


def problem(**params) -> PDSparseProblem:
    return lt.PDSparse(**{"C": 5.0, "max_iter": 2, **params})._problem(*text_like(7, n=300, d=200, L=120))


def test_solving_twice_through_a_disk_and_on_several_threads_gives_the_same_bytes():
    whole = problem(bias=0.5)
    expected = solved(whole)
    assert expected.W.shape == (120, 201)
    for n_jobs in (1, 2, 4):
        assert_same_model(solved(whole, n_jobs=n_jobs), expected)
    assert_same_model(solved(problem(bias=0.5), change=lambda parts: [through_disk(part) for part in parts]), expected)
    assert [block.items.tolist() for block in whole.blocks()] == [[0]]
    assert whole.item_of().tolist() == [0]


def test_figures_have_an_entry_per_pass():
    whole = problem(C=[1, 10])
    part = whole.solve(whole.blocks()[0], Work())
    passes = {name: len(values) for name, values in part.figures.items() if name.startswith("pass_")}
    assert len(passes) == 8
    assert len(set(passes.values())) == 1
    assert (part.figures["C"].shape, part.figures["lam"].shape) == ((1,), (1,))
    assert part.figures["C"][0] in (1.0, 10.0)


def test_settings_are_plain_values_of_resolved_parameters():
    settings = problem(C="auto", max_iter=None, search="exact").settings
    assert json.loads(json.dumps(settings)) == settings
    assert settings["C"] == [1.0, 10.0]
    assert settings["lam"] == pytest.approx([0.02, 0.2])
    assert settings["max_iter"] == 100
    assert settings["early_stopping"] is True
    assert (settings["path"], settings["post_solve"]) == ("probe:rows=4000,passes=2", "auto:passes=1")
    assert problem(validation_fraction=0.01).settings["early_stopping"] is False  # too few rows to hold out


def test_a_plan_chooses_a_pair_quickly_even_if_training_compares_them_in_full():
    settled = problem(C=(1e-4, 5.0), path="full", max_iter=50).settled(1)
    assert settled.parameters.C == [5.0]
    assert settled.pairs == [(5.0, 0.1)]


def test_the_effort_of_a_plan_counts_the_passes_that_training_does():
    """Visits of the passes in the record, each with the time that plans assume, against the planned visits."""
    whole = problem(C=[1, 10], max_iter=4, tol=0.0, n_iter_no_change=9, validation_fraction=0.2)
    figures = whole.solve(whole.blocks()[0], Work()).figures
    stages, rows = figures["pass_stage"], figures["pass_rows"]
    first = np.flatnonzero(np.append(True, np.diff(stages) > 0) | (np.append(0, np.diff(figures["pass_C"])) != 0))
    price = np.full(len(rows), LATER_PASS)
    price[first] = 1.0
    price[stages == STAGES.index("post-solve")] = POST_PASS
    planned = 4 * 2 * (len(whole.training) + len(whole.held_out.rows))  # the refit starts at zero
    real = (price * rows)[stages != STAGES.index("post-solve")].sum() + 1.5 * POST_PASS * rows[-1]
    n_refits = (stages == STAGES.index("refit")).sum()
    missing = LATER_PASS * (4 - n_refits) * rows.max()  # passes of the refit that training found needless
    assert whole.effort(1.0) == pytest.approx((real + missing) / planned, rel=0.02)
    assert whole.effort(0.001) < whole.effort(0.01) < whole.effort(1.0)  # the first visits are slow
    assert problem(early_stopping=False).effort(0.5) == 1.0


def test_held_out_rows_have_a_loss_and_are_not_trained_on():
    whole = problem(validation_fraction=0.3)
    rows = np.concatenate([whole.training, whole.held_out.rows])
    np.testing.assert_array_equal(np.sort(rows), whole.samples.with_loss)
    assert len(whole.held_out.rows) == int(0.3 * len(rows))


def test_pairs_have_rising_C_and_falling_lam():  # noqa: N802 - the symbol
    assert pairs_to_try([3, 1], [0.1, 5], can_compare=True) == [(1, 5), (1, 0.1), (3, 5), (3, 0.1)]
    assert pairs_to_try(None, [1.0], can_compare=True) == [(1.0, 1.0), (10.0, 1.0)]
    assert pairs_to_try(None, None, can_compare=False) == [(10.0, 0.2)]
