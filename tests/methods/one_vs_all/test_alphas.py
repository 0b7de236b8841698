"""Fits that begin at alphas of an earlier fit, against fits that do not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail as lt
from longtail.compiled import frozen
from longtail.errors import ModelError
from longtail.methods import solving
from longtail.methods.one_vs_all import dual, dual_kernels, lanes, resume_kernels
from longtail.methods.one_vs_all.alphas import earlier_alphas
from longtail.methods.one_vs_all.inputs import label_rows, samples
from longtail.methods.one_vs_all.panel import FULL
from longtail.methods.problem import Extras
from longtail.parallel import Work
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import text_like
from tests.methods.one_vs_all.test_dual import signs


def solved(X, Y, alphas=None, run=None, rough=False, **params):
    """The model, the record and the alphas of a fit that keeps alphas."""
    maker = lt.OneVsAll(**{"prune": 0.0, "n_jobs": 1, **params})
    job = maker._job(X, Y, np.arange(Y.shape[1]), Extras(alphas=alphas, keep_alphas=True, rough=rough))
    return solving.solve(job, lambda share: None, run)


def spread(alphas, rows, n_rows):
    """The alphas after row i became rows[i] of `n_rows` rows."""
    return sp.csr_array((alphas.data, rows[alphas.indices], alphas.indptr), shape=(alphas.shape[0], n_rows))


def rows_of(n):
    """n empty rows."""
    rows, _ = samples(sp.csr_array((n, 5), dtype=np.float32), 1.0)
    return rows


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=60)
def test_a_resumed_lane_has_the_positives_and_then_the_other_rows_of_the_support(seed):
    rng = np.random.default_rng(seed)
    n = 20
    Y = sp.csr_array((rng.random((n, 3)) < 0.3).astype(np.int32))
    signed = sp.csr_array(rng.normal(size=(3, n)) * (rng.random((3, n)) < 0.4), dtype=np.float32)
    space = lanes.DualSpace(rows_of(n), 3, FULL)
    L, positives = space.lanes, label_rows(Y, np.array([1.0, 2.0, 3.0]))
    labels = np.flatnonzero(np.diff(signed.indptr))
    arguments = positives, earlier_alphas(signed, 3), frozen(labels, np.uint64), 0.5, space.cursor, L
    assert resume_kernels.resume(*arguments) == dual_kernels.DONE
    assert space.cursor.tolist() == [len(labels), 0]
    for b, label in enumerate(labels):
        own = Y[:, [label]].toarray().ravel() > 0
        expected = np.zeros(n)
        entries = signed[[label]].toarray().ravel()
        expected = np.maximum(np.where(own, entries, -entries), 0)
        rows = L.rows[L.each["start"][b] :][: L.each["n_rows"][b]]
        assert rows.tolist() == [*np.flatnonzero(own), *np.flatnonzero(~own & (entries != 0))]
        np.testing.assert_array_equal(
            L.alpha[L.each["start"][b] :][: L.each["n_rows"][b]], expected[rows].astype(np.float32)
        )
        assert (L.each["n_positive"][b], L.each["position"][b], L.each["cost"][b]) == (own.sum(), b, 0.5 * (label + 1))
        assert ((L.positive >> b & 1) == own).all()
        assert (np.flatnonzero(L.member >> b & 1) == np.sort(rows)).all()
        assert (L.each["phase"][b], L.each["rounds"][b]) == (dual_kernels.TO_SOLVE, 2)


def test_a_lane_without_room_asks_for_it():
    space = lanes.DualSpace(rows_of(3000), 1, FULL)
    signed = sp.csr_array(np.ones((1, 3000), np.float32))
    positives = label_rows(sp.csr_array((3000, 1), dtype=np.int32), np.ones(1))
    arguments = positives, earlier_alphas(signed, 1), frozen([0], np.uint64), 1.0, space.cursor
    assert resume_kernels.resume(*arguments, space.lanes) == dual_kernels.MORE_ROWS
    space.grow(dual_kernels.MORE_ROWS)
    assert resume_kernels.resume(*arguments, space.lanes) == dual_kernels.DONE
    assert space.lanes.each["n_rows"][0] == 3000


def test_the_codes_of_both_files_agree():
    for name in ("DONE", "MORE_ROWS", "EMPTY", "TO_SOLVE"):
        assert getattr(resume_kernels, name) == getattr(dual_kernels, name)


@pytest.mark.parametrize("dense", [False, True])
def test_kept_alphas_are_a_dual_point_with_the_gap_of_the_record(dense):
    X, Y = text_like(1, n=200, L=12)
    _, record, alphas = solved(X.toarray() + np.float32(0.01) if dense else X, Y, tol=1e-3, C=2.0)
    assert alphas.shape == (12, 200)
    A = ref.augmented(sp.csr_array(X.toarray() + np.float32(0.01)) if dense else X, 1.0)
    for label in range(12):
        y, signed = signs(Y, label), alphas[[label]].toarray().ravel().astype(float)
        alpha = y * signed
        assert (alpha >= 0).all()
        D = alpha.sum() - 0.5 * np.sum((signed @ A) ** 2) - (alpha**2).sum() / (4 * 2.0)
        P = record.figures["objective"][label]
        assert pytest.approx(record.figures["gap"][label], abs=1e-5) == (P - D) / P


def test_rows_that_would_join_the_working_set_have_entries_of_zero():
    X, Y = text_like(1, n=900, L=12)
    model, _, alphas = solved(X, Y, tol=0.05)
    scores = model.scores(X, np.arange(12)).T
    with_entry = np.zeros(alphas.shape, bool)
    with_entry[np.repeat(np.arange(12), np.diff(alphas.indptr)), alphas.indices] = True
    found = with_entry & (alphas.toarray() == 0)
    assert found.any()
    assert (scores[found] > -1.0).all()
    assert not (found & (Y.toarray().T > 0)).any()
    assert (np.diff(alphas.indptr) == with_entry.sum(axis=1)).all()  # no row twice


@pytest.mark.parametrize("dense", [False, True])
def test_a_rough_fit_solves_the_rows_with_entries_and_makes_no_pass(dense, monkeypatch):
    X, Y = text_like(2, n=600, L=10)
    X = sp.csr_array(X.toarray() + np.float32(0.01)) if dense else X
    rest = np.flatnonzero(np.arange(600) % 5 > 0)
    alphas = solved(X, Y).alphas[:, rest]
    X, Y = X[rest], Y[rest]
    monkeypatch.setattr(dual, "verify", None)
    found = solved(X, Y, alphas, rough=True, tol=1e-4)
    A = ref.augmented(X, 1.0)
    for label in range(10):
        y, w = signs(Y, label), found.model.W[[label]].toarray().ravel()
        entries = np.zeros(len(rest), bool)
        entries[alphas.indices[alphas.indptr[label] : alphas.indptr[label + 1]]] = True
        used = entries | (y > 0)
        problem = "squared_hinge", A[used], y[used], 1.0
        assert ref.objective(*problem, w) == pytest.approx(ref.optimum(*problem), rel=1e-3)


def test_labels_without_alphas_are_solved_exactly_in_a_rough_fit_and_blocks_and_threads_change_no_byte():
    X, Y = text_like(4, n=500, L=40)
    rest = np.flatnonzero(np.arange(500) % 4 > 0)
    without = np.arange(40) % 3 == 0
    alphas = sp.csr_array(solved(X, Y).alphas[:, rest] * ~without[:, None])
    alphas.eliminate_zeros()
    X, Y = X[rest], Y[rest]
    one, *others = (
        solved(X, Y, alphas, rough=True, block_size=size, n_jobs=jobs) for size, jobs in ((None, 1), (7, 1), (16, 2))
    )
    for other in others:
        assert (one.model.W != other.model.W).nnz == 0
    exact = solved(X, Y)
    assert (exact.model.W[without] != one.model.W[without]).nnz == 0
    assert (exact.model.W[~without] != one.model.W[~without]).nnz > 0


def test_twins_have_the_alphas_of_their_twin():
    X, Y = text_like(1, n=200, L=5)
    alphas = solved(X, sp.csr_array(sp.hstack([Y, Y[:, [1]]]))).alphas
    np.testing.assert_array_equal(alphas[[1]].toarray(), alphas[[5]].toarray())


def test_a_fit_that_begins_at_its_own_solution_takes_one_more_round():
    X, Y = text_like(2, n=900)
    _, record, alphas = solved(X, Y)
    _, again, _ = solved(X, Y, alphas)
    assert record.n_iter.mean() > 1.5
    assert (again.n_iter == 2).mean() > 0.9
    assert (again.figures["gap"] <= 0.01).all()


@pytest.mark.parametrize("change", ["fewer rows", "more rows", "other labels", "nonsense"])
def test_any_alphas_lead_to_the_certificate(change):
    X, Y = text_like(3, n=300, L=20)
    rng = np.random.default_rng(0)
    n = X.shape[0]
    if change == "fewer rows":
        alphas = solved(X, Y).alphas[:, :200]
        X, Y = X[:200], Y[:200]
    elif change == "more rows":
        rest = np.flatnonzero(rng.random(n) < 0.7)
        alphas = spread(solved(X[rest], Y[rest]).alphas, rest, n)
    elif change == "other labels":
        alphas = solved(X, Y).alphas[rng.permutation(20)]
    else:
        alphas = sp.csr_array(1e3 * rng.normal(size=(20, n)) * (rng.random((20, n)) < 0.3), dtype=np.float32)
    _, record, _ = solved(X, Y, alphas, tol=1e-3)
    assert (record.figures["gap"] <= 1e-3).all()
    _, cold, _ = solved(X, Y, tol=1e-3)
    np.testing.assert_allclose(record.figures["objective"], cold.figures["objective"], rtol=1.1e-3)


def test_some_labels_without_alphas_start_as_usual_and_blocks_and_threads_change_no_byte():
    X, Y = text_like(4, n=500, L=40)
    alphas = sp.csr_array(solved(X, Y).alphas * (np.arange(40) % 3 > 0)[:, None].astype(np.float32))
    alphas.eliminate_zeros()
    alphas = spread(alphas, np.arange(500)[::-1].copy(), 500)  # so that there is work to do
    one, *others = (
        solved(X, Y, alphas, block_size=size, n_jobs=jobs) for size, jobs in ((None, 1), (7, 1), (1, 2), (16, 2))
    )
    for other in others:
        assert (one.model.W != other.model.W).nnz == 0
        assert (one.alphas != other.alphas).nnz == 0
        np.testing.assert_array_equal(one.record.n_iter, other.record.n_iter)
    cold = solved(X, Y)
    without = np.arange(40) % 3 == 0
    assert (cold.model.W[without] != one.model.W[without]).nnz == 0


def test_alphas_survive_a_run_folder_and_are_part_of_its_identity(tmp_path):
    X, Y = text_like(4, n=200, L=10)
    memory, folder = solved(X, Y), solved(X, Y, run=tmp_path / "run")
    assert (memory.alphas != folder.alphas).nnz == 0
    with pytest.raises(ModelError, match="earlier parts was null"):
        solved(X, Y, memory.alphas, run=tmp_path / "run")


def test_parts_carry_alphas_only_if_asked():
    X, Y = text_like(1, n=100, L=5)
    problem = lt.OneVsAll()._problem(X, Y)
    (block,) = problem.blocks()
    assert set(problem.solve(block, Work()).arrays) == {"data", "indices", "indptr"}
    assert problem.stack().kept() is None


def test_labels_solved_by_newton_have_no_alphas():
    X, Y = text_like(1, n=100, L=5)
    assert solved(X, Y, solver="newton").alphas.nnz == 0
    few = solved(X, Y, tol=1e-9)
    assert few.alphas.shape == (5, 100)
    assert few.record.converged.all()
