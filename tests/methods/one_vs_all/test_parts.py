"""Parts of weight rows: stacked in any order of arrival, merged, and sent through disk."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail as lt
from longtail.errors import InputError
from longtail.hybrid import split
from longtail.methods.one_vs_all.parts import FIGURES, WeightStack, merged, part_of, weights_of
from longtail.methods.problem import Block, Part
from longtail.models import LinearModel, ShardedModel
from longtail.models.sharded import divided
from longtail.parallel import Work
from longtail.store import Shelf
from tests.methods.one_vs_all.problems import problem_of, text_like


def part(labels, rows, number=0):
    """A part with these dense weight rows; its figures can be told apart."""
    labels = np.asarray(labels)
    figures = labels[:, None] + np.arange(4) / 10
    status, n_iter = np.full(len(labels), number % 3, np.uint8), labels.astype(np.int32)
    return part_of(Block(number, labels, 1.0), labels, sp.csr_array(rows), status, n_iter, figures)


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 8))
@settings(deadline=None)
def test_rows_end_in_the_order_of_labels_and_twins_share_them(seed, n_labels, block):
    rng = np.random.default_rng(seed)
    twins = np.array([rng.integers(label + 1) for label in range(n_labels)])
    while (twins != twins[twins]).any():  # a twin's twin is a twin: take the first of the chain
        twins = twins[twins]
    dense = (rng.random((n_labels, 5)) * (rng.random((n_labels, 5)) < 0.5)).astype(np.float32)
    labels, stack = rng.permutation(np.unique(twins)), WeightStack(twins, 4, 1.0)
    for start in range(0, len(labels), block):
        some = labels[start : start + block]
        stack.add(part(some, dense[some]))
    assert not stack.pending
    model = stack.model()
    assert (model.n_features, model.bias) == (4, 1.0)
    model.W.check_format(full_check=True)
    np.testing.assert_array_equal(model.W.toarray(), dense[twins])


class InMemory(Shelf):
    """A shelf that keeps the shards as they are, and says how much the stack held at a time."""

    def __init__(self):
        self.sizes = []

    def put(self, shard):
        self.sizes.append(shard.n_weights)
        return LinearModel(shard.W.copy(), shard.n_features, shard.bias)


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 8), st.integers(1, 40))
@settings(deadline=None)
def test_shards_on_a_shelf_are_those_of_the_whole_model(seed, n_labels, block, most):
    rng = np.random.default_rng(seed)
    twins = np.array([rng.integers(label + 1) for label in range(n_labels)])
    while (twins != twins[twins]).any():
        twins = twins[twins]
    dense = (rng.random((n_labels, 5)) * (rng.random((n_labels, 5)) < 0.5)).astype(np.float32)
    labels, stack, shelf = rng.permutation(np.unique(twins)), WeightStack(twins, 4, 1.0), InMemory()
    stack.use_shelf(shelf, most)
    for start in range(0, len(labels), block):
        some = labels[start : start + block]
        stack.add(part(some, dense[some]))
        assert stack.data.size <= max(most, 5) * 1.05
    model, wanted = stack.model(), divided(LinearModel(sp.csr_array(dense[twins]), 4, 1.0), most)
    assert type(model) is type(wanted)
    if isinstance(model, ShardedModel):
        assert [shard.n_labels for shard in model.shards] == [shard.n_labels for shard in wanted.shards]
        assert max(shelf.sizes) <= max(most, 5)
    np.testing.assert_array_equal(model.W.toarray(), dense[twins])


def test_too_many_shards_are_an_error_that_loses_nothing():
    stack = WeightStack(np.arange(300), 2, 0.0)
    stack.use_shelf(InMemory(), 1)
    with pytest.raises(
        InputError, match="more than 256 shards of 8 bytes; start the run again with a larger shard_size"
    ):
        stack.add(part(np.arange(300), np.ones((300, 2), np.float32)))


def test_consecutive_blocks_leave_nothing_waiting():
    dense, stack = np.eye(9, dtype=np.float32), WeightStack(np.arange(9), 9, 0.0)
    for start in range(0, 9, 3):
        stack.add(part(np.arange(start, start + 3), dense[start : start + 3]))
        assert not stack.pending
        assert stack.n_rows == start + 3


def test_merged_takes_the_chosen_labels_of_all_parts():
    rng = np.random.default_rng(0)
    dense = (rng.random((5, 4)) * (rng.random((5, 4)) < 0.5)).astype(np.float32)
    found = merged([part([8, 3, 5], dense[:3], 1), part([3, 7], dense[3:], 2)], np.array([4, 0, 3]), 4)
    assert found.block == 1
    assert found.items.tolist() == [7, 8, 3]
    np.testing.assert_array_equal(weights_of(found, 4).toarray(), dense[[4, 0, 3]])
    assert found.status.tolist() == [2, 1, 2]
    assert found.n_iter.tolist() == [7, 8, 3]
    for column, name in enumerate(FIGURES):
        np.testing.assert_allclose(found.figures[name], np.array([7, 8, 3]) + column / 10)


def through_disk(part, folder):
    """The part as another process would read it."""
    named = {**part.arrays, **part.figures, "items": part.items, "status": part.status, "n_iter": part.n_iter}
    for name, array in named.items():
        assert array.dtype.str in ("<f4", "<f8", "<i4", "<i8", "|u1", "<u2")
        np.save(folder / f"{part.block}-{name}.npy", array, allow_pickle=False)
    read = {name: np.load(folder / f"{part.block}-{name}.npy", mmap_mode="r") for name in named}
    arrays, figures = ({name: read[name] for name in names} for names in (part.arrays, part.figures))
    return Part(part.block, read["items"], arrays, read["status"], read["n_iter"], figures)


@pytest.mark.parametrize("params", [{}, {"solver": "newton", "start": "tree"}, {"solver": "newton"}, {"tol": 1e-9}])
def test_parts_from_disk_in_any_order_make_the_model_of_fit(tmp_path, params):
    X, Y = text_like(3, n=150, d=80, L=40)
    Y = sp.csr_array(sp.hstack([Y, Y[:, :5]]))  # the last five are twins
    expected = lt.OneVsAll(block_size=7, n_jobs=1, **params).fit(X, Y).model_.all_weights()
    parts = []
    rows = split(X)  # as `fit` does
    for block in problem_of(rows, Y, block_size=7, **params).blocks():
        problem = problem_of(rows, Y, block_size=7, **params)  # another process makes its own
        parts.append(through_disk(problem.solve(block, Work()), tmp_path))
    assert len(parts) >= 5
    for order in (range(len(parts)), reversed(range(len(parts))), np.random.default_rng(0).permutation(len(parts))):
        stack = problem.stack()
        for number in order:
            stack.add(parts[number])
        W = stack.model().W
        for name in ("data", "indices", "indptr"):
            assert getattr(W, name).tobytes() == getattr(expected, name).tobytes()
