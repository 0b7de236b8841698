"""2-universal hashes of labels into buckets (MACH, section 2.1; Carter & Wegman 1977):

    h_r(x) = ((a_r x + b_r) mod p) mod B,      p = 2^31 - 1, a prime above every label number

Two labels share a bucket of one hash with probability 1/B, up to B/p.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from longtail.compiled import frozen
from longtail.models.hash_kernels import hash_labels

PRIME = 2**31 - 1
MAX_BUCKETS = 2**16


@dataclass(frozen=True)
class Hashes:
    """R hashes of n_labels labels: the seeds `a` and `b`, and B. The table is computed from them.

    a = 1, b = 0 and B >= n_labels is the identity: every label has a bucket of its own.
    """

    a: np.ndarray  # (R,) int64, 1 to p - 1
    b: np.ndarray  # (R,) int64, 0 to p - 1
    n_labels: int
    n_buckets: int

    @classmethod
    def draw(cls, n_labels: int, n_buckets: int, repetitions: range, seed: int) -> Hashes:
        """The hashes of some repetitions. The hash of a repetition does not depend on the others."""
        generators = [np.random.default_rng([seed, r]) for r in repetitions]
        a = [generator.integers(1, PRIME) for generator in generators]
        b = [generator.integers(0, PRIME) for generator in generators]
        return cls(np.array(a, np.int64), np.array(b, np.int64), n_labels, n_buckets)

    @classmethod
    def identity(cls, n_labels: int) -> Hashes:
        """One repetition with a bucket for every label."""
        return cls(np.ones(1, np.int64), np.zeros(1, np.int64), n_labels, n_labels)

    @property
    def n_repetitions(self) -> int:
        return len(self.a)

    @property
    def is_identity(self) -> bool:
        """Whether every label has a bucket of its own."""
        return self.n_buckets >= self.n_labels and bool((self.a == 1).all() and (self.b == 0).all())

    @cached_property
    def table(self) -> np.ndarray:
        """The bucket of every label in every repetition: (n_labels, R), 1 byte each, or 2 if B is above 256."""
        table = np.empty((self.n_labels, self.n_repetitions), self.dtype)
        hash_labels(frozen(self.a, np.uint64), frozen(self.b, np.uint64), np.uint64(self.n_buckets), 0, table)
        return frozen(table, self.dtype)

    @cached_property
    def n_indistinguishable(self) -> int:
        """Definition 1 of the paper: the number of pairs of labels that share their bucket in every repetition."""
        return indistinguishable_pairs(self.table)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8 if self.n_buckets <= 2**8 else np.uint16)

    def adopt(self, table: np.ndarray, step: int = 1 << 16) -> bool:
        """Use an array that was read from a file as the table, if it is correct. Return whether it is.

        Only `step` labels are compared at a time, so the check needs little memory.
        """
        if table.shape != (self.n_labels, self.n_repetitions) or table.dtype != self.dtype:
            return False
        for start in range(0, self.n_labels, step):
            part = np.empty((min(step, self.n_labels - start), self.n_repetitions), self.dtype)
            hash_labels(frozen(self.a, np.uint64), frozen(self.b, np.uint64), np.uint64(self.n_buckets), start, part)
            if not np.array_equal(part, table[start : start + step]):
                return False
        self.__dict__["table"] = frozen(table, self.dtype)
        return True

    def grown(self, n_labels: int) -> Hashes:
        """Return the same hashes of more labels. The labels so far keep their buckets."""
        if self.is_identity:
            return Hashes.identity(n_labels)
        return Hashes(self.a, self.b, n_labels, self.n_buckets)

    @classmethod
    def joined(cls, parts: list[Hashes]) -> Hashes:
        """Join the repetitions of the parts, in their order."""
        a = np.concatenate([part.a for part in parts])
        b = np.concatenate([part.b for part in parts])
        return cls(a, b, parts[0].n_labels, parts[0].n_buckets)


def indistinguishable_pairs(table: np.ndarray) -> int:
    """The number of pairs of equal rows."""
    rows = np.ascontiguousarray(table)
    keys = rows.view([("", rows.dtype)] * rows.shape[1]).ravel()
    sizes = np.unique(keys, return_counts=True)[1].astype(object)  # Python integers do not overflow
    return int((sizes * (sizes - 1) // 2).sum())
