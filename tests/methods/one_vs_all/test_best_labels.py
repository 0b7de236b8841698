"""Scores of held-out rows by the dual solver, against fits without these rows and slow twins."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import longtail as lt
from longtail.compiled import frozen
from longtail.errors import ModelError
from longtail.methods import solving
from longtail.methods.one_vs_all import best_labels, best_labels_kernels, dual_kernels, lanes, settle_kernels
from longtail.methods.one_vs_all.best_labels import BestLabels, keys_of, labels_of, scores_of, with_twins
from longtail.methods.one_vs_all.inputs import samples, some_rows
from longtail.methods.one_vs_all.lane_intrinsics import LABEL_LANES
from longtail.methods.one_vs_all.panel import FULL, SHORT
from longtail.methods.problem import Extras, Folds
from longtail.parallel import Work
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import text_like
from tests.methods.one_vs_all.test_dual import signs
from tests.methods.one_vs_all.test_dual_kernels import as_floats, elements, in_form, random_problem


def folds_of(n, number=1, depth=5):
    """Every (number + 3)-th row is held out, and scored, in one of the folds."""
    fold_of = np.arange(n, dtype=np.int32) % (number + 3)
    fold_of[fold_of >= number] = -1
    return Folds(fold_of, tuple(np.flatnonzero(fold_of == fold) for fold in range(number)), depth)


def solved(X, Y, folds=None, run=None, **params):
    maker = lt.OneVsAll(**{"prune": 0.0, "n_jobs": 1, **params})
    return solving.solve(maker._job(X, Y, np.arange(Y.shape[1]), Extras(folds=folds)), lambda share: None, run)


def scored(top, n_labels):
    """The scores of a TopK that has all labels, as a dense array."""
    scores = np.full((len(top), n_labels), np.nan)
    np.put_along_axis(scores, top.labels.astype(np.int64), top.scores, axis=1)
    return scores


# --- keys ------------------------------------------------------------------------------------------------------------

a_score = st.floats(width=32, allow_nan=False)


@given(st.lists(st.tuples(a_score, st.integers(0, 2**31 - 1)), min_size=2, max_size=20))
@settings(deadline=None)
def test_keys_have_the_order_of_scores_and_then_of_labels(pairs):
    scores = np.array([score for score, _ in pairs], np.float32) + np.float32(0.0)  # -0.0 would come after 0.0
    labels = np.array([label for _, label in pairs], np.int32)
    keys = keys_of(scores, labels)
    np.testing.assert_array_equal(scores_of(keys), scores)
    np.testing.assert_array_equal(labels_of(keys), labels)
    by_key = sorted(zip(keys.tolist(), scores.tolist(), labels.tolist(), strict=True), reverse=True)
    assert [each[1:] for each in by_key] == sorted(zip(scores.tolist(), labels.tolist(), strict=True),
                                                   key=lambda each: (-each[0], each[1]))  # fmt: skip
    assert (keys > best_labels.NONE).all()


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 90))
@settings(deadline=None, max_examples=60)
def test_the_best_keys_are_kept_in_any_order_of_arrival(seed, depth, n_labels):
    rng = np.random.default_rng(seed)
    scores = rng.choice(np.array([-1.0, 0.0, 0.5, 2.0], np.float32), size=(7, n_labels))  # many ties
    labels = np.broadcast_to(np.arange(n_labels), scores.shape)
    keys = keys_of(scores, labels)[:, rng.permutation(n_labels)]
    best = BestLabels(Folds(np.zeros(7, np.int32), (np.arange(7),), depth))
    for piece in np.array_split(keys, rng.integers(1, 6), axis=1):
        best.add(piece)
    expected = np.sort(keys, axis=1)[:, ::-1][:, :depth]
    np.testing.assert_array_equal(best.best(), expected)
    limit = best.kept.limit
    np.testing.assert_array_equal(limit, scores_of(expected[:, -1]) if n_labels >= depth else np.full(7, -np.inf))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 9))
@settings(deadline=None)
def test_a_heap_has_the_largest_keys_and_the_least_of_them_first(keys, depth):
    heap = np.zeros(depth, np.uint64)
    for number, key in enumerate(keys, 1):
        if key > heap[0]:
            best_labels_kernels.replace_least(heap, np.uint64(key))
        largest = sorted([*keys[:number], *[0] * depth], reverse=True)[:depth]
        assert sorted(heap.tolist(), reverse=True) == largest
        assert heap[0] == largest[-1]


@given(st.integers(0, 1000), st.integers(1, 8), st.booleans())
@settings(deadline=None, max_examples=60)
def test_labels_have_the_scores_of_their_twins(seed, depth, alone):
    rng = np.random.default_rng(seed)
    n_labels = 12
    twins = np.arange(n_labels)
    if not alone:
        for label in range(1, n_labels):
            if rng.random() < 0.4:
                twins[label] = twins[rng.integers(0, label)]
    own = np.unique(twins)
    scores = np.zeros((5, n_labels), np.float32)
    scores[:, own] = rng.choice(np.array([-1.0, 0.0, 0.5, 2.0], np.float32), size=(5, len(own)))
    keys = np.sort(keys_of(scores[:, own], np.broadcast_to(own, (5, len(own)))), axis=1)[:, ::-1]
    found = with_twins(keys[:, :depth], twins, depth)
    everything = scores[:, twins]
    order = np.lexsort((np.broadcast_to(np.arange(n_labels), everything.shape), -everything), axis=1)[:, :depth]
    np.testing.assert_array_equal(found.labels, order)
    np.testing.assert_array_equal(found.scores, np.take_along_axis(everything, order, axis=1))


# --- kernels ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.sampled_from(["sparse", "dense", "hybrid"]), st.sampled_from([SHORT, FULL]),
       st.sampled_from([None, np.uint64(3)]), st.sampled_from([-np.inf, 0.3]))  # fmt: skip
@settings(deadline=None, max_examples=80)
def test_score_rows_equals_its_twin(seed, form, panel_type, ahead, limit):
    rng = np.random.default_rng(seed)
    X, _ = random_problem(seed, n=int(rng.integers(4, 30)), d=8)
    rows, columns = samples(in_form(X, form), 1.0)
    space = lanes.DualSpace(rows, 1, panel_type)
    L = space.lanes
    L.panel[:] = elements(rng.normal(size=L.panel.shape), panel_type)
    L.dense_panel[:] = rng.normal(size=L.dense_panel.shape)
    L.offset[:] = rng.normal(size=LABEL_LANES)
    L.each["phase"] = rng.choice([dual_kernels.EMPTY, dual_kernels.TO_SOLVE, dual_kernels.TO_HOLD_OUT], LABEL_LANES)
    L.each["position"] = rng.permutation(LABEL_LANES)
    labels = rng.permutation(1000)[:LABEL_LANES].astype(np.uint64)
    chosen, depth = np.sort(rng.permutation(X.shape[0])[:3]), int(rng.integers(1, 40))
    before = keys_of(rng.normal(size=(3, 6)).astype(np.float32), np.arange(2000, 2006) + np.zeros((3, 1), int))
    best = BestLabels(Folds(np.zeros(3, np.int32), (np.arange(3),), depth), np.full(3, limit, np.float32))
    best.add(before)
    order = frozen([2, 0, 1], np.uint32)
    best_labels_kernels.score_rows(
        some_rows(rows, chosen), order, frozen(labels, np.uint64), L, best.of_fold(0), space.pass_scratch, ahead
    )
    weights = np.concatenate([as_floats(L.panel).astype(float), L.dense_panel])
    z = X.toarray()[chosen][:, columns[:8]].astype(float) @ weights + L.offset
    holds = np.flatnonzero(L.each["phase"] == dual_kernels.TO_HOLD_OUT)
    new = keys_of(z[:, holds].astype(np.float32), np.broadcast_to(labels[L.each["position"][holds]], (3, len(holds))))
    assume(np.abs(scores_of(new) - np.float32(limit)).min(initial=1) > 1e-3)
    new = np.where(scores_of(new) >= limit, new, best_labels.NONE)
    for found, least, *keys in zip(best.best(), best.kept.limit, before, new, strict=True):
        found = found[found > best_labels.NONE]
        expected = np.sort(np.concatenate(keys))[::-1][:depth]
        expected = expected[expected > best_labels.NONE]
        np.testing.assert_allclose(scores_of(found), scores_of(expected), atol=1e-4)
        assert least == max(np.float32(limit), scores_of(found[-1:])[0] if len(found) == depth else -np.inf)
        apart = np.diff(scores_of(expected)).max(initial=-1) < -1e-3
        assert not apart or (labels_of(found) == labels_of(expected)).all()


def test_keys_of_kernels_are_those_of_arrays():
    rows, _ = samples(sp.csr_array((1, 3), dtype=np.float32), 1.0)
    L = (space := lanes.DualSpace(rows, 1, FULL)).lanes
    L.each["phase"], L.each["position"] = dual_kernels.TO_HOLD_OUT, np.arange(LABEL_LANES)
    L.offset[:] = np.linspace(-3, 3, LABEL_LANES)
    best = BestLabels(Folds(np.zeros(1, np.int32), (np.arange(1),), LABEL_LANES))
    labels = frozen(7 * np.arange(LABEL_LANES), np.uint64)
    best_labels_kernels.score_rows(rows, frozen([0], np.uint32), labels, L, best.of_fold(0), space.pass_scratch, None)
    np.testing.assert_array_equal(best.best()[0, ::-1], keys_of(L.offset, labels.astype(np.int32)))
    assert best.kept.limit[0] == L.offset[0]


def test_the_phases_of_all_files_agree():
    assert best_labels_kernels.TO_HOLD_OUT == settle_kernels.TO_HOLD_OUT == dual_kernels.TO_HOLD_OUT


# --- fits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("number", [1, 3])
def test_held_out_rows_are_scored_by_the_optimum_without_them(form, number):
    """Of so few rows, all are in the working set of every label."""
    X, Y = text_like(1, n=90, L=8)
    X = X if form == "sparse" else sp.csr_array(X.toarray() + np.float32(0.01))
    folds = folds_of(90, number, depth=8)
    found = solved(X, Y, folds, tol=1e-4, C=2.0).held_out
    A = ref.augmented(X, 1.0)
    for fold, top in enumerate(found):
        rest, rows = folds.fold_of != fold, folds.to_score[fold]
        scores = scored(top, 8)
        for label in range(8):
            y = signs(Y, label)
            if (y[rest] > 0).any():
                w = ref.newton("squared_hinge", A[rest], y[rest], 2.0, np.zeros(A.shape[1]), 1e-9, 100)[0]
                np.testing.assert_allclose(scores[:, label], A[rows] @ w, atol=0.04)


def test_a_label_that_only_held_out_rows_have_scores_minus_one():
    X, Y = text_like(1, n=90, L=8)
    Y = sp.lil_array(Y)
    Y[:, [3]] = 0
    Y[0, 3] = 1  # held out in fold 0
    (top,) = solved(X, sp.csr_array(Y), folds_of(90, depth=8)).held_out
    assert (scored(top, 8)[:, 3] == -1).all()


def test_small_weights_are_cut_as_in_the_model():
    X, Y = text_like(2, n=90, L=8)
    folds = Folds(np.full(90, -1, np.int32), (np.arange(90),), 8)  # no row is left out, but all are scored
    for prune in (0.0, 0.1):
        found = solved(X, Y, folds, tol=1e-3, prune=prune)
        np.testing.assert_allclose(scored(found.held_out[0], 8), found.model.scores(X, np.arange(8)), atol=0.05)
    assert found.model.W.nnz < solved(X, Y).model.W.nnz


@pytest.mark.parametrize("panel_tol", [0.01, 1e-5])
def test_blocks_threads_and_run_folders_change_no_byte(panel_tol, tmp_path):
    X, Y = text_like(4, n=500, L=40)
    folds = folds_of(500, 2)
    plain = solved(X, Y, tol=panel_tol)
    one, *others = (
        solved(X, Y, folds, run, tol=panel_tol, block_size=size, n_jobs=jobs)
        for size, jobs, run in ((None, 1, None), (7, 1, None), (16, 2, None), (16, 2, tmp_path / "run"))
    )
    assert plain.held_out is None
    assert (one.model.W != plain.model.W).nnz == 0
    for other in others:
        assert (one.model.W != other.model.W).nnz == 0
        assert all(a == b for a, b in zip(one.held_out, other.held_out, strict=True))


def test_later_blocks_keep_only_what_may_be_among_the_best():
    """Each block alone keeps the best labels of all its labels; after others, it keeps fewer, and the result is the
    same."""
    X, Y = text_like(4, n=500, L=40)
    folds = folds_of(500)
    job = lt.OneVsAll(n_jobs=1, block_size=8)._job(X, Y, np.arange(40), Extras(folds=folds))
    problem, kept = job.problem, []
    for alone in (False, True):
        best = BestLabels(folds)
        parts = []
        for block in problem.blocks():
            if alone:
                problem.limit[:] = -np.inf
            parts.append(problem.solve(block, Work()).arrays["best"])
            best.add(parts[-1])
        kept.append((best.best(), sum((part > best_labels.NONE).sum() for part in parts)))
        problem.limit[:] = -np.inf
    np.testing.assert_array_equal(kept[0][0], kept[1][0])
    assert kept[0][1] < 0.7 * kept[1][1]


def test_a_run_folder_is_not_resumed_with_other_folds(tmp_path):
    X, Y = text_like(4, n=200, L=10)
    solved(X, Y, folds_of(200), tmp_path / "run")
    with pytest.raises(ModelError, match="holds another run: earlier parts"):
        solved(X, Y, folds_of(200, 2), tmp_path / "run")


def test_lanes_are_empty_afterwards():
    X, Y = text_like(3, n=400, L=50)
    maker = lt.OneVsAll(n_jobs=1)
    job = maker._job(X, Y, np.arange(50), Extras(folds=folds_of(400, 2)))
    solving.solve(job, lambda share: None)
    spaces = job.problem.idle_spaces[SHORT]
    assert spaces
    for space in spaces:
        L, s = space.lanes, space.scratch
        assert not any(array.any() for array in (L.panel, L.users, L.member, L.positive, s.w, s.w_dense))
        assert not L.each["n_rows"].any()
        assert (L.each["phase"] == dual_kernels.EMPTY).all()


def test_labels_that_newton_solves_leave_no_scores():
    X, Y = text_like(1, n=90, L=8)
    assert solved(X, Y, folds_of(90), tol=1e-9).held_out is None
    assert solved(X, Y, folds_of(90), solver="newton").held_out is None


def test_twins_have_the_scores_of_their_twin():
    X, Y = text_like(1, n=90, L=5)
    (top,) = solved(X, sp.csr_array(sp.hstack([Y, Y[:, [1]]])), folds_of(90, depth=6)).held_out
    scores = scored(top, 6)
    np.testing.assert_array_equal(scores[:, 1], scores[:, 5])
