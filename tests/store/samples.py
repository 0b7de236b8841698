"""Small models for the tests of the store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from longtail.data import TextFeatures
from longtail.models import HashedModel, LinearModel, Model, ShardedModel
from longtail.models.buckets import LinearBuckets
from longtail.models.hashing import Hashes
from longtail.store import Form, Provenance, write_model
from longtail.training import Training

TEXTS = ["red apple", "green apple", "red cherry"]
RECORD = Training(
    unit="label",
    status=np.array([0, 0, 1], np.uint8),
    n_iter=np.array([2, 3, 100], np.int32),
    block_status=np.array([1], np.uint8),
    block_n_iter=np.array([100], np.int32),
    block_seconds=np.array([0.5], np.float32),
    figures={"gap": np.array([0.0, 0.001, 0.2])},
    settings={"C": 2.0, "random_state": 0},
    wall_seconds=0.5,
    cpu_seconds=0.75,
    peak_bytes=1e8,
)
PROVENANCE = Provenance("one-vs-all", {"C": 2.0, "loss": "squared_hinge"}, RECORD)


def plain_model(seed: int = 0) -> LinearModel:
    """Three arrays and no names; eleven weights, an empty row."""
    weights = np.random.default_rng(seed).normal(size=11).astype(np.float32)
    W = sp.csr_array((weights, [0, 2, 5, 1, 2, 3, 4, 5, 0, 3, 5], [0, 3, 3, 8, 11]), shape=(4, 6))
    return LinearModel(W, 5, 1.0)


def text_model(seed: int = 0) -> LinearModel:
    """Every kind of array that a model folder may have."""
    features = TextFeatures().fit(TEXTS)
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(3, 5)).astype(np.float32)
    W[1, 2] = 0
    return LinearModel(sp.csr_array(W), 4, 1.0, label_names=np.array(["b", "é", ""]), text_features=features)


def number_model() -> LinearModel:
    """Names that are numbers, and feature names of its own."""
    W = sp.csr_array(np.array([[1.0, 0.0], [0.5, -2.0]], np.float32))
    return LinearModel(W, 2, 0.0, multiclass=True, label_names=np.array([30, -7]), feature_names=["x", "y"])


def hashed_model(*, density: float = 0.3, weights: str = "int8", n_buckets: int = 3) -> HashedModel:
    """Seven labels in two repetitions over four features and the bias; with columns, or without if all is dense."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(4, 2 * n_buckets))
    W.flat[rng.permutation(W.size)[int(density * W.size) :]] = 0
    hashes = Hashes(np.array([5, 2**31 - 2]), np.array([0, 7]), 7, n_buckets)
    buckets = LinearBuckets.packed(
        W.astype(np.float32), np.array([0, 1, 3, 4]), 4, n_buckets, 1.0, "softmax", weights=weights
    )
    return HashedModel(hashes, buckets, 4, multiclass=True, label_names=np.array(list("abcdefg")))


def indexed_model(n_labels: int = 40) -> LinearModel:
    """A model whose index has lists, columns and spill. Feature 3 is in all labels, and has large weights in few."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(n_labels, 7)) * (rng.random((n_labels, 7)) < 0.1)
    W[:, 3] = rng.normal(size=n_labels)
    W[: n_labels // 300, 3] *= 1000
    names = np.array([f"name {label}" for label in range(n_labels)])
    return LinearModel(sp.csr_array(W.astype(np.float32)), 6, 1.0, label_names=names)


def sharded_model() -> ShardedModel:
    """Three shards, one of them without weights."""
    W = sp.csr_array(np.array([[1, 0, 2], [0, 0, 0], [0, 0, 0], [0, 3, 0], [4, 5, 6]], np.float32))
    pieces = (W[:1], W[1:3], W[3:])
    return ShardedModel(tuple(LinearModel(piece, 2, 1.0) for piece in pieces), 2, label_names=np.array(list("abcde")))


def save(root: Path, model: Model, *, index: bool | None = None) -> Path:
    write_model(root, model, PROVENANCE, form=Form(index=index))
    return root


def save_indexed(root: Path, model: Model) -> Path:
    return save(root, model, index=True)


def assert_same_model(found: Model, model: Model) -> None:
    assert type(found) is type(model)
    if isinstance(model, HashedModel):
        _assert_same_buckets(found, model)
    else:
        assert found.W.shape == model.W.shape
        assert found.W.dtype == np.float32
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(found.W, name), getattr(model.W, name))
    assert (found.n_features, found.bias, found.multiclass) == (model.n_features, model.bias, model.multiclass)
    for names, wanted in ((found.label_names, model.label_names), (found.feature_names, model.feature_names)):
        assert (names is None) == (wanted is None)
        assert names is None or list(names) == list(wanted)
    assert (found.text_features is None) == (model.text_features is None)
    if model.text_features is not None:
        X, wanted = found.text_features.transform(TEXTS), model.text_features.transform(TEXTS)
        assert (wanted != X).nnz == 0


def assert_same_provenance(found: Provenance, wanted: Provenance) -> None:
    assert (found.method, found.params) == (wanted.method, wanted.params)
    assert found.training is not None
    assert wanted.training is not None
    (arrays, meta), (wanted_arrays, wanted_meta) = found.training.to_arrays(), wanted.training.to_arrays()
    assert meta == wanted_meta
    assert arrays.keys() == wanted_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, wanted_arrays[name])


def _assert_same_buckets(found: HashedModel, model: HashedModel) -> None:
    for name in ("a", "b", "table"):
        np.testing.assert_array_equal(getattr(found.hashes, name), getattr(model.hashes, name))
    for name in ("ends", "codes", "columns", "steps"):
        array, wanted = getattr(found.buckets, name), getattr(model.buckets, name)
        assert (array is None) == (wanted is None)
        assert wanted is None or (array.dtype == wanted.dtype and np.array_equal(array, wanted))
    for name in ("n_buckets", "bias", "link"):
        assert getattr(found.buckets, name) == getattr(model.buckets, name)
    assert (found.hashes.n_labels, found.aggregate) == (model.hashes.n_labels, model.aggregate)
