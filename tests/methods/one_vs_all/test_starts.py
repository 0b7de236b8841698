"""The starts: each is its formula, is reached by a string, and the tree of labels is what Algorithm 1 says."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import longtail as lt
from longtail import metrics
from longtail.cli import train as train_verb
from longtail.errors import InputError
from longtail.methods.one_vs_all import newton, starts
from longtail.methods.one_vs_all.newton import LOSSES, Newton
from longtail.methods.one_vs_all.problem import Problem
from longtail.methods.one_vs_all.starts import base, msi, tree
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import problems, random_problem, start_of, text_like

labelings = st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=14)
binary_rows = st.builds(lambda columns: np.array(columns, np.int32).T, labelings)


def signs(Y, label):
    return np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)


def guess(spec, problem, labels, **task):
    W = np.full((len(labels), problem.D), 7.0)
    start_of(spec, problem, **task).guess(np.array(labels), W)
    return W


def labels_only(dense):
    """The problem of an indicator; X does not matter."""
    dense = np.asarray(dense, np.int32)
    return Problem.of(sp.csr_array(np.eye(len(dense), dtype=np.float32)), sp.csr_array(dense), 1.0)


def newton_of(X, Y, spec, *, prune=0.01, tol=0.01):
    problem = Problem.of(X, Y, 1.0)
    return Newton(problem, start_of(spec, problem, tol=tol), "squared_hinge", 1.0, tol, 100, prune)


# --- names and options -----------------------------------------------------------------------------------------------


def test_options_are_read_from_the_string():
    assert starts.parse("msi", 0.0) == (starts.STARTS["msi"], {})
    assert starts.parse("msi:t=-3", 0.0) == (starts.STARTS["msi"], {"t": -3.0})
    assert starts.parse("msi: s=0.5, t=-1e1", 0.0)[1] == {"s": 0.5, "t": -10.0}
    assert starts.parse("bias:factor=0.9", 1.0) == (starts.STARTS["bias"], {"factor": 0.9})
    assert starts.parse("ova-primal:stop=strict", 0.0)[1] == {"stop": "strict"}
    assert starts.parse("tree:stop=loose", 0.0)[1] == {"stop": "loose"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("msi:u=1", "OneVsAll: 'msi' takes 's' and 't'. Got 'msi:u=1' instead of a form like 'msi:s=1,t=-3'."),
        ("msi:", "OneVsAll: 'msi' takes 's' and 't'. Got 'msi:' instead of a form like 'msi:s=1,t=-3'."),
        ("zero:t=1", "The 'start' parameter of OneVsAll: 'zero' takes no options. Got 'zero:t=1' instead"),
        ("msi:t=low", "The 'start' parameter of OneVsAll: the option 't' must be a number. Got 'low' instead."),
        ("msi:t=nan", "the option 't' must be a number. Got 'nan' instead."),
        ("msi:t", "the option 't' must be a number. Got '' instead."),
        ("tree:stop=1", "the option 'stop' must be 'loose' or 'strict'. Got '1' instead."),
        ("Msi", "must be one of 'msi', 'zero', 'bias', 'ova-primal', 'tree'. Got 'Msi' instead."),
    ],
)
def test_wrong_options_are_told_before_any_work(spec, message):
    clf = lt.OneVsAll(start=spec)
    with pytest.raises(InputError) as error:
        clf.check_parameters()
    assert message in str(error.value)


def test_the_bias_start_needs_a_bias_feature():
    with pytest.raises(InputError, match="start='bias' needs a bias feature, but bias=0; set bias=1, or use start='m"):
        lt.OneVsAll(start="bias", bias=0).fit([[1.0]], ["a"])


def test_a_start_with_options_is_a_parameter_like_any_other(tmp_path):
    X, Y = random_problem(3, n=40)
    clf = lt.OneVsAll(solver="newton", start="bias:factor=0.9")
    assert clone(clf).get_params()["start"] == "bias:factor=0.9"
    assert train_verb.estimator_of("one-vs-all", {"start": "bias:factor=0.9"}).start == "bias:factor=0.9"
    clf.fit(X, Y).save(tmp_path / "model")
    assert lt.load(tmp_path / "model").start == "bias:factor=0.9"
    y = np.arange(40) % 3
    search = GridSearchCV(clf, {"start": ["zero", "msi:t=-3", "tree:stop=strict"]}, cv=2).fit(X, y)
    assert search.best_params_["start"] in ("zero", "msi:t=-3", "tree:stop=strict")


@pytest.mark.parametrize(
    ("spec", "other"),
    [("bias", "bias:factor=1"), ("msi", "msi:t=-3"), ("msi", "msi:s=2"), ("ova-primal", "ova-primal:stop=strict")],
)
def test_options_change_the_first_weights_and_not_the_optimum(spec, other):
    X, Y = random_problem(14, n=60, d=20)
    problem = Problem.of(X, Y, 1.0)
    assert np.abs(guess(spec, problem, [3]) - guess(other, problem, [3])).max() > 1e-3
    one, two = (lt.OneVsAll(solver="newton", start=s, tol=1e-6, prune=0).fit(X, Y) for s in (spec, other))
    np.testing.assert_allclose(one.outcome_.objective, two.outcome_.objective, rtol=1e-6)


# --- formulas --------------------------------------------------------------------------------------------------------


def test_zero_is_zero():
    X, Y = random_problem(1)
    assert (guess("zero", Problem.of(X, Y, 1.0), [1, 4]) == 0).all()


@pytest.mark.parametrize(("spec", "factor"), [("bias", 2.0), ("bias:factor=0.9", 0.9)])
@pytest.mark.parametrize("bias", [1.0, 0.25])
def test_bias_scores_every_row_minus_its_factor(spec, factor, bias):
    X, Y = random_problem(1)
    W = guess(spec, Problem.of(X, Y, bias), [0, 5])
    np.testing.assert_allclose(ref.augmented(X, bias) @ W.T, -factor)
    assert np.count_nonzero(W) == 2


@given(problems, st.sampled_from([1.0, 0.3]), st.sampled_from(sorted(LOSSES)), st.sampled_from(["", "s=0.5,t=-1.25"]))
@settings(deadline=None, max_examples=60)
def test_msi_is_the_shortest_vector_that_separates_the_means(problem, bias, loss, options):
    X, Y = problem
    p, A, y = Problem.of(X, Y, bias), ref.augmented(X, bias), signs(Y, 2)
    s, t = (0.5, -1.25) if options else (1.0, {"squared_hinge": -2.0, "logistic": -3.0}[loss])
    W = guess(f"msi:{options}" if options else "msi", p, [2], loss=loss)
    means = np.stack([A[y > 0].mean(0), A.mean(0)])
    singular = np.linalg.svd(means / np.linalg.norm(means, axis=1, keepdims=True), compute_uv=False)[-1]
    if singular > 1e-3:
        twin = ref.mean_separating(A, y, s, t)
        np.testing.assert_allclose(W[0], twin, rtol=1e-4, atol=1e-5 * np.abs(twin).max())
        assert W[0] @ A[y > 0].mean(0) == pytest.approx(s, abs=1e-4)
        assert W[0] @ A[y < 0].mean(0) == pytest.approx(t, abs=1e-4)


def test_msi_is_zero_where_no_separating_vector_exists():
    X, Y = random_problem(3)
    # label 0 has no positive row, label 1 no negative one
    assert (guess("msi", Problem.of(X, Y, 1.0), [0, 1]) == 0).all()
    same = sp.csr_array(np.ones((6, 3), np.float32))  # all rows equal: the means are parallel
    p = Problem.of(same, sp.csr_array(np.array([[1], [0], [0], [1], [0], [0]], np.int32)), 1.0)
    assert (guess("msi", p, [0]) == 0).all()


def test_msi_when_positives_and_mean_are_orthogonal_equals_eq_27():
    X = sp.csr_array(np.array([[1, 0], [0, 1], [-1, 1], [0, 1]], np.float32))
    Y = sp.csr_array(np.array([[1], [0], [0], [0]], np.int32))
    W = guess("msi", Problem.of(X, Y, 0.0), [0])
    pbar, xbar, s, t = np.array([1.0, 0.0]), np.array([0.0, 0.75]), 1.0, msi.NEGATIVE_SCORE[LOSSES["squared_hinge"]]
    expected = s / (pbar @ pbar) * pbar + (3 * t + s) / (4 * xbar @ xbar) * xbar
    np.testing.assert_allclose(W[0], expected)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_ova_primal_solves_the_all_negative_problem(loss, bias):
    X, Y = text_like(1, n=150, d=80, L=10)
    p, A, y, C, tol = Problem.of(X, Y, bias), ref.augmented(X, bias), -np.ones(150), 3.0, 0.1

    def ratio(w):
        at_zero = np.linalg.norm(ref.gradient(loss, A, y, C, 0 * w))
        return np.linalg.norm(ref.gradient(loss, A, y, C, w)) / at_zero

    strict, loose = (guess(f"ova-primal:stop={s}", p, [0, 7], loss=loss, C=C, tol=tol) for s in ("strict", "loose"))
    tight = guess("ova-primal:stop=strict", p, [0], loss=loss, C=C, tol=1e-5)
    np.testing.assert_array_equal(strict[0], strict[1])  # the same for all labels
    assert ratio(strict[0]) <= tol / 150
    assert tol / 150 < ratio(loose[0]) <= tol
    assert ref.objective(loss, A, y, C, tight[0]) == pytest.approx(ref.optimum(loss, A, y, C), rel=1e-6)
    np.testing.assert_array_equal(guess("ova-primal", p, [0], loss=loss, C=C, tol=tol), loose[:1])
    np.testing.assert_array_equal(guess("tree", p, [0], loss=loss, C=C, tol=tol), loose[:1])


# --- the tree --------------------------------------------------------------------------------------------------------


def distances(dense):
    """Hamming distances of all pairs of labels; the last one is the root, which no row has."""
    columns = np.hstack([dense, np.zeros((len(dense), 1), np.int32)]).T
    return (columns[:, None, :] != columns[None, :, :]).sum(axis=2)


def check_is_tree(order, parent):
    assert sorted(order) == list(range(len(parent)))
    place = np.empty(len(parent), int)
    place[order] = np.arange(len(parent))
    below = parent != tree.ROOT
    assert (place[parent[below]] < place[below.nonzero()[0]]).all(), "parents come before their children"


@given(binary_rows)
@settings(deadline=None, max_examples=150)
def test_spanning_tree_is_as_light_as_one_over_all_pairs(dense):
    order, parent = tree.spanning_tree(labels_only(dense))
    check_is_tree(order, parent)
    pairs = distances(dense)
    weight = sum(pairs[label, above] for label, above in enumerate(parent))  # ROOT is the last row
    shifted = minimum_spanning_tree(pairs + 1.0 - np.eye(len(pairs)))  # plus one, as zero means no edge
    assert weight == shifted.sum() - len(parent)


@given(binary_rows)
@settings(deadline=None, max_examples=100)
def test_edges_are_few_and_weigh_the_hamming_distance(dense):
    problem, pairs = labels_only(dense), distances(dense)
    p, q, distance = tree.edges(problem)
    np.testing.assert_array_equal(distance, pairs[p, q])
    assert len(set(zip(p.tolist(), q.tolist(), strict=True))) == len(p)
    assert len(p) <= problem.n_labels + (dense.sum(axis=1) ** 2).sum() / 2  # Theorem 3.3


def test_edges_do_not_depend_on_how_many_pairs_are_made_at_a_time(monkeypatch):
    _, Y = text_like(5, n=80, L=40)
    problem = labels_only(Y.toarray())
    expected = tree.edges(problem)
    for pairs in (1, 7, 100):
        monkeypatch.setattr(tree, "PAIRS", pairs)
        for one, two in zip(expected, tree.edges(problem), strict=True):
            np.testing.assert_array_equal(one, two)


def test_labels_on_the_same_rows_hang_below_the_first_of_them():
    a, b, none = [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [0] * 6
    order, parent = tree.spanning_tree(labels_only(np.array([none, a, b, a, none, a, b]).T))
    check_is_tree(order, parent)
    assert parent.tolist() == [tree.ROOT, tree.ROOT, tree.ROOT, 1, 0, 1, 2]


@given(st.lists(st.integers(-1, 10**6), min_size=1, max_size=60), st.integers(1, 9))
@settings(deadline=None)
def test_cutting_bounds_subtrees_and_keeps_the_rest(draws, most):
    parent = np.array([-1 if draw < 0 or label == 0 else draw % label for label, draw in enumerate(draws)])
    cut = tree.cut(np.arange(len(parent)), parent, most)
    assert set(cut[cut != parent].tolist()) <= {tree.ROOT}
    top = [0] * len(cut)
    for label, above in enumerate(cut):
        top[label] = label if above == tree.ROOT else top[above]
    assert max(np.bincount(top)) <= most
    if most >= len(parent):
        np.testing.assert_array_equal(cut, parent)


def test_a_chain_is_cut_into_the_fewest_pieces():
    parent = np.arange(10) - 1
    assert tree.cut(np.arange(10), parent, 4).tolist().count(tree.ROOT) == 3


def walked(parent, labels):
    """The labels in the order of `Tree.walk`, what each began from, and the most solutions held at a time."""
    start = object.__new__(tree.Tree)
    start.w, start.parent = np.array([-1.0]), parent
    start.problem = Problem.of(sp.csr_array((1, 1), dtype=np.float32), sp.csr_array((1, len(parent)), dtype=int), 0.0)
    order, began, held, most = [], {}, [], 0
    for chunk, W in start.walk(np.array(labels)):
        held = [each for each in held if each() is not None and each() is not W] + [weakref.ref(W)]
        most = max(most, len(held))
        order += chunk.tolist()
        began.update(zip(chunk.tolist(), W[:, 0].tolist(), strict=True))
        W[:, 0] = chunk  # the "solution" of a label is its number
    return order, began, most


@pytest.mark.parametrize(("n", "children", "most"), [(1, 1, 1), (6, 5, 2), (40, 3, 4), (255, 2, 8), (200, 1, 1)])
def test_every_label_begins_at_its_parents_solution_and_few_are_held(n, children, most):
    parent = (np.arange(n) - 1) // children  # a full tree; with one child each, a chain
    order, began, held = walked(parent, range(n))
    assert sorted(order) == list(range(n))
    assert [began[label] for label in range(n)] == parent.tolist()  # the root's weights are -1
    assert held <= most <= 1 + math.log2(n)


def test_parents_that_were_not_asked_for_are_solved_first():
    parent = np.array([-1, 0, 1, 1, -1, 4, -1])
    order, began, _ = walked(parent, [3, 6])
    assert sorted(order) == [0, 1, 3, 6]
    assert (began[3], began[1], began[0], began[6]) == (1, 0, -1, -1)


@given(st.lists(st.integers(-1, 10**6), min_size=1, max_size=80), st.integers(1, 20))
@settings(deadline=None)
def test_blocks_are_whole_subtrees(draws, size):
    parent = np.array([-1 if draw < 0 or label == 0 else draw % label for label, draw in enumerate(draws)])
    start = object.__new__(tree.Tree)
    start.parent = tree.cut(np.arange(len(parent)), parent, 12)
    blocks = start.blocks(size)
    assert sorted(np.concatenate(blocks).tolist()) == list(range(len(parent)))
    assert max(map(len, blocks)) < size + 12
    for block in blocks:
        assert set(start.parent[block].tolist()) <= {tree.ROOT, *block.tolist()}


# --- the tree and Newton ---------------------------------------------------------------------------------------------


def test_a_label_on_the_rows_of_its_parent_takes_no_step():
    X, Y = text_like(2)
    twice = sp.csr_array(sp.hstack([Y, Y]))
    W, outcome = newton_of(X, twice, "tree", prune=0.05).solve(np.arange(120))  # unpruned solutions are handed on
    assert (outcome.n_iter[:60] > 0).all()
    assert (outcome.n_iter[60:] == 0).all()
    assert (W[:60] != W[60:]).nnz == 0


class Spy:
    """Walks as another start does, and writes down where labels begin and end."""

    def __init__(self, start):
        self.start, self.first, self.last = start, {}, {}

    def walk(self, labels):
        for chunk, W in self.start.walk(labels):
            self.first.update(zip(chunk.tolist(), W.copy(), strict=True))
            yield chunk, W
            self.last.update(zip(chunk.tolist(), W.copy(), strict=True))


def test_labels_begin_at_their_parents_unpruned_solution():
    X, Y = text_like(3)
    solver = newton_of(X, Y, "tree", prune=0.05)
    spy = Spy(solver.start)
    pruned, _ = replace(solver, start=spy).solve(np.arange(60))
    below = np.flatnonzero(solver.start.parent != tree.ROOT)
    assert len(below) > 10
    for label in range(60):
        above = solver.start.parent[label]
        expected = solver.start.w if above == tree.ROOT else spy.last[above]
        np.testing.assert_array_equal(spy.first[label], expected)
        assert np.count_nonzero(spy.last[label]) > pruned[[label]].nnz > 0


def test_without_shared_rows_tree_is_ova_primal():
    X, _ = text_like(4, n=90)
    Y = sp.csr_array((np.ones(90, np.int32), (np.arange(90), np.arange(90) % 31)))
    tree_fit, plain = (lt.OneVsAll(solver="newton", start=s).fit(X, Y) for s in ("tree", "ova-primal"))
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(tree_fit.model_.W, name), getattr(plain.model_.W, name))
    np.testing.assert_array_equal(tree_fit.outcome_.n_iter, plain.outcome_.n_iter)


@pytest.mark.parametrize("start", sorted(starts.STARTS))
def test_threads_blocks_and_company_do_not_change_a_byte(monkeypatch, start):
    X, Y = text_like(6, n=120, d=100, L=50)
    monkeypatch.setattr(tree, "SUBTREE_LABELS", 5)

    def fitted(n_jobs):
        clf = lt.OneVsAll(solver="newton", start=start, n_jobs=n_jobs).fit(X, Y)
        W = clf.model_.W
        return [part.tobytes() for part in (W.data, W.indices, W.indptr, *vars(clf.outcome_).values())]

    expected = fitted(1)
    for n_jobs, block, dense in [(1, 1, 1), (2, 3, 500), (4, 17, 10**7), (2, 256, 101)]:
        monkeypatch.setattr(newton, "BLOCK_LABELS", block)
        monkeypatch.setattr(base, "DENSE_WEIGHTS", dense)
        assert fitted(n_jobs) == expected
    every, _ = newton_of(X, Y, start).solve(np.arange(50))
    for label in range(0, 50, 7):
        some, _ = newton_of(X, Y, start).solve(np.array([label, (label + 20) % 50]))
        assert (some != every[[label, (label + 20) % 50]]).nnz == 0


def test_good_starts_take_fewer_steps_and_predict_the_same():
    X, Y = text_like(7, n=2500, d=1500, L=300)
    train, test = slice(0, 2000), slice(2000, 2500)
    steps, active, precision = {}, {}, {}
    for start in starts.STARTS:
        clf = lt.OneVsAll(1.0, solver="newton", start=start).fit(X[train], Y[train])
        steps[start], active[start] = clf.outcome_.n_iter.mean(), clf.outcome_.n_active.mean()
        precision[start] = metrics.precision_curve(sp.csr_array(Y[test]), clf.predict_topk(X[test], 3), 3)
    assert max(steps[each] for each in ("msi", "ova-primal", "tree")) < 0.92 * steps["zero"]
    assert max(active[each] for each in ("msi", "ova-primal", "tree", "bias")) < 0.9 * active["zero"]
    assert active["msi"] == min(active.values())
    for start in starts.STARTS:
        np.testing.assert_allclose(precision[start], precision["zero"], atol=0.01)
