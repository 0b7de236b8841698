"""How to choose the numbers of buckets and repetitions: Theorem 2 of the paper, and the size of the model.

    Pr(some two of K labels share all R buckets) <= K^2 / B^R                                                   (6)
    R >= 2 log(K / sqrt(delta)) / log B    makes that at most delta                                       (Theorem 2)

That labels can be distinguished is only the minimum requirement. On text, accuracy grows with B R until it reaches the
accuracy of one-vs-all. At equal B R, a larger B is better as long as R is at least MIN_REPETITIONS. A memory budget is
therefore used for a larger B first. B is a power of 2, so up to half of the budget is left. It is used for a larger R.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from longtail.errors import InputError
from longtail.methods.mach.problem import n_groups
from longtail.models.hashing import MAX_BUCKETS

MIN_REPETITIONS = 4
MAX_REPETITIONS = 64  # more are not suggested, because training and prediction take time proportional to R
PAPER_BUCKETS = 32  # number of buckets without a memory budget
BYTES = {"float32": 4, "int8": 1}


@dataclass(frozen=True)
class Sizes:
    """Numbers of buckets and repetitions of a MACH model, and the memory, work and error bound that they imply."""

    n_classes: int
    n_features: int
    n_buckets: int
    n_repetitions: int
    weights: str

    @property
    def model_bytes(self) -> int:
        """Upper bound of the size of the model: d B R weights and the table of K R hashes. Pruned models are
        smaller."""
        code = 1 if self.n_buckets <= 2**8 else 2
        return self._n_weights * BYTES[self.weights] + self.n_classes * self.n_repetitions * code

    @property
    def training_bytes(self) -> int:
        """Bytes of the float32 weights that each thread of the built-in base trains at a time."""
        together = -(-self.n_repetitions // n_groups(self.n_repetitions, self.n_buckets))
        return 4 * self.n_features * self.n_buckets * together

    @property
    def multiplications(self) -> int:
        """R B d, the multiplications to predict a row with all features. A sparse row needs R B per feature."""
        return self._n_weights

    @property
    def lookups(self) -> int:
        """K R, the lookups per prediction."""
        return self.n_classes * self.n_repetitions

    @property
    def pair_bound(self) -> float:
        """Bound (6) on the probability that some two classes share all buckets. A bound above 1 says nothing."""
        exponent = 2 * math.log(self.n_classes) - self.n_repetitions * math.log(self.n_buckets)
        return math.exp(min(exponent, 700.0))

    @property
    def reduction(self) -> float:
        """Size of the K d float32 weights of one-vs-all, divided by the size of this model."""
        return 4 * self.n_classes * self.n_features / self.model_bytes

    @property
    def _n_weights(self) -> int:
        return self.n_features * self.n_buckets * self.n_repetitions

    def __str__(self) -> str:
        return (
            f"n_buckets={self.n_buckets}, n_repetitions={self.n_repetitions}: at most {self.model_bytes / 1e6:,.1f} MB "
            f"as {self.weights} (one-vs-all: {self.reduction:,.1f} times as much), {self.training_bytes / 1e6:,.1f} MB "
            f"per training thread, {self.multiplications:,} multiplications and {self.lookups:,} lookups per "
            f"prediction, probability that some two classes are indistinguishable at most {self.pair_bound:.2g}"
        )


def repetitions_for(n_classes: int, n_buckets: int, delta: float) -> int:
    """Theorem 2: the number of repetitions with which all classes are distinguishable with probability 1 - delta."""
    return max(1, math.ceil(2 * math.log(n_classes / math.sqrt(delta)) / math.log(n_buckets) - 1e-9))


def suggest_sizes(
    n_classes: int, n_features: int, *, memory: float | None, delta: float, n_buckets: int | None, weights: str
) -> Sizes:
    """See Mach.suggest_sizes."""
    _check(n_classes, n_features, memory, delta, n_buckets, weights)

    def with_buckets(B: int) -> Sizes:
        least = MIN_REPETITIONS if memory is not None and n_buckets is None else 1
        return Sizes(n_classes, n_features, B, max(least, repetitions_for(n_classes, B, delta)), weights)

    if memory is None:
        return with_buckets(n_buckets or PAPER_BUCKETS)
    powers = [2**power for power in range(MAX_BUCKETS.bit_length() - 1, 0, -1)]
    for B in [n_buckets] if n_buckets else [B for B in powers if 2 * n_classes > B]:
        found = with_buckets(B)
        if found.model_bytes <= memory:
            return found if n_classes <= B else _filled(found, memory)
    smallest = with_buckets(n_buckets or 2)
    raise InputError(
        f"{memory:,.0f} bytes are too few: {smallest.n_buckets} buckets and {smallest.n_repetitions} repetitions, "
        f"which tell {n_classes:,} classes apart with probability {1 - delta:g}, take {smallest.model_bytes:,} bytes; "
        "increase memory or delta"
    )


def _filled(sizes: Sizes, memory: float) -> Sizes:
    """The same number of buckets with as many repetitions as the budget allows."""
    of_one = replace(sizes, n_repetitions=1).model_bytes
    most = min(int(memory // of_one), MAX_REPETITIONS)
    return replace(sizes, n_repetitions=max(sizes.n_repetitions, most))


def _check(
    n_classes: int, n_features: int, memory: float | None, delta: float, n_buckets: int | None, weights: str
) -> None:
    if n_classes < 2 or n_features < 1:
        raise InputError(f"suggest_sizes needs at least 2 classes and 1 feature; got {n_classes} and {n_features}")
    if not 0 < delta < 1:
        raise InputError(f"delta must be a probability above 0 and below 1; got {delta!r}")
    if memory is not None and not memory > 0:
        raise InputError(f"memory must be a number of bytes above 0; got {memory!r}")
    if n_buckets is not None and not 2 <= n_buckets <= MAX_BUCKETS:
        raise InputError(f"n_buckets must be a whole number from 2 to {MAX_BUCKETS}; got {n_buckets!r}")
    if weights not in BYTES:
        raise InputError(f"weights must be one of {', '.join(BYTES)}; got {weights!r}")
