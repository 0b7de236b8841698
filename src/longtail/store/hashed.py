"""Conversion of a HashedModel to arrays and back: packed weights by feature, the seeds of the hashes, and their
table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from longtail import content, matrix
from longtail.errors import ModelError
from longtail.models import HashedModel
from longtail.models.buckets import LINKS, LinearBuckets
from longtail.models.hashed import AGGREGATES
from longtail.models.hashing import MAX_BUCKETS, PRIME, Hashes
from longtail.store.form import Form
from longtail.store.meta import member

MODEL = HashedModel


def to_arrays(model: HashedModel, root: Path, form: Form) -> tuple[Iterator[tuple[str, np.ndarray]], dict[str, Any]]:
    """Return the arrays of the model and its metadata. The model has no index besides its weights."""
    buckets, hashes = model.buckets, model.hashes
    if not isinstance(buckets, LinearBuckets):
        raise ModelError(
            root,
            "cannot save a model whose bucket classifiers are not linear: only weights are saved, never objects; train "
            "with the built-in base or a linear one, such as LogisticRegression",
        )
    seeds = np.stack([hashes.a, hashes.b], axis=1)
    arrays = {**buckets.to_arrays(), "hash_seeds": seeds, "hash_table": hashes.table}
    _check_buckets(buckets, model.n_features, root)
    return iter(arrays.items()), {"n_buckets": hashes.n_buckets, "link": buckets.link, "aggregate": model.aggregate}


def from_arrays(
    arrays: dict[str, np.ndarray], meta: dict[str, Any], n_labels: int, n_features: int, bias: float, where: Path
) -> dict[str, Any]:
    """Return the hashes and bucket classifiers, after checks."""
    n_buckets = member(meta, "n_buckets", int, where)
    link, aggregate = member(meta, "link", str, where), member(meta, "aggregate", str, where)
    if link not in LINKS or aggregate not in AGGREGATES:
        raise ModelError(where, f"has link {link[:20]!r} and aggregate {aggregate[:20]!r}, which this version lacks")
    if not 1 <= n_buckets <= MAX_BUCKETS:
        raise ModelError(where, f"n_buckets {n_buckets} is not a number from 1 to {MAX_BUCKETS}")
    hashes = _hashes(arrays, n_labels, n_buckets, where)
    buckets = LinearBuckets.from_arrays(_weights(arrays, where), n_buckets, bias, link)
    if len(buckets.steps) != hashes.n_repetitions:
        raise ModelError(where, f"W_steps has {len(buckets.steps)} numbers for {hashes.n_repetitions} repetitions")
    _check_buckets(buckets, n_features, where)
    return {"hashes": hashes, "buckets": buckets, "aggregate": aggregate}


def _hashes(arrays: dict[str, np.ndarray], n_labels: int, n_buckets: int, where: Path) -> Hashes:
    seeds = content.take(arrays, "hash_seeds", "<i8", 2, where)
    if seeds.shape[1] != 2 or not len(seeds) or (seeds < [1, 0]).any() or (seeds >= PRIME).any():
        raise ModelError(where, "hash_seeds must be pairs a, b with 0 < a < 2^31 - 1 and 0 <= b < 2^31 - 1")
    hashes = Hashes(np.ascontiguousarray(seeds[:, 0]), np.ascontiguousarray(seeds[:, 1]), n_labels, n_buckets)
    table = content.take(arrays, "hash_table", hashes.dtype.str, 2, where)
    if not hashes.adopt(table):
        raise ModelError(where, f"hash_table is not what hash_seeds give for {n_labels} labels in {n_buckets} buckets")
    return hashes


def _weights(arrays: dict[str, np.ndarray], where: Path) -> dict[str, np.ndarray]:
    dtypes: dict[str, str | tuple[str, ...]] = {"W_ends": "<i8", "W_codes": ("<f4", "|u1"), "W_steps": "<f4"}
    if "W_columns" in arrays:
        dtypes["W_columns"] = ("<u2", "<i4")
    return {name: content.take(arrays, name, dtype, 1, where) for name, dtype in dtypes.items()}


def _check_buckets(buckets: LinearBuckets, n_features: int, where: Path) -> None:
    """Raise ModelError if the packed weights are invalid, because kernels do not check them."""
    ends = buckets.ends.view(np.int64)
    codes = buckets.codes
    columns = buckets.columns
    if not (np.isfinite(buckets.steps).all() and (buckets.steps > 0).all()):
        raise ModelError(where, "W_steps must be finite and above 0")
    if codes.dtype == np.float32 and not np.isfinite(codes).all():
        raise ModelError(where, "W_codes holds NaN or infinity")
    shape = (n_features + 1, buckets.n_columns)
    if columns is not None:
        if (columns.dtype == np.uint32) != (shape[1] > 2**16):
            raise ModelError(where, f"W_columns has the wrong type for {shape[1]:,} columns")
        content.check_csr(ends, columns, None, shape, "W", where, names=("ends", "columns"))
        if len(codes) != len(columns):
            raise ModelError(where, f"W_codes has {len(codes):,} numbers for {len(columns):,} columns")
        return
    if matrix.pointer_fault(ends, shape[0], codes.size):
        raise ModelError(
            where, f"W_ends does not divide {codes.size:,} weights among {n_features:,} features and the bias"
        )
    counts = np.diff(ends)
    if ((counts != 0) & (counts != shape[1])).any():
        raise ModelError(where, f"W_columns is absent, but a feature has other than 0 or {shape[1]:,} weights")
