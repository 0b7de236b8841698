"""The oracles against brute force; what they keep while classes come, move and go."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import parallel
from longtail.check import canonical_csr
from longtail.methods.memoir.oracles import simple_lsh_kernels as lsh
from longtail.methods.memoir.oracles.base import Moves
from longtail.methods.memoir.oracles.recent import BEST, KEPT, Recent
from longtail.methods.memoir.oracles.simple_lsh import UNIT
from tests.methods.memoir import reference
from tests.methods.memoir.problems import classes_problem, one_hot, oracle_of

NAMES = ("exact", "sw-graph", "simple-lsh")
# Settings with which every oracle looks at all classes.
FULL = {"exact": {}, "sw-graph": {"beam": 40}, "simple-lsh": {"n_candidates": 40}}


def move(oracle, rows, targets, rivals, eta=0.5, truncated=0.0):
    """Steps as training does them, told to the oracle."""
    weights = oracle.weights
    moved = weights.step(oracle.X, rows, targets, rivals, eta)
    touched = np.unique(np.concatenate([targets, rivals[rivals >= 0]]))
    cut = touched if truncated else touched[:0]
    weights.truncate(cut, truncated)
    scale = weights.scale
    classes = np.stack([rivals[moved], targets[moved]], axis=1).ravel()
    factors = np.tile([-eta / scale, eta / scale], moved.sum())
    amounts = np.full(len(cut), truncated / scale)
    oracle.update(Moves(classes, np.repeat(rows[moved], 2), factors, touched, cut, amounts))


def trained(name, seed=0, rounds=3, C=13, n=80, **how):
    X, y = classes_problem(seed, n=n, d=25, C=C)
    oracle = oracle_of(name, X, one_hot(y, C), seed=seed, **how)
    rows = np.arange(n)
    for _ in range(rounds):
        rivals = oracle.query(rows, y)
        move(oracle, rows, y, rivals)
    return oracle, X.toarray(), one_hot(y, C).toarray(), y


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_an_oracle_that_looks_at_all_classes_finds_the_best(name, seed):
    oracle, X, Y, y = trained(name, seed, **FULL[name])
    W, rows = oracle.weights.to_csr().toarray(), np.arange(len(y))
    for rivals in (oracle.query(rows, y), oracle.best(rows)):
        for rival, (_, best) in zip(rivals, reference.best_rivals(W, X, Y, rows), strict=True):
            assert rival in best


@pytest.mark.parametrize("name", NAMES)
def test_labels_of_a_row_are_never_its_rivals(name):
    X, y = classes_problem(3, n=50, d=15, C=6)
    Y = np.zeros((50, 6), np.int32)
    Y[np.arange(50), y] = 1
    Y[np.arange(50), (y + 2) % 6] = 1
    Y[0] = 1  # all labels: there is no rival
    Y = canonical_csr(sp.csr_array(Y))
    oracle, rows = oracle_of(name, X, Y, **FULL[name]), np.arange(50)
    for _ in range(4):
        rivals = oracle.query(rows, y)
        assert rivals[0] == -1
        found = rivals >= 0
        assert found.sum() > 30
        assert not Y.toarray()[rows[found], rivals[found]].any()
        twice = np.repeat(rows, 2)
        truth = reference.best_rivals(oracle.weights.to_csr().toarray(), X.toarray(), Y.toarray(), twice)
        for rival, (score, best) in zip(oracle.best(twice), truth, strict=True):
            assert rival in best if np.isfinite(score) else rival == -1
        move(oracle, rows[found], y[found], rivals[found])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_groups", [2, 5])
def test_a_group_is_searched_and_groups_take_turns(name, n_groups):
    oracle, X, Y, y = trained(name, 2, rounds=6, n_groups=n_groups, **FULL[name])
    W, rows, seen = oracle.weights.to_csr().toarray(), np.arange(len(y)), set()
    for _ in range(12):
        rivals = oracle.query(rows, y)
        seen.add(oracle.group)
        group = np.arange(oracle.group, 13, n_groups)
        for rival, (_, best) in zip(rivals, reference.best_rivals(W, X, Y, rows, group), strict=True):
            assert rival in best
    assert len(seen) > 1


def test_equal_scores_are_not_always_won_by_the_same_class():
    X, y = classes_problem(0, n=200, C=40)
    rivals = oracle_of("exact", X, one_hot(y, 40)).query(np.arange(200), y)  # all weights are zero
    assert len(set(rivals.tolist())) > 20
    assert (rivals != y).all()


@pytest.mark.parametrize("name", NAMES)
def test_threads_do_not_change_an_answer(name):
    answers = []
    for n_jobs in (1, 2, 4):
        with parallel.Team(n_jobs) as team:
            oracle, _, _, y = trained(name, 1, n=200, C=30, team=team)
            answers.append(oracle.query(np.arange(200), y))
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_recent_rivals_are_the_last_different_ones():
    recent = Recent(3)
    recent.remember(np.array([0, 0, 0, 2]), np.array([1, 1, -1, 0]))
    assert recent.rivals[0].tolist() == [1, *[-1] * (KEPT - 1)]
    assert recent.rivals[2, 0] == 0
    recent.remember(np.ones(KEPT + 1, np.int64), np.arange(10, 11 + KEPT))
    assert sorted(recent.rivals[1].tolist()) == list(range(11, 11 + KEPT))


@pytest.mark.parametrize("n_groups", [1, 3])
def test_likely_rivals_are_the_best_champions_and_the_recent_rivals(n_groups):
    oracle, X, Y, y = trained("simple-lsh", 4, n=300, C=120, n_groups=n_groups)
    store, n_full = oracle.weights.store, 0
    likely = oracle.likely(np.arange(300), y)
    for i, classes in enumerate(likely):
        shares = reference.champion_shares(store.champions, store.champion_values, X[i], Y[i], oracle.group, n_groups)
        best = sorted(shares.values(), reverse=True)[:BEST]
        found = [int(c) for c in classes[:BEST] if c >= 0]
        np.testing.assert_allclose([shares[c] for c in found], best, rtol=1e-5)
        assert len(set(found)) == len(found)
        assert classes[BEST:].tolist() == oracle.recent.rivals[y[i]].tolist()
        n_full += len(shares) > BEST
    assert n_full > 20  # else there was nothing to choose


# --- sw-graph --------------------------------------------------------------------------------------------------------


def check_graph(oracle):
    """Links are mutual, different and few; the ring holds all live classes, which are those with weights."""
    graph, counts = oracle.graph, oracle.weights.store.counts
    n_live = int(graph.n_live[0])
    live = set(graph.live[:n_live].tolist())
    assert live == set(np.flatnonzero(counts).tolist())
    assert len(live) == n_live
    links = {c: graph.links[c, : graph.degrees[c]].tolist() for c in range(len(counts))}
    for c, own in links.items():
        assert len(own) == len(set(own)) <= graph.links.shape[1]
        assert c not in own
        assert all(c in links[other] for other in own)
        assert (graph.at[c] >= 0) == (c in live)
        assert c in live or not own
    if live:
        start = c = next(iter(live))
        ring = []
        while not ring or c != start:
            ring.append(c)
            assert graph.before[graph.after[c]] == c
            c = int(graph.after[c])
        assert set(ring) == live  # every live class is reachable from every other
        assert len(ring) == n_live


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([0.0, 0.05, 5.0])), min_size=1, max_size=8))
def test_the_graph_stays_whole_while_classes_come_move_and_go(changes):
    X, y = classes_problem(4, n=40, d=25, C=15)
    oracle = oracle_of("sw-graph", X, one_hot(y, 15), n_links=3)
    for seed, truncated in changes:
        rng = np.random.default_rng(seed)
        rows, rivals = rng.integers(40, size=6), rng.integers(15, size=6)
        rivals = np.where(rivals == y[rows], (rivals + 1) % 15, rivals)
        move(oracle, rows, y[rows], rivals, truncated=truncated)  # 5.0 takes all weights away
        check_graph(oracle)


def test_every_class_that_moved_far_is_placed_anew_and_others_are_left_alone():
    oracle, _, _, y = trained("sw-graph", 0, rounds=1, drift=1.5)  # moved once, by less than that
    check_graph(oracle)
    oracle, _, _, y = trained("sw-graph", 0, rounds=4, drift=0.3)
    length = np.sqrt(oracle.weights.store.norms)
    assert (oracle.moved < 0.3 * length + 1e-9).all()
    oracle.drift = 1e9
    before = oracle.graph.links.copy()
    move(oracle, np.arange(10), y[:10], (y[:10] + 1) % 13)
    np.testing.assert_array_equal(oracle.graph.links, before)
    assert oracle.moved.max() > 0


def test_linked_classes_are_those_with_large_inner_products():
    oracle, *_ = trained("sw-graph", 7, rounds=3, C=30, n=300, beam=8)
    W = oracle.weights.to_csr().toarray()
    products = W @ W.T
    linked = np.concatenate([products[c, oracle.graph.links[c, : oracle.graph.degrees[c]]] for c in range(30)])
    assert linked.mean() > products[~np.eye(30, dtype=bool)].mean() + 0.5 * products.std()


# --- simple-lsh ------------------------------------------------------------------------------------------------------


def test_popcount_counts_bits():
    words = np.random.default_rng(0).integers(2**63, size=50).astype(np.uint64)
    zero = np.zeros(1, np.uint64)
    out = np.empty((1, 50), np.int32)
    X, rows = oracle_of("simple-lsh", *_two_rows()).X, np.zeros(1, np.int64)
    distances = np.empty(50, np.uint16)
    directions = np.zeros((2, 64), np.int8)  # the row's code is 0, so distances are numbers of bits
    lsh.nearest_codes(
        X,
        rows,
        directions,
        words[:, None],
        0,
        50,
        np.empty(64, np.float32),
        zero,
        distances,
        np.empty(65, np.int64),
        out,
    )
    assert distances.tolist() == [int(word).bit_count() for word in words]


def _two_rows():
    return canonical_csr(sp.csr_array(np.eye(2, dtype=np.float32))), one_hot(np.array([0, 1]), 2)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([64, 192]))
def test_the_nearest_codes_are_found(seed, room, n_bits):
    rng = np.random.default_rng(seed)
    codes = rng.integers(2**64, size=(20, n_bits // 64), dtype=np.uint64)
    codes[5] = codes[6]
    X, _ = classes_problem(seed, n=3, d=10, C=3)
    directions = rng.integers(-127, 127, size=(10, n_bits)).astype(np.int8)
    own = np.packbits(X.toarray() @ directions.astype(np.float32) > 0, axis=1, bitorder="little").view(np.uint64)
    out = np.empty((3, room), np.int32)
    oracle = oracle_of("simple-lsh", X, one_hot(np.arange(3), 3))
    lsh.nearest_codes(
        oracle.X, np.arange(3), directions, codes, 4, 18, np.empty(n_bits, np.float32),
        np.empty(n_bits // 64, np.uint64), np.empty(14, np.uint16), np.empty(n_bits + 1, np.int64), out,
    )  # fmt: skip
    for k in range(3):
        distances = np.array([sum(int(a ^ b).bit_count() for a, b in zip(code, own[k], strict=True)) for code in codes])
        found = out[k][out[k] >= 0]
        assert len(set(found.tolist())) == len(found) == min(room, 14)
        assert ((found >= 4) & (found < 18)).all()
        assert sorted(distances[found]) == sorted(distances[4:18])[: len(found)]


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("truncated", [0.0, 0.02])
def test_codes_kept_while_classes_move_are_those_of_the_weights(augment, truncated):
    oracle, _, _, y = trained("simple-lsh", 3, rounds=2, augment=augment)
    move(oracle, np.arange(30), y[:30], (y[:30] + 4) % 13, truncated=truncated)
    factor = oracle.weights.shrink(1e-9)  # stored values are multiplied out
    assert factor < 1
    oracle.rescale(factor)
    move(oracle, np.arange(30), y[:30], (y[:30] + 5) % 13, eta=1e-9)
    V = oracle.weights.to_csr().toarray().astype(np.float64)
    projected = V @ oracle.directions
    if augment:
        norms = (V**2).sum(axis=1)
        assert oracle.largest**2 >= norms.max() * (1 - 1e-6)
        projected += np.sqrt(oracle.largest**2 - norms)[:, None] * oracle.tail_direction
    bits = np.unpackbits(oracle.codes[oracle.line_of].view(np.uint8), axis=1, bitorder="little")
    clear = np.abs(projected) > 1e-4 * np.abs(projected).max()
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(bits[clear], (projected > 0)[clear])


@pytest.mark.parametrize("augment", [False, True])
def test_bits_collide_as_often_as_theory_says(augment):
    """P(a bit of x equals that of w) = 1 - angle / pi, with cos(angle) = x.w / (|x| M), M = max |w| or (plain) |w|."""
    rng, n_bits, d = np.random.default_rng(0), 4096, 12
    X = canonical_csr(sp.csr_array(rng.normal(size=(6, d)).astype(np.float32)))
    oracle = oracle_of("simple-lsh", X, one_hot(np.arange(6), 6), n_bits=n_bits, augment=augment, seed=5)
    move(oracle, np.arange(6), np.arange(6), (np.arange(6) + 1) % 6, eta=0.7)
    W, dense = oracle.weights.to_csr().toarray(), X.toarray()
    bits = np.unpackbits(oracle.codes[oracle.line_of].view(np.uint8), axis=1, bitorder="little")
    own = dense @ (oracle.directions / UNIT) > 0
    length = oracle.largest if augment else np.linalg.norm(W, axis=1)
    cosine = dense @ W.T / (np.linalg.norm(dense, axis=1)[:, None] * length)
    theory = 1 - np.arccos(cosine) / np.pi
    measured = np.array([[(own[i] == bits[c]).mean() for c in range(6)] for i in range(6)])
    assert theory.max() - theory.min() > 0.3
    assert np.abs(measured - theory).max() < 4.5 * 0.5 / np.sqrt(n_bits)
