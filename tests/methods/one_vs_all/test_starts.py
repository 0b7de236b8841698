"""The starts: each is its formula, is reached by a string, and the tree of labels is what Algorithm 1 says."""

from __future__ import annotations

import math
import weakref
from types import SimpleNamespace

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
from longtail.hybrid import split
from longtail.methods.one_vs_all import dual_kernels, label_tree, newton, order, starts
from longtail.methods.one_vs_all.inputs import DENSE_TOL, LOSSES, first_twins, label_rows
from longtail.methods.one_vs_all.order import ROOT
from longtail.methods.one_vs_all.parts import weights_of
from longtail.methods.one_vs_all.starts import msi, msi_kernels
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import (
    first_weights,
    problem_of,
    problems,
    random_problem,
    solve_labels,
    text_like,
)

labelings = st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=14)
binary_rows = st.builds(lambda columns: np.array(columns, np.int32).T, labelings)


def signs(Y, label):
    return np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)


def guess(spec, X, Y, labels, **params):
    return first_weights(problem_of(X, Y, solver="newton", start=spec, **params), labels)


def positives_of(dense):
    """The positives of every label of an indicator, the number of rows, and the labels that are solved."""
    dense = np.asarray(dense, np.int32)
    positives = label_rows(sp.csr_array(dense), np.ones(dense.shape[1]))
    return positives, len(dense), np.unique(first_twins(positives))


# --- names and options -----------------------------------------------------------------------------------------------


def test_options_are_read_from_the_string():
    assert starts.parse("msi", 0.0) == ("msi", {})
    assert starts.parse("msi:t=-3", 0.0) == ("msi", {"t": -3.0})
    assert starts.parse("msi: s=0.5, t=-1e1", 0.0)[1] == {"s": 0.5, "t": -10.0}
    assert starts.parse("bias:factor=0.9", 1.0) == ("bias", {"factor": 0.9})
    assert starts.parse("ova-primal:stop=strict", 0.0)[1] == {"stop": "strict"}
    assert starts.parse("tree:stop=loose", 0.0)[1] == {"stop": "loose"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("msi:u=1", "OneVsAll: 'msi' takes 's' and 't'. Got 'msi:u=1' instead of the form 'name:o"),
        ("msi:", "OneVsAll: 'msi' takes 's' and 't'. Got 'msi:' instead of the form 'name:o"),
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
        clf._check_parameters()
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
    assert np.abs(guess(spec, X, Y, [3]) - guess(other, X, Y, [3])).max() > 1e-3
    one, two = (lt.OneVsAll(solver="newton", start=s, tol=1e-6, prune=0).fit(X, Y) for s in (spec, other))
    np.testing.assert_allclose(one.training_.objective, two.training_.objective, rtol=1e-6)


# --- formulas --------------------------------------------------------------------------------------------------------


def test_zero_is_zero():
    X, Y = random_problem(1)
    assert (guess("zero", X, Y, [1, 4]) == 0).all()


@pytest.mark.parametrize(("spec", "factor"), [("bias", 2.0), ("bias:factor=0.9", 0.9)])
@pytest.mark.parametrize("bias", [1.0, 0.25])
def test_bias_scores_every_row_minus_its_factor(spec, factor, bias):
    X, Y = random_problem(1)
    W = guess(spec, X, Y, [0, 5], bias=bias)
    np.testing.assert_allclose(ref.augmented(X, bias) @ W.T, -factor)
    assert np.count_nonzero(W) == 2


@given(problems, st.sampled_from([1.0, 0.3]), st.sampled_from(sorted(LOSSES)), st.sampled_from(["", "s=0.5,t=-1.25"]))
@settings(deadline=None, max_examples=60)
def test_msi_is_the_shortest_vector_that_separates_the_means(problem, bias, loss, options):
    X, Y = problem
    A, y = ref.augmented(X, bias), signs(Y, 2)
    s, t = (0.5, -1.25) if options else (1.0, {"squared_hinge": -2.0, "logistic": -3.0}[loss])
    p = problem_of(X, Y, solver="newton", loss=loss, bias=bias)
    W, start = np.full((1, p.D), 7.0), starts.make(f"msi:{options}" if options else "msi", p)
    start.weights(p, np.array([2]), W)
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
    assert (guess("msi", X, Y, [0, 1]) == 0).all()
    same = sp.csr_array(np.ones((6, 3), np.float32))  # all rows equal: the means are parallel
    assert (guess("msi", same, sp.csr_array(np.array([[1], [0], [0], [1], [0], [0]], np.int32)), [0]) == 0).all()


def test_msi_when_positives_and_mean_are_orthogonal_equals_eq_27():
    X = sp.csr_array(np.array([[1, 0], [0, 1], [-1, 1], [0, 1]], np.float32))
    Y = sp.csr_array(np.array([[1], [0], [0], [0]], np.int32))
    W = guess("msi", X, Y, [0], bias=0.0)
    pbar, xbar = np.array([1.0, 0.0]), np.array([0.0, 0.75])
    s, t = 1.0, msi.NEWTON_NEGATIVE_SCORE[LOSSES["squared_hinge"]]
    expected = s / (pbar @ pbar) * pbar + (3 * t + s) / (4 * xbar @ xbar) * xbar
    np.testing.assert_allclose(W[0], expected)


@given(
    st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(-1, 1), st.integers(0, 9), st.floats(0, 3), st.floats(-4, 0)
)
@settings(deadline=None)
def test_both_copies_of_the_formula_agree_and_solve_its_equations(pp, xx, cosine, n_positive, s, t):
    xp, n = cosine * np.sqrt(pp * xx), 10
    u, v = msi_kernels.separating_coefficients(pp, xx, xp, n_positive, n, s, t)
    assert (u, v) == dual_kernels.separating_coefficients(pp, xx, xp, n_positive, n, s, t)
    assert msi_kernels.PARALLEL == dual_kernels.PARALLEL
    if n_positive == 0 or 1 - cosine**2 < 1e-10:
        assert (u, v) == (0.0, 0.0)
    elif 1 - cosine**2 > 1e-6:
        scale = 1 + abs(u) * (pp + abs(xp)) + abs(v) * (xx + abs(xp))
        assert u * pp + v * xp == pytest.approx(s, abs=1e-12 * scale)
        assert u * xp + v * xx == pytest.approx(t + (s - t) * n_positive / n, abs=1e-12 * scale)


def all_negative_ratio(loss, A, C, w):
    """|g(w)| / |g(0)| of the all-negative problem."""
    y = -np.ones(len(A))
    return np.linalg.norm(ref.gradient(loss, A, y, C, w)) / np.linalg.norm(ref.gradient(loss, A, y, C, 0 * w))


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_ova_primal_solves_the_all_negative_problem(loss, bias):
    X, Y = text_like(1, n=150, d=80, L=10)
    A, C, tol = ref.augmented(X, bias), 3.0, 0.01
    params = {"loss": loss, "bias": bias, "C": C}
    strict, loose = (guess(f"ova-primal:stop={s}", X, Y, [0, 7], tol=tol, **params) for s in ("strict", "loose"))
    tight = guess("ova-primal:stop=strict", X, Y, [0], tol=1e-5, **params)
    np.testing.assert_array_equal(strict[0], strict[1])  # the same for all labels
    assert all_negative_ratio(loss, A, C, strict[0]) <= tol / 150
    assert tol / 150 < all_negative_ratio(loss, A, C, loose[0]) <= tol
    assert ref.objective(loss, A, -np.ones(150), C, tight[0]) == pytest.approx(
        ref.optimum(loss, A, -np.ones(150), C), rel=1e-6
    )
    np.testing.assert_array_equal(guess("ova-primal", X, Y, [0], tol=tol, **params), loose[:1])
    np.testing.assert_array_equal(guess("tree", X, Y, [0], tol=tol, **params), loose[:1])


@pytest.mark.parametrize("start", ["ova-primal", "tree", "ova-primal:stop=strict"])
@pytest.mark.parametrize("solver", ["newton", "dual"])
@pytest.mark.parametrize("tol", [None, DENSE_TOL, 5.0])
def test_ova_primal_on_dense_features_is_not_the_zero_start(start, solver, tol):
    """`tol` is 1 there by default, and zero satisfies |g(w)| <= |g(0)|; the all-negative problem needs another one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 20)).astype(np.float32) + 1
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Y = sp.csr_array((rng.random((200, 5)) < 0.1).astype(np.int32))
    problem = problem_of(X, Y, solver=solver, start=start, tol=tol)
    assert problem.X.n_sparse == 0
    w = problem.start.w
    A = np.hstack([X, np.ones((200, 1))])
    assert np.linalg.norm(w) > 0.5
    assert all_negative_ratio("squared_hinge", A, 1.0, w) <= 0.01
    if solver == "dual":
        np.testing.assert_allclose(problem.first.base, A @ w, atol=1e-5)


# --- the tree --------------------------------------------------------------------------------------------------------


def distances(dense):
    """Hamming distances of all pairs of labels; the last one is the root, which no row has."""
    columns = np.hstack([dense, np.zeros((len(dense), 1), np.int32)]).T
    return (columns[:, None, :] != columns[None, :, :]).sum(axis=2)


def check_is_tree(order, parent, labels):
    assert sorted(order) == labels.tolist()
    place = np.full(len(parent), -1)
    place[order] = np.arange(len(order))
    below = np.flatnonzero(parent != ROOT)
    assert set(below.tolist()) | set(parent[below].tolist()) <= set(labels.tolist())
    assert (place[parent[below]] < place[below]).all(), "parents come before their children"


@given(binary_rows)
@settings(deadline=None, max_examples=150)
def test_spanning_tree_is_as_light_as_one_over_all_pairs(dense):
    positives, n, labels = positives_of(dense)
    order, parent = label_tree.spanning_tree(positives, n, labels)
    check_is_tree(order, parent, labels)
    pairs = distances(dense)
    weight = sum(pairs[label, parent[label]] for label in labels)  # ROOT is the last row
    shifted = minimum_spanning_tree(pairs + 1.0 - np.eye(len(pairs)))  # plus one, as zero means no edge
    assert weight == shifted.sum() - len(parent)  # twins are at distance 0 of each other


@given(binary_rows)
@settings(deadline=None, max_examples=100)
def test_edges_are_few_and_weigh_the_hamming_distance(dense):
    positives, n, labels = positives_of(dense)
    pairs = distances(dense)
    p, q, distance = label_tree.edges(positives, n, labels)
    np.testing.assert_array_equal(distance, pairs[p, q])
    assert len(set(zip(p.tolist(), q.tolist(), strict=True))) == len(p)
    assert len(p) <= dense.shape[1] + (dense.sum(axis=1) ** 2).sum() / 2  # Theorem 3.3


def test_edges_do_not_depend_on_how_many_pairs_are_made_at_a_time(monkeypatch):
    _, Y = text_like(5, n=80, L=40)
    arguments = positives_of(Y.toarray())
    expected = label_tree.edges(*arguments)
    for pairs in (1, 7, 100):
        monkeypatch.setattr(label_tree, "PAIRS", pairs)
        for one, two in zip(expected, label_tree.edges(*arguments), strict=True):
            np.testing.assert_array_equal(one, two)


def test_only_the_first_of_labels_on_the_same_rows_is_in_the_tree():
    a, b, none = [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [0] * 6
    positives, n, labels = positives_of(np.array([none, a, b, a, none, a, b]).T)
    assert labels.tolist() == [0, 1, 2]
    order, parent = label_tree.spanning_tree(positives, n, labels)
    check_is_tree(order, parent, labels)
    assert parent.tolist() == [ROOT, ROOT, 1, ROOT, ROOT, ROOT, ROOT]


@given(st.lists(st.integers(-1, 10**6), min_size=1, max_size=60), st.integers(1, 9))
@settings(deadline=None)
def test_cutting_bounds_subtrees_and_keeps_the_rest(draws, most):
    parent = np.array([-1 if draw < 0 or label == 0 else draw % label for label, draw in enumerate(draws)])
    cut = label_tree.cut(np.arange(len(parent)), parent, most)
    assert set(cut[cut != parent].tolist()) <= {ROOT}
    top = [0] * len(cut)
    for label, above in enumerate(cut):
        top[label] = label if above == ROOT else top[above]
    assert max(np.bincount(top)) <= most
    if most >= len(parent):
        np.testing.assert_array_equal(cut, parent)


def test_a_chain_is_cut_into_the_fewest_pieces():
    parent = np.arange(10) - 1
    assert label_tree.cut(np.arange(10), parent, 4).tolist().count(ROOT) == 3


class MinusOne:
    """A start for one feature: every label begins at -1."""

    def weights(self, data, labels, out):
        out[:] = -1.0


def walked(parent):
    """The labels in the order of `walk`, what each began from, and the most solutions held at a time."""
    began, held, most = {}, [], 0
    walk = order.walk(SimpleNamespace(D=1), MinusOne(), np.arange(len(parent)), parent)
    visited = []
    for chunk, W in walk:
        held = [each for each in held if each() is not None and each() is not W] + [weakref.ref(W)]
        most = max(most, len(held))
        visited += chunk.tolist()
        began.update(zip(chunk.tolist(), W[:, 0].tolist(), strict=True))
        W[:, 0] = chunk  # the "solution" of a label is its number
    return visited, began, most


@pytest.mark.parametrize(("n", "children", "most"), [(1, 1, 1), (6, 5, 2), (40, 3, 4), (255, 2, 8), (200, 1, 1)])
def test_every_label_begins_at_its_parents_solution_and_few_are_held(n, children, most):
    parent = (np.arange(n) - 1) // children  # a full tree; with one child each, a chain
    visited, began, held = walked(parent)
    assert sorted(visited) == list(range(n))
    assert [began[label] for label in range(n)] == parent.tolist()  # the root's weights are -1
    assert held <= most <= 1 + math.log2(n)


@given(st.lists(st.integers(-1, 10**6), min_size=1, max_size=40))
@settings(deadline=None)
def test_every_forest_is_walked_from_parents_to_children(draws):
    parent = np.array([ROOT if draw < 0 or label == 0 else draw % label for label, draw in enumerate(draws)])
    visited, began, held = walked(parent)
    assert sorted(visited) == list(range(len(parent)))
    assert [began[label] for label in range(len(parent))] == parent.tolist()
    assert held <= 1 + math.log2(len(parent))


# --- the tree and Newton ---------------------------------------------------------------------------------------------


class Spy:
    """Passes on what `walk` gives, and writes down where labels begin and end."""

    def __init__(self, monkeypatch):
        self.walk, self.first, self.last = order.walk, {}, {}
        monkeypatch.setattr(newton, "walk", self)

    def __call__(self, *arguments):
        for chunk, W in self.walk(*arguments):
            self.first.update(zip(chunk.tolist(), W.copy(), strict=True))
            yield chunk, W
            self.last.update(zip(chunk.tolist(), W.copy(), strict=True))


def test_labels_begin_at_their_parents_unpruned_solution(monkeypatch):
    X, Y = text_like(3)
    problem, spy = problem_of(X, Y, solver="newton", start="tree", prune=0.05), Spy(monkeypatch)
    pruned = solve_labels(problem, problem.labels)
    sizes = dict(zip(pruned.items.tolist(), np.diff(pruned.arrays["indptr"]).tolist(), strict=True))
    assert (problem.parent != ROOT).sum() > 10
    for label in problem.labels.tolist():
        above = int(problem.parent[label])
        expected = problem.start.w if above == ROOT else spy.last[above]
        np.testing.assert_array_equal(spy.first[label], expected)
        assert np.count_nonzero(spy.last[label]) > sizes[label] > 0


def test_labels_on_the_same_rows_are_solved_once():
    X, Y = text_like(2)
    for start in ("tree", "msi"):
        clf = lt.OneVsAll(solver="newton", start=start).fit(X, sp.csr_array(sp.hstack([Y, Y])))
        once = lt.OneVsAll(solver="newton", start=start).fit(X, Y)
        for half in (slice(0, 60), slice(60, 120)):
            assert (clf.model_.all_weights()[half] != once.model_.all_weights()).nnz == 0
            np.testing.assert_array_equal(clf.training_.objective[half], once.training_.objective)


def test_without_shared_rows_tree_is_ova_primal():
    X, _ = text_like(4, n=90)
    Y = sp.csr_array((np.ones(90, np.int32), (np.arange(90), np.arange(90) % 31)))
    tree_fit, plain = (lt.OneVsAll(solver="newton", start=s).fit(X, Y) for s in ("tree", "ova-primal"))
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(
            getattr(tree_fit.model_.all_weights(), name), getattr(plain.model_.all_weights(), name)
        )
    np.testing.assert_array_equal(tree_fit.training_.n_iter, plain.training_.n_iter)


@pytest.mark.parametrize("start", sorted(starts.STARTS))
def test_threads_blocks_and_company_do_not_change_a_byte(monkeypatch, start):
    X, Y = text_like(6, n=120, d=100, L=50)
    monkeypatch.setattr(label_tree, "SUBTREE_LABELS", 5)

    def fitted(n_jobs):
        clf = lt.OneVsAll(solver="newton", start=start, n_jobs=n_jobs).fit(X, Y)
        W, record = clf.model_.all_weights(), clf.training_
        arrays = (W.data, W.indices, W.indptr, record.status, record.n_iter, *record.figures.values())
        return [array.tobytes() for array in arrays]

    expected = fitted(1)
    for n_jobs, block, dense in [(1, 1, 1), (2, 3, 500), (4, 17, 10**7), (2, 256, 101)]:
        monkeypatch.setattr(newton, "BLOCK_LABELS", block)
        monkeypatch.setattr(order, "DENSE_WEIGHTS", dense)
        assert fitted(n_jobs) == expected
    problem = problem_of(split(X), Y, solver="newton", start=start)
    whole = lt.OneVsAll(solver="newton", start=start).fit(X, Y).model_.all_weights()
    for block in order.subtree_blocks(problem.labels, problem.parent, 1):
        part = solve_labels(problem, block)
        assert (weights_of(part, problem.D) != whole[part.items]).nnz == 0


def test_good_starts_take_fewer_steps_and_predict_the_same():
    X, Y = text_like(7, n=2500, d=1500, L=300)
    train, test = slice(0, 2000), slice(2000, 2500)
    steps, active, precision = {}, {}, {}
    for start in starts.STARTS:
        clf = lt.OneVsAll(1.0, solver="newton", start=start).fit(X[train], Y[train])
        steps[start], active[start] = clf.training_.n_iter.mean(), clf.training_.n_active.mean()
        precision[start] = metrics.precision_curve(sp.csr_array(Y[test]), clf.predict_topk(X[test], 3), 3)
    assert max(steps[each] for each in ("msi", "ova-primal", "tree")) < 0.92 * steps["zero"]
    assert max(active[each] for each in ("msi", "ova-primal", "tree", "bias")) < 0.9 * active["zero"]
    assert active["msi"] == min(active.values())
    for start in starts.STARTS:
        np.testing.assert_allclose(precision[start], precision["zero"], atol=0.01)
