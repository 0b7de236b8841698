"""Mach.suggest_sizes: Theorem 2, budgets, and its text."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from longtail import Mach
from longtail.errors import InputError
from longtail.methods.mach import Sizes
from longtail.models.hashing import Hashes


@settings(deadline=None, max_examples=80)
@given(st.integers(2, 10**7), st.integers(2, 65_536), st.floats(1e-9, 0.5))
def test_the_fewest_repetitions_that_theorem_2_asks_for(K, B, delta):
    sizes = Mach.suggest_sizes(K, 1000, delta=delta, n_buckets=B)
    assert sizes.pair_bound <= delta * (1 + 1e-6)
    assert sizes.n_repetitions == 1 or K**2 / B ** (sizes.n_repetitions - 1) > delta * (1 - 1e-6)


def test_the_papers_own_numbers():
    """Table 2: ODP, B = 32, R = 25: 120 times fewer weights than one-vs-all, K R + B R d operations."""
    sizes = Mach.suggest_sizes(105_033, 422_713, n_buckets=32, weights="float32")
    assert sizes.n_buckets == 32
    assert sizes.n_repetitions == math.ceil(2 * math.log(105_033 / math.sqrt(0.001)) / math.log(32))
    assert sizes.lookups == 105_033 * sizes.n_repetitions
    assert sizes.multiplications == 422_713 * 32 * sizes.n_repetitions
    assert sizes.model_bytes == 4 * sizes.multiplications + sizes.lookups
    assert sizes.training_bytes == 4 * sizes.multiplications
    assert Sizes(105_033, 422_713, 512, 8, "int8").training_bytes == 4 * 422_713 * 1024  # two repetitions at a time
    assert Sizes(105_033, 422_713, 4096, 8, "int8").training_bytes == 4 * 422_713 * 4096
    assert sizes.reduction == pytest.approx(105_033 / (32 * sizes.n_repetitions), rel=0.01)


@settings(deadline=None, max_examples=80)
@given(st.integers(100, 10**6), st.integers(10, 10**6), st.floats(1e6, 1e11), st.sampled_from(["int8", "float32"]))
def test_a_budget_is_kept_and_used(K, d, memory, weights):
    assume(memory > 2 * 60 * d * 4 + 60 * K)  # enough for two buckets at least
    sizes = Mach.suggest_sizes(K, d, memory=memory, weights=weights)
    assert sizes.model_bytes <= memory
    assert sizes.pair_bound <= 0.001 * (1 + 1e-6)
    if sizes.n_buckets < min(K, 65_536):  # twice as many buckets would not fit
        least = Mach.suggest_sizes(K, d, n_buckets=2 * sizes.n_buckets).n_repetitions
        assert Sizes(K, d, 2 * sizes.n_buckets, max(4, least), weights).model_bytes > memory
    if sizes.n_buckets < K and sizes.n_repetitions < 64:  # nor would one more repetition
        assert Sizes(K, d, sizes.n_buckets, sizes.n_repetitions + 1, weights).model_bytes > memory


def test_what_is_left_of_a_budget_goes_into_repetitions():
    """1.2 GB of float32 for ODP with B = 32, as in the paper: R = 22, not the 9 of Theorem 2."""
    sizes = Mach.suggest_sizes(105_033, 422_713, n_buckets=32, memory=1.2e9, weights="float32")
    assert sizes.n_repetitions == 22
    assert Mach.suggest_sizes(105_033, 422_713, n_buckets=32, weights="float32").n_repetitions == 9
    assert Mach.suggest_sizes(1000, 10, n_buckets=32, memory=1e12).n_repetitions == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"memory": 10}, "10 bytes are too few: 2 buckets and"),
        ({"memory": 0}, "memory must be a number of bytes above 0"),
        ({"delta": 0}, "delta must be a probability above 0 and below 1"),
        ({"delta": 1}, "delta must be a probability above 0 and below 1"),
        ({"n_buckets": 1}, "n_buckets must be a whole number from 2 to 65536"),
        ({"weights": "int3"}, "weights must be one of float32, int8"),
        ({"n_classes": 1}, "at least 2 classes and 1 feature"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        Mach.suggest_sizes(**{"n_classes": 1000, "n_features": 1000, **arguments})


def test_the_bound_holds_in_simulation():
    """With delta = 0.5 at most half of all draws have an indistinguishable pair."""
    sizes = Mach.suggest_sizes(200, 1, delta=0.5, n_buckets=4)
    draws = (Hashes.draw(200, 4, range(sizes.n_repetitions), seed) for seed in range(200))
    assert sum(hashes.n_indistinguishable > 0 for hashes in draws) <= 100


def test_it_reads_well():
    text = str(Mach.suggest_sizes(18_521, 42_086, memory=156e6))
    assert text.startswith("n_buckets=512, n_repetitions=7: at most 151.1 MB as int8 (one-vs-all: 20.6 times as much)")
