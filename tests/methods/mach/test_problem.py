"""The problem of MACH on the seam: parts that survive a disk, any order, any grouping, any number of threads."""

from __future__ import annotations

import io
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from longtail import parallel
from longtail.methods.mach import descent, problem
from longtail.methods.mach.bases import BasesProblem, _one_blas_thread
from longtail.methods.mach.problem import Kept, MachProblem, n_groups
from longtail.methods.problem import Part
from longtail.models.hashing import Hashes
from longtail.parallel import Work
from longtail.training import Status, combine
from tests.methods.mach.test_descent import DESCENT
from tests.methods.mach.test_descent import descent as descent_with
from tests.methods.mach.test_descent import problem as data
from tests.store.samples import assert_same_model

PLAIN = {"float32", "float64", "int32", "int64", "uint8", "uint16"}


def through_disk(part: Part) -> Part:
    """The part after np.save and np.load, as another process would read it."""

    def trip(array):
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        file.seek(0)
        return np.load(file)

    every = [*part.arrays.values(), *part.figures.values(), part.items, part.status, part.n_iter]
    assert {array.dtype.name for array in every} <= PLAIN | {"object"}
    return Part(
        part.block,
        trip(part.items),
        {name: trip(array) for name, array in part.arrays.items()},
        trip(part.status),
        trip(part.n_iter),
        {name: trip(array) for name, array in part.figures.items()},
    )


def solved(whole, *, n_jobs=1, change=lambda parts: parts):
    """The model of a problem, with a change to the list of its parts."""
    stack = whole.stack()
    for part in change([*whole.earlier(), *parallel.solve(whole.solve, whole.blocks(), n_jobs)]):
        stack.add(part)
    return stack.model()


@pytest.mark.parametrize("link", descent.LINKS)
@pytest.mark.parametrize(
    "changes", [{}, {"lam": 2.0}, {"early_stopping": True, "max_iter": 6}, {"batch_size": 5}, {"weights": "float32"}]
)
def test_grouping_threads_and_order_do_not_change_a_byte(link, changes, monkeypatch):
    """Groups of 1 to 5 repetitions, calls of few and of many rows, parts in reversed order and through a disk."""
    X, Y = data(link, n=60)
    how = descent_with(**{"weights": "int8", "max_iter": 2, **changes})

    def whole():
        return MachProblem(X, Y, Hashes.draw(9, 5, range(5), 0), how, link)

    expected, sizes = solved(whole()), set()
    for n_jobs, work, columns in ((2, 1e9, 1024), (4, 1.0, 25), (2, 1e3, 10), (1, 1e9, 1)):
        monkeypatch.setattr(descent, "WORK_PER_CALL", work)
        monkeypatch.setattr(problem, "COLUMNS_TOGETHER", columns)
        sizes.add(len(whole().blocks()))
        assert_same_model(solved(whole(), n_jobs=n_jobs), expected)
        assert_same_model(solved(whole(), change=lambda parts: [through_disk(part) for part in parts[::-1]]), expected)
    assert sizes == {1, 2, 3, 5}


@pytest.mark.parametrize("link", descent.LINKS)
@pytest.mark.parametrize("changes", [{}, {"lam": 2.0}, {"early_stopping": True, "max_iter": 6}, {"batch_size": 5}])
def test_threads_that_share_a_block_do_not_change_a_byte(link, changes, monkeypatch):
    """One group of three repetitions, trained by up to 13 threads: more than it has repetitions, even than buckets."""
    X, Y = data(link, n=60)
    how = descent_with(**{"weights": "int8", "max_iter": 2, **changes})
    monkeypatch.setattr(descent, "MIN_BUCKETS", 1)
    whole = MachProblem(X, Y, Hashes.draw(9, 4, range(3), 0), how, link)
    (block,) = whole.blocks()
    wanted, pieces = whole.solve(block, parallel.Work(1)), []
    for n_threads in (2, 3, 4, 6, 13):
        pieces.append(len(descent.thread_shares(3, 4, link, n_threads)))
        found = whole.solve(block, parallel.Work(n_threads))
        assert {name: array.tobytes() for name, array in found.arrays.items()} == {
            name: array.tobytes() for name, array in wanted.arrays.items()
        }
        for name in ("status", "n_iter"):
            assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
        for name, figure in wanted.figures.items():
            np.testing.assert_array_equal(found.figures[name], figure)
    assert pieces == ([2, 3, 3, 3, 3] if link == "softmax" else [2, 3, 6, 6, 12])


@pytest.mark.parametrize("link", descent.LINKS)
def test_threads_divide_all_columns_and_a_softmax_is_never_divided(link):
    for n_repetitions, n_buckets, n_threads in product((1, 2, 5), (2, 100, 513), (1, 2, 3, 8, 64)):
        pieces = descent.thread_shares(n_repetitions, n_buckets, link, n_threads)
        covered = [(r, b) for repetitions, buckets in pieces for r in repetitions for b in buckets]
        assert sorted(covered) == list(product(range(n_repetitions), range(n_buckets)))
        assert len(covered) == len(set(covered))
        if link == "softmax":
            assert {buckets for _, buckets in pieces} == {range(n_buckets)}
            assert len(pieces) == min(n_threads, n_repetitions)
        elif n_buckets == 513:
            assert len(pieces) >= min(n_threads, n_repetitions * 513 // descent.MIN_BUCKETS)
        assert all(len(buckets) >= min(n_buckets, descent.MIN_BUCKETS) or buckets.stop == n_buckets
                   for _, buckets in pieces)  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [((8, 512), 4), ((25, 32), 1), ((3, 4096), 3), ((2, 512), 2), ((1, 2048), 1), ((8, 128), 2), ((32, 128), 4)],
)
def test_few_repetitions_are_trained_together(sizes, groups):
    assert n_groups(*sizes) == groups


def test_the_plan_covers_every_new_repetition_once():
    X, Y = data("softmax")
    whole = MachProblem(X, Y, Hashes.draw(9, 512, range(7), 0), DESCENT, "softmax")
    blocks = whole.blocks()
    assert [block.number for block in blocks] == [0, 1, 2, 3]
    assert np.concatenate([block.items for block in blocks]).tolist() == list(range(7))
    assert [block.cost for block in blocks] == [2.0, 2.0, 2.0, 1.0]
    assert whole.item_of().tolist() == list(range(7))
    assert whole.earlier() == []


def test_kept_repetitions_are_a_part_that_needs_no_solving():
    X, Y = data("softmax")
    hashes = Hashes.draw(9, 5, range(6), 0)
    old_hashes = Hashes.draw(9, 5, range(2), 0)
    old = MachProblem(X, Y, old_hashes, descent_with(early_stopping=True, max_iter=3), "softmax")
    parts = [old.solve(block, Work()) for block in old.blocks()]
    record = combine({part.block: part for part in parts}, "repetition", old.item_of(), old.settings)
    stack = old.stack()
    for part in parts:
        stack.add(part)
    kept = Kept(stack.model(), record)
    longer = MachProblem(X, Y, hashes, descent_with(early_stopping=True, max_iter=3), "softmax", kept=kept)
    (part,) = longer.earlier()
    assert (part.block, part.items.tolist()) == (0, [0, 1])
    for name in ("status", "n_iter"):
        np.testing.assert_array_equal(getattr(part, name), getattr(record, name))
    for name in ("best_iter", "validation_score"):
        np.testing.assert_array_equal(part.figures[name], record.figures[name])
    assert [block.number for block in longer.blocks()] == [1]
    assert np.concatenate([block.items for block in longer.blocks()]).tolist() == [2, 3, 4, 5]
    whole = MachProblem(X, Y, hashes, descent_with(early_stopping=True, max_iter=3), "softmax")
    assert_same_model(solved(longer, change=lambda parts: [through_disk(part) for part in parts[::-1]]), solved(whole))


def test_statuses_say_which_repetitions_stopped_early():
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.normal(size=(200, 30)).astype(np.float32))
    Y = sp.csr_array((np.ones(200, np.int32), rng.integers(0, 6, 200), np.arange(201)), shape=(200, 6))
    how = descent_with(early_stopping=True, max_iter=4, n_iter_no_change=2)
    whole = MachProblem(X, Y, Hashes.draw(6, 3, range(8), 0), how, "softmax")
    parts = [whole.solve(block, Work()) for block in whole.blocks()]
    status = np.concatenate([part.status for part in parts])
    n_iter = np.concatenate([part.n_iter for part in parts])
    np.testing.assert_array_equal(status == Status.EARLY_STOPPED, n_iter < 4)
    assert set(status.tolist()) == {Status.EARLY_STOPPED, Status.COMPLETED}


def test_progress_of_a_block_rises_to_one():
    X, Y = data("softmax")
    whole = MachProblem(X, Y, Hashes.draw(9, 5, range(2), 0), descent_with(max_iter=4), "softmax")
    shares = []
    whole.solve(whole.blocks()[0], Work(1, shares.append))
    assert shares == [0.25, 0.5, 0.75, 1.0]


# --- scikit-learn bases ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [LogisticRegression(), DecisionTreeClassifier(random_state=0)])
def test_parts_of_bases_come_in_any_order_but_stay_in_this_process(base):
    X, Y = data("softmax", n=60)
    whole = BasesProblem(X, Y, Hashes.draw(9, 5, range(3), 0), base)
    assert [block.items.tolist() for block in whole.blocks()] == [[0], [1], [2]]
    found = solved(whole, n_jobs=2, change=lambda parts: parts[::-1]).buckets.probabilities(X)
    np.testing.assert_array_equal(found, solved(whole).buckets.probabilities(X))
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        through_disk(whole.solve(whole.blocks()[0], Work()))


def test_blas_is_limited_until_the_last_block_is_done():
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        first, second = _one_blas_thread(), _one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == before
