"""The SimpleLSH oracle of Neyshabur and Srebro: Hamming search among sign codes, then exact scores of what it found.

Inner products become angles when classes are put on a sphere: P(w) = [w, sqrt(M^2 - |w|^2)] with M = max |w|, and rows
get a last coordinate 0 (simple_lsh_kernels). Codes then collide in a bit with probability 1 - angle / pi, where
cos(angle) = x.w / (|x| M). With `augment=False` the last coordinate is left out and cos(angle) = x.w / (|x| |w|): where
norms differ much, as those of trained classes do, M flattens all angles and the plain code finds more.

The codes of one group of classes are looked through. Likely rivals (recent.py) are scored besides: on sparse text they
find more than the codes do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail import parallel
from longtail.methods.memoir.oracles import simple_lsh_kernels as kernels
from longtail.methods.memoir.oracles.base import Moves
from longtail.methods.memoir.oracles.recent import RememberingOracle
from longtail.methods.memoir.store_kernels import best_of

UNIT = 32.0  # directions are Gaussian numbers, kept in steps of 1 / UNIT in a byte
DRAWN = 1 << 16  # directions drawn at a time: as floating-point numbers they take several times their room
M_GROWTH = 1.1  # codes are made anew for all classes when the largest norm has outgrown M by this factor


class SimpleLSH(RememberingOracle):
    """`n_bits` per code (a multiple of 64), `n_candidates` of which the exact score is taken."""

    def __init__(self, *where: Any, n_groups: int, n_bits: int, n_candidates: int, augment: bool) -> None:
        super().__init__(*where, n_groups=n_groups)
        n_classes, n_features = self.weights.shape
        self.n_candidates, self.augment = n_candidates, augment
        self.directions = _directions(self.random, n_features, n_bits)
        self.tail_direction = _directions(self.random, 1, n_bits)[0]
        self.projections = np.zeros((n_classes, n_bits), np.float32)
        everyone = np.arange(n_classes)
        order = np.argsort(everyone % n_groups, kind="stable")
        self.class_of = order.astype(np.int32)  # line of `codes` -> class: groups lie together
        self.line_of = np.argsort(order)
        self.group_ends = np.concatenate([[0], np.cumsum(np.bincount(everyone % n_groups, minlength=n_groups))])
        self.codes = np.zeros((n_classes, n_bits // kernels.WORD), np.uint64)
        self.largest = 0.0  # M

    def search(self, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray) -> None:
        lines = np.empty((len(rows), self.n_candidates), np.int32)
        first, last = self.group_ends[self.group], self.group_ends[self.group + 1]
        n_bits = self.projections.shape[1]
        kernels.nearest_codes(
            self.X, rows, self.directions, self.codes, first, last, np.empty(n_bits, np.float32),
            np.empty(n_bits // kernels.WORD, np.uint64), np.empty(last - first, np.uint16),
            np.empty(n_bits + 1, np.int64), lines,
        )  # fmt: skip
        candidates = np.concatenate(
            [np.where(lines >= 0, self.class_of[lines], -1), self.likely(rows, targets)], axis=1, dtype=np.int64
        )
        best_of(
            self.weights.store, self.X, self.Y, rows, candidates, self.group, self.n_groups, self._unseen(), rivals,
            np.empty(len(rows)),
        )  # fmt: skip

    def update(self, moves: Moves) -> None:
        kernels.move_projections(
            self.X, self.directions, moves.classes, moves.rows, moves.factors,
            np.empty(self.projections.shape[1], np.float32), self.projections,
        )  # fmt: skip
        kernels.project_classes(self.weights.store, moves.truncated, self.directions, self.projections)
        norms = np.sqrt(np.maximum(self.weights.store.norms[moves.touched], 0.0))
        if self.augment and norms.max(initial=0.0) > self.largest:
            self.largest = M_GROWTH * norms.max()
            self._encode(np.arange(self.weights.shape[0]))
        else:
            self._encode(moves.touched)

    def rescale(self, factor: float) -> None:
        self.projections *= np.float32(factor)
        self.largest *= factor

    def _encode(self, classes: np.ndarray) -> None:
        tails = np.zeros(len(classes), np.float32)
        if self.augment:
            tails[:] = np.sqrt(np.maximum(self.largest**2 - self.weights.store.norms[classes], 0.0))
        kernels.encode(
            self.projections, tails, self.tail_direction, classes, self.line_of[classes], self.codes
        )  # fmt: skip


def _directions(random: np.random.Generator, n: int, n_bits: int) -> np.ndarray:
    directions = np.empty((n, n_bits), np.int8)
    for part in parallel.ranges(n, DRAWN):
        values = random.standard_normal((len(part), n_bits), dtype=np.float32)
        directions[part.start : part.stop] = np.clip(np.rint(UNIT * values), -127, 127)
    return directions
