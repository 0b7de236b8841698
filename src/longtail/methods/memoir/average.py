"""The average of the weights after each batch, W_mean = 1/T sum_t W_t: the weights of Theorems 2 and 3.

A batch changes few weights, so adding all of W to a sum after every batch would cost far more than the batch. The sum
is therefore kept in two parts. With W = s V (scale s), at any time

    sum_t W_t of class c = (S - S_c) v_c + u_c          S: sum of the scales s_t of all batches so far

A batch that is complete adds s_t to S, and touches no weight. A step v_c += f x leaves the sum as it is if
u_c -= (S - S_c) f x. `settle` adds (S - S_c) v_c to u_c and sets S_c = S. It is needed before truncation, which changes
all weights of a class, and from time to time for all classes: if V grows while s falls, the two parts grow as well, and
their difference would lose digits.

U is sparse, with a weight wherever any W_t had one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from longtail.methods import state
from longtail.methods.memoir.oracles import Moves
from longtail.methods.memoir.weights import ClassVectors, CsrRows

MAX_RATIO = 64.0  # all classes are settled when S - S_c is this many times the scale


class Average:
    """The sum of the weights after each batch, for class vectors that training changes."""

    def __init__(self, vectors: ClassVectors) -> None:
        self.vectors = vectors
        self.sums = ClassVectors(*vectors.shape, indexed=False, with_top=False)  # U
        self.scales = 0.0  # S
        self.settled = np.zeros(vectors.shape[0])  # S_c
        self.n_batches = 0

    def add_moves(self, X: CsrRows, moves: Moves) -> None:
        """The steps of `moves` have changed the class vectors; the sum does not change."""
        factors = (self.settled[moves.classes] - self.scales) * moves.factors
        self.sums.add_rows(X, moves.classes, moves.rows, factors)

    def settle(self, classes: np.ndarray) -> None:
        """Make the sum of these classes independent of their vectors."""
        self.sums.add_vectors(self.vectors, classes, self.scales - self.settled[classes])
        self.settled[classes] = self.scales

    def end_batch(self) -> None:
        """Add the weights after a batch to the sum."""
        self.scales += self.vectors.scale
        self.n_batches += 1
        if self.scales - self.settled.min() > MAX_RATIO * self.vectors.scale:
            self._settle_all()

    def _settle_all(self) -> None:
        """Settle all classes. The sums of scales then begin again at 0, so that their differences stay exact."""
        self.settle(np.arange(self.vectors.shape[0]))
        self.scales = 0.0
        self.settled[:] = 0.0

    def rescale(self, factor: float) -> None:
        """All stored values were multiplied by a factor."""
        self.scales /= factor
        self.settled /= factor
        self._settle_all()

    def to_csr(self) -> sp.csr_array:
        """Return the average of the weights after each batch so far."""
        self._settle_all()
        mean = self.sums.to_csr()
        mean.data /= np.float32(max(self.n_batches, 1))
        return mean

    def state(self) -> dict[str, np.ndarray]:
        own = {"scales": np.array(self.scales), "settled": self.settled, "n_batches": np.array(self.n_batches)}
        return {**own, **state.joined(sums=self.sums.state())}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Continue from a `state`."""
        self.scales = float(saved["scales"])
        self.settled[:] = saved["settled"]
        self.n_batches = int(saved["n_batches"])
        self.sums.restore(state.of(saved, "sums"))
