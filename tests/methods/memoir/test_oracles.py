"""The oracles against brute force, and what they store while classes appear, move and disappear."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import parallel
from longtail.errors import InputError
from longtail.hybrid import take_columns
from longtail.matrix import canonical_csr
from longtail.methods.memoir import reading_kernels, weights_kernels
from longtail.methods.memoir.oracles import ORACLES, exact_kernels, parse
from longtail.methods.memoir.oracles import key_tables_kernels as tables_kernels
from longtail.methods.memoir.oracles import simple_lsh_kernels as lsh
from longtail.methods.memoir.oracles import sw_graph_kernels as graph_kernels
from longtail.methods.memoir.oracles.candidates import N_CANDIDATES, N_RECENT, RecentRivals
from longtail.methods.memoir.oracles.exact_kernels import SCORE_LANES, first_best
from longtail.methods.memoir.oracles.simple_lsh import STEPS
from longtail.methods.memoir.oracles.sw_graph import INSERTION_BEAM, N_HEAVIEST
from longtail.methods.memoir.sgd import moves_of
from longtail.models.dense_kernels import PANEL_LABELS
from tests.methods.memoir import reference
from tests.methods.memoir.problems import classes_problem, one_hot, oracle_of

SOME = (
    "exact",
    "sw-graph:links=4,drift=0",
    "simple-lsh:candidates=8,augment=yes",
    "sw-graph:links=4,drift=0,likely=no",
    "simple-lsh:candidates=8,tables=16,likely=no",
)
# Options with which every oracle scores all classes. With 64 tables of one bit, any two codes that agree in a bit meet.
FULL = (
    "exact",
    "sw-graph:links=4,beam=40,drift=0",
    "simple-lsh:candidates=40,augment=yes",
    "sw-graph:links=4,beam=40,drift=0,likely=no",
    "simple-lsh:candidates=40,tables=64,likely=no",
)

YES_NO = {True: "yes", False: "no"}


def move(oracle, rows, targets, rivals, eta=0.5, truncated=0.0):
    """Steps as training does them, followed by the update of the oracle."""
    vectors = oracle.vectors
    moved = vectors.step(oracle.X, rows, targets, rivals, eta)
    touched = np.unique(np.concatenate([targets, rivals[rivals >= 0]]))
    cut = touched if truncated else touched[:0]
    vectors.truncate(cut, np.full(len(cut), truncated))
    moves = moves_of(rows[moved], targets[moved], rivals[moved], eta / vectors.scale)
    amounts = np.full(len(cut), truncated / vectors.scale)
    oracle.update(moves._replace(touched=np.union1d(moves.touched, cut), truncated=cut, amounts=amounts))


def trained(text, seed=0, rounds=3, C=13, n=80, **how):
    X, y = classes_problem(seed, n=n, d=25, C=C)
    oracle = oracle_of(text, X, one_hot(y, C), seed=seed, **how)
    rows = np.arange(n)
    for _ in range(rounds):
        rivals = oracle.query(rows, y)
        move(oracle, rows, y, rivals)
    return oracle, X.toarray(), one_hot(y, C).toarray(), y


@pytest.mark.parametrize("text", FULL)
@pytest.mark.parametrize("seed", range(4))
def test_an_oracle_that_scores_all_classes_finds_the_best(text, seed):
    oracle, X, Y, y = trained(text, seed)
    W, rows = oracle.vectors.to_csr().toarray(), np.arange(len(y))
    for rivals in (oracle.query(rows, y), oracle.best(rows)):
        for rival, (_, best) in zip(rivals, reference.best_rivals(W, X, Y, rows), strict=True):
            assert rival in best


@pytest.mark.parametrize("n_groups", [1, 3])
def test_the_exact_oracle_reads_dense_features(n_groups):
    X, y = classes_problem(2, n=60, d=25, C=70)
    rows, Y = np.arange(60), one_hot(y, 70)
    oracle = oracle_of("exact", take_columns(X, np.arange(4, 22)), Y, n_groups)
    for _ in range(6):
        rivals, W = oracle.query(rows, y), oracle.vectors.to_csr().toarray()
        group = np.arange(oracle.group, 70, n_groups)
        for rival, (_, best) in zip(
            rivals, reference.best_rivals(W, X.toarray(), Y.toarray(), rows, group), strict=True
        ):
            assert rival in best
        move(oracle, rows, y, rivals)


@pytest.mark.parametrize("text", FULL)
def test_labels_of_a_row_are_never_its_rivals(text):
    X, y = classes_problem(3, n=50, d=15, C=6)
    Y = np.zeros((50, 6), np.int32)
    Y[np.arange(50), y] = 1
    Y[np.arange(50), (y + 2) % 6] = 1
    Y[0] = 1  # all labels: there is no rival
    Y = canonical_csr(sp.csr_array(Y))
    oracle, rows = oracle_of(text, X, Y), np.arange(50)
    for _ in range(4):
        rivals = oracle.query(rows, y)
        assert rivals[0] == -1
        found = rivals >= 0
        assert found.sum() > 30
        assert not Y.toarray()[rows[found], rivals[found]].any()
        twice = np.repeat(rows, 2)
        truth = reference.best_rivals(oracle.vectors.to_csr().toarray(), X.toarray(), Y.toarray(), twice)
        for rival, (score, best) in zip(oracle.best(twice), truth, strict=True):
            assert rival in best if np.isfinite(score) else rival == -1
        move(oracle, rows[found], y[found], rivals[found])


@pytest.mark.parametrize("text", FULL)
@pytest.mark.parametrize("n_groups", [2, 5])
def test_a_group_is_searched_and_groups_take_turns(text, n_groups):
    oracle, X, Y, y = trained(text, 2, rounds=6, n_groups=n_groups)
    W, rows, seen = oracle.vectors.to_csr().toarray(), np.arange(len(y)), set()
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


@pytest.mark.parametrize("text", SOME)
def test_threads_do_not_change_an_answer(text):
    answers = []
    for n_jobs in (1, 2, 4):
        with parallel.Team(n_jobs) as team:
            oracle, _, _, y = trained(text, 1, n=200, C=30, team=team)
            answers.append(oracle.query(np.arange(200), y))
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 14)), max_size=60))
def test_recent_rivals_are_the_last_different_ones(added):
    recent, expected = RecentRivals(3), [[], [], []]
    recent.add(np.array([y for y, _ in added], np.int64), np.array([rival for _, rival in added], np.int64))
    for y, rival in added:
        reference.add_recent(expected[y], rival, N_RECENT)
    for y in range(3):
        assert sorted(recent.rivals[y].tolist()) == sorted(expected[y] + [-1] * (N_RECENT - len(expected[y])))


@pytest.mark.parametrize("n_groups", [1, 3])
def test_candidates_are_the_best_top_classes_and_the_recent_rivals(n_groups):
    oracle, X, Y, y = trained(SOME[2], 4, n=300, C=120, n_groups=n_groups)
    arrays, n_full = oracle.vectors.arrays, 0
    candidates = oracle.candidates(np.arange(300), y)
    for i, classes in enumerate(candidates):
        partial = reference.partial_scores(arrays.top_classes, arrays.top_values, X[i], Y[i], oracle.group, n_groups)
        best = sorted(partial.values(), reverse=True)[:N_CANDIDATES]
        found = [int(c) for c in classes[:N_CANDIDATES] if c >= 0]
        np.testing.assert_allclose([partial[c] for c in found], best, rtol=1e-5)
        assert len(set(found)) == len(found)
        assert classes[N_CANDIDATES:].tolist() == oracle.recent.rivals[y[i]].tolist()
        n_full += len(partial) > N_CANDIDATES
    assert n_full > 20  # else there was nothing to choose


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=130), st.integers(0, 129))
def test_the_first_of_the_best_scores_from_a_starting_point(scores, begin):
    padded = np.full(-(-len(scores) // SCORE_LANES) * SCORE_LANES, -np.inf, np.float32)
    padded[: len(scores)] = scores
    assert first_best(padded, begin % len(scores)) == reference.first_best(padded.tolist(), begin % len(scores))


def test_copies_of_kernels_are_equal():
    """A kernel file may not call another one, so `find` and `score` of weights_kernels have copies."""
    oracle, *_ = trained(SOME[1], 5, C=20, n=200)
    arrays, X = oracle.vectors.arrays, oracle.X
    assert weights_kernels.EMPTY == graph_kernels.EMPTY == lsh.EMPTY == exact_kernels.EMPTY
    assert lsh.WORD == tables_kernels.WORD
    assert weights_kernels.PANEL == PANEL_LABELS
    assert weights_kernels.EMPTY == reading_kernels.EMPTY
    for value, amount in ((0.5, 0.2), (-0.5, 0.2), (0.1, 0.2)):
        assert weights_kernels.truncated(value, amount) == reading_kernels.truncated(value, amount)
    for c in range(20):
        for feature in range(25):
            expected = weights_kernels.find(arrays, c, np.uint32(feature))
            assert graph_kernels.find(arrays, c, np.uint32(feature)) == expected
        for i in range(10):
            row = slice(int(X.indptr[i]), int(X.indptr[i + 1]))
            score = graph_kernels.dot(arrays, X.indices[row], X.data[row], c)
            assert score == weights_kernels.score(arrays, X, i, c)


@pytest.mark.parametrize("text", ["sw-graph:likely=no", "simple-lsh:likely=no"])
def test_a_bare_oracle_knows_neither_top_classes_nor_recent_rivals(text):
    oracle, _, _, y = trained(text, 4, n=100, C=20)
    assert oracle.candidates(np.arange(100), y).shape == (100, 0)
    assert oracle.recent.rivals.size == 0
    assert oracle.vectors.arrays.top_classes.size == 0


# --- options ---------------------------------------------------------------------------------------------------------


def test_every_oracle_has_a_default_for_each_option():
    assert {name: parse(name)[1] for name in ORACLES} == {
        "exact": {},
        "sw-graph": {"links": 8, "beam": 4, "drift": 1.0, "likely": True},
        "simple-lsh": {"bits": 64, "candidates": 16, "tables": 0, "augment": False, "likely": True},
    }
    assert parse("simple-lsh:bits=128,tables=8")[1]["tables"] == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delphi", "The 'oracle' parameter of Memoir must be one of 'exact', 'sw-graph', 'simple-lsh'"),
        (3, "The 'oracle' parameter of Memoir"),
        ("exact:beam=4", "'exact' takes no options"),
        ("sw-graph:bits=64", "'sw-graph' takes 'links' and 'beam' and 'drift' and 'likely'"),
        (
            "simple-lsh:tables=5",
            "'tables' must be 0 or divide the 64 bits of a code into keys of at most 20 bits. Got 5",
        ),
        ("simple-lsh:tables=2", "into keys of at most 20 bits. Got 2 instead."),
        ("sw-graph:beam=0", "the option 'beam' must be at least 1. Got 0 instead."),
        ("sw-graph:drift=-1", "the option 'drift' must be at least 0"),
        ("sw-graph:links=1.5", "the option 'links' must be a whole number"),
        ("simple-lsh:bits=100", "must be a multiple of 64 up to 32768. Got 100 instead."),
        ("simple-lsh:bits=65536", "must be a multiple of 64 up to 32768"),
        ("simple-lsh:augment=maybe", "the option 'augment' must be 'yes' or 'no'"),
    ],
)
def test_options_that_cannot_be_used(text, message):
    with pytest.raises(InputError, match=message):
        parse(text)


# --- sw-graph --------------------------------------------------------------------------------------------------------


def check_graph(oracle):
    """Links are mutual, different and few; the ring holds all live classes, which are those with weights."""
    graph, counts = oracle.graph, oracle.vectors.arrays.counts
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
def test_the_graph_stays_whole_while_classes_appear_move_and_disappear(changes):
    X, y = classes_problem(4, n=40, d=25, C=15)
    oracle = oracle_of("sw-graph:links=3,drift=0", X, one_hot(y, 15))
    for seed, truncated in changes:
        rng = np.random.default_rng(seed)
        rows, rivals = rng.integers(40, size=6), rng.integers(15, size=6)
        rivals = np.where(rivals == y[rows], (rivals + 1) % 15, rivals)
        move(oracle, rows, y[rows], rivals, truncated=truncated)  # 5.0 removes all weights
        check_graph(oracle)


def test_every_class_that_moved_far_is_inserted_again_and_others_are_not():
    oracle, _, _, y = trained("sw-graph:drift=1.5", 0, rounds=1)  # moved once, by less than that
    check_graph(oracle)
    oracle, _, _, y = trained("sw-graph:links=4,drift=0.3", 0, rounds=4)
    length = np.sqrt(oracle.vectors.arrays.squares)
    assert (oracle.moved < 0.3 * length + 1e-9).all()
    oracle.drift = 1e9
    before = oracle.graph.links.copy()
    move(oracle, np.arange(10), y[:10], (y[:10] + 1) % 13)
    np.testing.assert_array_equal(oracle.graph.links, before)
    assert oracle.moved.max() > 0


def test_linked_classes_are_those_with_large_inner_products():
    oracle, *_ = trained("sw-graph:links=4,beam=8,drift=0", 7, rounds=3, C=30, n=300)
    W = oracle.vectors.to_csr().toarray()
    products = W @ W.T
    linked = np.concatenate([products[c, oracle.graph.links[c, : oracle.graph.degrees[c]]] for c in range(30)])
    assert linked.mean() > products[~np.eye(30, dtype=bool)].mean() + 0.5 * products.std()


@pytest.mark.parametrize("seed", range(3))
def test_the_graph_is_that_of_its_slow_twin(seed):
    """Classes appear, move and disappear; links, ring and answers stay equal to those of a graph on dictionaries."""
    X, y = classes_problem(seed, n=60, d=40, C=25)
    Y = one_hot(y, 25)
    oracle, slow = oracle_of("sw-graph:links=3,beam=3", X, Y), reference.SlowGraph(3)
    dense, labels = X.toarray(), Y.toarray()
    vectors, graph, rng = oracle.vectors, oracle.graph, np.random.default_rng(seed)
    n_left = n_full = 0
    for salt in range(20):
        rows, rivals = rng.integers(60, size=8), rng.integers(25, size=8)
        rivals = np.where(rivals == y[rows], -1, rivals)
        vectors.step(oracle.X, rows, y[rows], rivals, 0.5)
        classes = np.unique(np.concatenate([y[rows], rivals[rivals >= 0]]))
        if salt % 3 == 2:
            vectors.truncate(classes[:3], np.full(len(classes[:3]), 5.0))
        W = vectors.to_csr().toarray().astype(np.float64)
        n_left += sum(not W[c].any() and c in slow.links for c in classes.tolist())
        room = np.empty(N_HEAVIEST, np.uint32), np.empty(N_HEAVIEST, np.float32)
        graph_kernels.relink(vectors.arrays, graph, classes, salt, *room, oracle._beam(INSERTION_BEAM))
        slow.relink(W, classes.tolist(), salt, N_HEAVIEST, INSERTION_BEAM)
        assert graph.live[: graph.n_live[0]].tolist() == slow.live
        for c, links in slow.links.items():
            assert set(graph.links[c, : graph.degrees[c]].tolist()) == set(links)
            assert int(graph.after[c]) == slow.ring[(slow.ring.index(c) + 1) % len(slow.ring)]
            n_full += len(links) == 3
        candidates = rng.integers(-1, 25, size=(60, 4))
        for group, n_groups in ((0, 1), (1, 2)):
            out = np.empty(60, np.int64)
            graph_kernels.search_rows(
                vectors.arrays, graph, oracle.X, oracle.Y, np.arange(60), np.column_stack([y, candidates]), group,
                n_groups, salt, oracle._beam(3), out,
            )  # fmt: skip
            expected = [
                slow.search_row(
                    W,
                    dense[i],
                    i,
                    int(y[i]),
                    candidates[i].tolist(),
                    np.flatnonzero(labels[i]),
                    group,
                    n_groups,
                    salt,
                    3,
                )
                for i in range(60)
            ]
            assert out.tolist() == expected
    assert n_left > 2
    assert n_full > 50


def test_the_heaviest_weights_of_a_class():
    oracle, *_ = trained(SOME[1], 2, C=10, n=200)
    W = oracle.vectors.to_csr().toarray()
    for c in range(10):
        features, values = np.empty(5, np.uint32), np.empty(5, np.float32)
        n = graph_kernels.heaviest(oracle.vectors.arrays, c, features, values)
        expected = reference.heaviest(W[c], 5)
        assert features[:n].tolist() == expected
        np.testing.assert_allclose(values[:n], W[c, expected])


# --- simple-lsh ------------------------------------------------------------------------------------------------------


def test_popcount_counts_bits():
    words = np.random.default_rng(0).integers(2**63, size=50).astype(np.uint64)
    X = canonical_csr(sp.csr_array(np.eye(2, dtype=np.float32)))
    rows = oracle_of("simple-lsh", X, one_hot(np.array([0, 1]), 2)).X
    directions = np.zeros((2, 64), np.int8)  # the row's code is 0, so distances are numbers of bits
    room = lsh.hamming_room(64, 50)
    lsh.nearest_codes(rows, np.zeros(1, np.int64), directions, words[:, None], room, np.empty((1, 50), np.int32))
    assert room.distances.tolist() == [int(word).bit_count() for word in words]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([64, 192]))
def test_the_nearest_codes_are_found(seed, n_wanted, n_bits):
    rng = np.random.default_rng(seed)
    codes = rng.integers(2**64, size=(14, n_bits // 64), dtype=np.uint64)
    codes[5] = codes[6]
    X, _ = classes_problem(seed, n=3, d=10, C=3)
    directions = rng.integers(-127, 127, size=(10, n_bits)).astype(np.int8)
    own = np.packbits(X.toarray() @ directions.astype(np.float32) > 0, axis=1, bitorder="little").view(np.uint64)
    out = np.empty((3, n_wanted), np.int32)
    rows = oracle_of("simple-lsh", X, one_hot(np.arange(3), 3)).X
    lsh.nearest_codes(rows, np.arange(3), directions, codes, lsh.hamming_room(n_bits, 14), out)
    for k in range(3):
        distances = np.array([sum(int(a ^ b).bit_count() for a, b in zip(code, own[k], strict=True)) for code in codes])
        found = out[k][out[k] >= 0]
        assert found.tolist() == sorted(set(found.tolist()))
        assert len(found) == min(n_wanted, 14)
        assert sorted(distances[found]) == sorted(distances)[: len(found)]


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("truncated", [0.0, 0.02])
def test_codes_kept_while_classes_move_are_those_of_the_weights(augment, truncated):
    oracle, _, _, y = trained(f"simple-lsh:augment={YES_NO[augment]}", 3, rounds=2)
    move(oracle, np.arange(30), y[:30], (y[:30] + 4) % 13, truncated=truncated)
    factor = oracle.vectors.shrink(1e-9)  # stored values are multiplied out
    assert factor < 1
    oracle.rescale(factor)
    move(oracle, np.arange(30), y[:30], (y[:30] + 5) % 13, eta=1e-9)
    V = oracle.vectors.to_csr().toarray().astype(np.float64)
    projected = V @ oracle.directions
    if augment:
        norms = (V**2).sum(axis=1)
        assert oracle.max_length**2 >= norms.max() * (1 - 1e-6)
        projected += np.sqrt(oracle.max_length**2 - norms)[:, None] * oracle.last_direction
    bits = np.unpackbits(oracle.codes[oracle.line_of].view(np.uint8), axis=1, bitorder="little")
    clear = np.abs(projected) > 1e-4 * np.abs(projected).max()
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(bits[clear], (projected > 0)[clear])


@pytest.mark.parametrize("augment", [False, True])
def test_bits_collide_as_often_as_theory_says(augment):
    """A bit is equal in the codes of x and w with probability 1 - angle / pi, where cos(angle) = x.w / (|x| M) with
    M = max |w|, or M = |w| without `augment`."""
    rng, n_bits, d = np.random.default_rng(0), 4096, 12
    X = canonical_csr(sp.csr_array(rng.normal(size=(6, d)).astype(np.float32)))
    oracle = oracle_of(f"simple-lsh:bits={n_bits},augment={YES_NO[augment]}", X, one_hot(np.arange(6), 6), seed=5)
    move(oracle, np.arange(6), np.arange(6), (np.arange(6) + 1) % 6, eta=0.7)
    W, dense = oracle.vectors.to_csr().toarray(), X.toarray()
    bits = np.unpackbits(oracle.codes[oracle.line_of].view(np.uint8), axis=1, bitorder="little")
    own = dense @ (oracle.directions / STEPS) > 0
    length = oracle.max_length if augment else np.linalg.norm(W, axis=1)
    cosine = dense @ W.T / (np.linalg.norm(dense, axis=1)[:, None] * length)
    theory = 1 - np.arccos(cosine) / np.pi
    measured = np.array([[(own[i] == bits[c]).mean() for c in range(6)] for i in range(6)])
    assert theory.max() - theory.min() > 0.3
    assert np.abs(measured - theory).max() < 4.5 * 0.5 / np.sqrt(n_bits)


# --- hash tables of simple-lsh ---------------------------------------------------------------------------------------


def keys_of(code, n_tables):
    """The keys of a code: consecutive pieces of its bits, first bit first."""
    bits = np.unpackbits(code.view(np.uint8), bitorder="little")
    return [int("".join(map(str, piece[::-1])), 2) for piece in np.split(bits, n_tables)]


def members(tables, table, key):
    """The classes of a list, and a check that it can be walked back."""
    found, before = [], tables_kernels.NONE
    c = int(tables.heads[table, key])
    while c != tables_kernels.NONE:
        assert tables.before[table, c] == before
        assert tables.keys[table, c] == key
        found.append(c)
        before, c = c, int(tables.after[table, c])
    return found


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([0.0, 0.05, 5.0])), min_size=1, max_size=6),
    st.sampled_from([4, 16, 64]),
    st.booleans(),
)
def test_every_class_with_weights_is_in_the_lists_of_its_code(changes, n_tables, augment):
    X, y = classes_problem(4, n=40, d=25, C=15)
    oracle = oracle_of(f"simple-lsh:tables={n_tables},augment={YES_NO[augment]}", X, one_hot(y, 15))
    for seed, truncated in changes:
        rng = np.random.default_rng(seed)
        rows, rivals = rng.integers(40, size=6), rng.integers(15, size=6)
        rivals = np.where(rivals == y[rows], (rivals + 1) % 15, rivals)
        move(oracle, rows, y[rows], rivals, truncated=truncated)  # 5.0 removes all weights
        counts = oracle.vectors.arrays.counts
        wanted = {
            (table, key): set()
            for c in np.flatnonzero(counts)
            for table, key in enumerate(keys_of(oracle.codes[oracle.line_of[c]], n_tables))
        }
        for c in np.flatnonzero(counts).tolist():
            for table, key in enumerate(keys_of(oracle.codes[oracle.line_of[c]], n_tables)):
                wanted[table, key].add(c)
        for (table, key), classes in wanted.items():
            assert set(members(oracle.tables, table, key)) == classes
        assert (oracle.tables.keys >= 0).any(axis=0).tolist() == (counts > 0).tolist()


@pytest.mark.parametrize(("n_tables", "n_bits"), [(8, 64), (16, 64), (48, 192)])
@pytest.mark.parametrize(("group", "n_groups"), [(0, 1), (1, 3)])
def test_the_nearest_of_the_classes_that_share_a_key_are_found(n_tables, n_bits, group, n_groups):
    oracle, X, Y, _ = trained(f"simple-lsh:bits={n_bits},tables={n_tables},candidates=4", 3, n=60, C=40)
    oracle.group, oracle.n_groups = group, n_groups
    found = oracle._from_tables(np.arange(60))
    own = np.packbits(X @ oracle.directions.astype(np.float32) > 0, axis=1, bitorder="little").view(np.uint64)
    n_found = 0
    for i in range(60):
        keys = keys_of(own[i], n_tables)
        near = []
        for c in range(group, 40, n_groups):
            code = oracle.codes[oracle.line_of[c]]
            meets = any(a == b for a, b in zip(keys, keys_of(code, n_tables), strict=True))
            if meets and oracle.vectors.arrays.counts[c] and not Y[i, c]:
                near.append((sum(int(a ^ b).bit_count() for a, b in zip(code, own[i], strict=True)), c))
        expected = [c for _, c in sorted(near)[:4]]
        assert found[i].tolist() == expected + [-1] * (4 - len(expected))
        n_found += len(expected)
    assert n_found > 10
