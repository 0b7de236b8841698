"""2-universal hashes of labels into buckets (MACH, section 2.1; Carter & Wegman 1977):

    h_r(x) = ((a_r x + b_r) mod p) mod B,      p = 2^31 - 1, a prime above every label number

Two labels share a bucket of one hash with probability 1/B, up to B/p.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from longtail.compiled import frozen, kernel

PRIME = 2**31 - 1
MAX_BUCKETS = 2**16


@dataclass(frozen=True)
class Hashes:
    """R hashes of n_labels labels: the seeds `a` and `b`, and B. The table follows from them.

    a = 1, b = 0 and B >= n_labels is the perfect hash: every label has a bucket of its own.
    """

    a: np.ndarray  # (R,) int64, 1 to p - 1
    b: np.ndarray  # (R,) int64, 0 to p - 1
    n_labels: int
    n_buckets: int

    @property
    def n_repetitions(self) -> int:
        return len(self.a)

    @property
    def perfect(self) -> bool:
        """Whether no two labels ever share a bucket."""
        return self.n_buckets >= self.n_labels and bool((self.a == 1).all() and (self.b == 0).all())

    @cached_property
    def table(self) -> np.ndarray:
        """The bucket of every label in every repetition: (n_labels, R), 1 byte each, or 2 where B is above 256."""
        table = np.empty((self.n_labels, self.n_repetitions), self.dtype)
        hash_labels(frozen(self.a, np.uint64), frozen(self.b, np.uint64), np.uint64(self.n_buckets), 0, table)
        return frozen(table, self.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8 if self.n_buckets <= 2**8 else np.uint16)

    def adopt(self, table: np.ndarray, step: int = 1 << 16) -> bool:
        """Use this array, of a file, as table if it is the same; compared part by part, so a lie costs no memory."""
        if table.shape != (self.n_labels, self.n_repetitions) or table.dtype != self.dtype:
            return False
        for start in range(0, self.n_labels, step):
            part = np.empty((min(step, self.n_labels - start), self.n_repetitions), self.dtype)
            hash_labels(frozen(self.a, np.uint64), frozen(self.b, np.uint64), np.uint64(self.n_buckets), start, part)
            if not np.array_equal(part, table[start : start + step]):
                return False
        self.__dict__["table"] = frozen(table, self.dtype)
        return True

    @classmethod
    def joined(cls, parts: list[Hashes]) -> Hashes:
        """All repetitions of the parts, in their order."""
        a, b = (np.concatenate([getattr(part, name) for part in parts]) for name in "ab")
        return cls(a, b, parts[0].n_labels, parts[0].n_buckets)


@kernel
def hash_labels(a, b, n_buckets, first, out):
    """out[i, r] = h_r(first + i)"""
    prime = np.uint64(2**31 - 1)
    for i in range(out.shape[0]):
        label = np.uint64(first + i)
        for r in range(out.shape[1]):
            out[i, r] = (a[r] * label + b[r]) % prime % n_buckets
