"""As test_hostile.py, for hashed models: hashes, packed weights and their meta data are all checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.forge import Forgery, sealed
from tests.store.samples import assert_same_model, hashed_model, save
from tests.store.test_hostile import BIG, MAX, assert_refused, at, both, loaded, meta, put, values

TABLE = "hash_table is not what hash_seeds give"
SEEDS = "hash_seeds must be pairs a, b"
HASHED = {
    "seeds absent": (lambda f: f.entries.pop("hash_seeds"), "lists no array hash_seeds"),
    "seeds of one dimension": (values("hash_seeds", np.ravel), "hash_seeds has dtype <i8 and 1 dimensions"),
    "seeds in threes": (put("hash_seeds", [[1, 2, 3]]), SEEDS),
    "no seeds": (put("hash_seeds", np.empty((0, 2), np.int64)), SEEDS),
    "a zero": (values("hash_seeds", at(((0, 0), 0))), SEEDS),
    "a negative": (values("hash_seeds", at(((0, 0), -5))), SEEDS),
    "b negative": (values("hash_seeds", at(((1, 1), -1))), SEEDS),
    "a the prime": (values("hash_seeds", at(((0, 0), 2**31 - 1))), SEEDS),
    "b huge": (values("hash_seeds", at(((0, 1), MAX))), SEEDS),
    "other seeds": (values("hash_seeds", at(((0, 0), 6))), TABLE),
    "bucket too large": (values("hash_table", at(((2, 1), 255))), TABLE),
    "another bucket": (values("hash_table", lambda a: (a + 1) % 3), TABLE),
    "table short": (values("hash_table", lambda a: a[:-1]), TABLE),
    "table of one repetition": (values("hash_table", lambda a: a[:, :1]), TABLE),
    "table of another type": (values("hash_table", lambda a: a.astype(np.uint16)), "hash_table has dtype <u2 and 2"),
    "table absent": (lambda f: f.entries.pop("hash_table"), "lists no array hash_table"),
    "repetition without steps": (
        both(values("hash_seeds", lambda a: a[:1]), values("hash_table", lambda a: a[:, :1].copy())),
        "W_steps has 2 numbers for 1 repetitions",
    ),
    **{f"n_labels {n}": (meta(n_labels=n), f"{TABLE}|cannot all be true") for n in (0, 6, 8, -1, *BIG)},
    **{f"n_features {n}": (meta(n_features=n), "does not span|cannot all be true") for n in (0, 3, 5, -1, *BIG)},
    **{f"n_buckets {n}": (meta(n_buckets=n), f"{TABLE}|is not a number from 1|has dtype") for n in (-1, 0, 2, 4, *BIG)},
    "n_buckets float": (meta(n_buckets=3.0), "member 'n_buckets' is missing or of the wrong type"),
    "link strange": (meta(link="identity"), "has link 'identity' and aggregate 'geometric', which this version lacks"),
    "link of 10^4": (meta(link="a" * 10_000), "has link 'aaaaaaaaaaaaaaaaaaaa' and"),
    "aggregate strange": (meta(aggregate="max"), "and aggregate 'max', which this version lacks"),
    "aggregate null": (meta(aggregate=None), "member 'aggregate' is missing or of the wrong type"),
    "bias infinite": (meta(bias=float("inf")), "cannot all be true|damaged"),
    "step zero": (values("W_steps", at((0, 0))), "W_steps must be finite and above 0"),
    "step NaN": (values("W_steps", at((1, np.nan))), "W_steps must be finite and above 0"),
    "steps in two dimensions": (values("W_steps", lambda a: a[None]), "W_steps has dtype <f4 and 2 dimensions"),
    "codes of another type": (values("W_codes", lambda a: a.astype(np.int64)), "W_codes has dtype <i8"),
    "codes short": (values("W_codes", lambda a: a[:-1]), "W_codes has .* numbers for .* columns"),
    "codes NaN": (
        values("W_codes", lambda a: np.full(len(a), np.nan, np.float32)),
        "W_codes holds NaN or infinity",
    ),
    "ends absent": (lambda f: f.entries.pop("W_ends"), "lists no array W_ends"),
    "ends short": (values("W_ends", lambda a: a[:-1]), "W_ends does not span 5 rows"),
    "ends decrease": (values("W_ends", at((1, 5), (2, 1))), "W_ends decreases"),
    "ends late": (values("W_ends", at((-1, 10**12))), "W_ends does not span 5 rows"),
    "ends negative": (values("W_ends", at((1, -1))), "W_ends decreases"),
    "columns absent": (lambda f: f.entries.pop("W_columns"), "other than 0 or 6 weights"),
    "column too large": (values("W_columns", at((-1, 6))), "W_columns leaves the range 0 to 5"),
    "columns repeated": (values("W_columns", np.zeros_like), "W_columns are not sorted and unique within a row"),
    "columns of another type": (values("W_columns", lambda a: a.astype(np.int32)), "wrong type for 6 columns"),
    "columns negative": (values("W_columns", lambda a: -a.astype(np.int32)), "wrong type for 6 columns"),
}
DENSE = {
    "ends uneven": (values("W_ends", at((1, 5))), "other than 0 or 6 weights"),
    "ends late": (values("W_ends", at((-1, 10**12))), "W_ends does not divide 24 weights"),
    "ends decrease": (values("W_ends", at((1, MAX))), "W_ends does not divide 24 weights"),
    "ends short": (values("W_ends", lambda a: a[:-1]), "W_ends does not divide 24 weights"),
    "codes long": (values("W_codes", lambda a: np.append(a, a)), "W_ends does not divide 48 weights"),
    "n_features": (meta(n_features=2**31 - 2), "W_ends does not divide 24 weights"),
}


@pytest.mark.parametrize("name", HASHED)
def test_a_forged_hashed_model_is_refused(memory_path, name):
    assert_refused(save(memory_path / "m", hashed_model()), *HASHED[name])


@pytest.mark.parametrize("name", DENSE)
def test_a_forged_hashed_model_without_columns_is_refused(memory_path, name):
    assert_refused(save(memory_path / "m", hashed_model(density=1.0)), *DENSE[name])


JSON = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=8) | st.just([])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=JSON)
def test_any_member_exchanged_is_an_error_or_changes_no_array(memory_path, data, value):
    root, model = memory_path / "m", hashed_model()
    if not root.exists():
        save(root, model)
    sound, forgery = (root / "model.json").read_bytes(), Forgery(root)
    name = data.draw(st.sampled_from(sorted(forgery.meta)))
    forgery.meta[name] = value
    (root / "model.json").write_bytes(sealed(forgery.body))
    found, error = loaded(root)
    if error is not None:
        assert error.path == str(root / "model.json")
    elif name not in ("label_names", "multiclass", "bias", "unit_rows"):
        assert_same_model(found, model)
    (root / "model.json").write_bytes(sound)
