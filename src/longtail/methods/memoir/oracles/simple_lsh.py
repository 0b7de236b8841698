"""The SimpleLSH oracle (Neyshabur and Srebro): a nearest-neighbour search among binary codes proposes candidates, and
exact scores decide among them.

The code of a vector consists of the signs of random projections. Two codes agree in a bit with probability
1 - angle / pi, so vectors with a small angle have codes with a small Hamming distance. Scores are inner products, not
angles. To turn one into the other, P(w) = [w, sqrt(M^2 - |w|^2)] with M = max |w| puts all classes on a sphere, and
rows get a last coordinate 0; then cos(angle) = x.w / (|x| M). With `augment=False` this coordinate is left out, and
cos(angle) = x.w / (|x| |w|). The lengths of trained classes differ so much that a single M makes all angles nearly
equal. Codes without the coordinate then find more.

There are two searches. With `tables=0` the code of a row is compared with the codes of all classes in the group, in
time linear in their number. With `tables=T`, the bits of a code are divided into T parts, and each part is the key of a
hash table. Only classes that share a key with the row are compared. This is locality-sensitive hashing with T tables of
K = bits / T bits: two vectors that agree in a bit with probability p meet in some table with probability
1 - (1 - p^K)^T. A class that moves changes its place in the tables whose keys changed.

With `likely=yes` the candidates of candidates.py are scored too. On sparse text these find more rivals than the codes
do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from longtail import parallel
from longtail.errors import InputError
from longtail.methods.memoir.oracles import key_tables_kernels as tables_kernels
from longtail.methods.memoir.oracles import simple_lsh_kernels as kernels
from longtail.methods.memoir.oracles.base import Moves, SearchSpace
from longtail.methods.memoir.oracles.candidates import CandidateOracle

STEPS = 32.0  # directions have Gaussian coordinates, stored as whole multiples of 1 / STEPS in one byte
ROWS_DRAWN = 1 << 16  # rows of the directions drawn at a time, because as floats they take 4 times the memory
M_GROWTH = 1.1  # M is this many times the largest length, so that the codes of all classes are seldom computed again
MAX_BITS = 1 << 15  # distances are stored as uint16
MAX_KEY_BITS = 20  # a table has an entry for every key


class SimpleLSH(CandidateOracle):
    """Options: the length of a code in `bits` (a multiple of 64), the number of `candidates` (classes with the nearest
    codes), the number of hash `tables` (0: compare all codes), whether to `augment` vectors by the last coordinate, and
    whether to score `likely` rivals too."""

    smallest: ClassVar[Mapping[str, float]] = {"bits": kernels.WORD, "candidates": 1, "tables": 0}

    def __init__(
        self,
        space: SearchSpace,
        *,
        bits: int = 64,
        candidates: int = 16,
        tables: int = 0,
        augment: bool = False,
        likely: bool = True,
    ) -> None:
        super().__init__(space, likely)
        n_classes, n_features = self.vectors.shape
        self.n_bits = bits
        self.n_nearest = candidates
        self.augment = augment
        self.directions = _directions(self.random, n_features, bits)
        self.last_direction = _directions(self.random, 1, bits)[0]
        self.projections = np.zeros((n_classes, bits), np.float32)
        group_of = np.arange(n_classes) % self.n_groups
        order = np.argsort(group_of, kind="stable")  # the codes of a group lie together
        self.class_of = order.astype(np.int32)  # line of `codes` -> class
        self.line_of = np.argsort(order)  # class -> line of `codes`
        self.group_ends = np.concatenate([[0], np.cumsum(np.bincount(group_of, minlength=self.n_groups))])
        self.codes = np.zeros((n_classes, bits // kernels.WORD), np.uint64)
        self.tables = tables_kernels.KeyTables.empty(n_classes, bits, tables) if tables else None
        self.max_length = 0.0  # M, in units of stored values

    @classmethod
    def check_options(cls, options: Mapping[str, Any], where: str) -> None:
        super().check_options(options, where)
        bits, tables = options["bits"], options["tables"]
        if bits % kernels.WORD or bits > MAX_BITS:
            raise InputError(
                f"{where}: the option 'bits' must be a multiple of {kernels.WORD} up to {MAX_BITS}. Got {bits} instead."
            )
        if tables and (bits % tables or bits // tables > MAX_KEY_BITS):
            raise InputError(
                f"{where}: the option 'tables' must be 0 or divide the {bits} bits of a code into keys of at most "
                f"{MAX_KEY_BITS} bits. Got {tables} instead."
            )

    @classmethod
    def column_bytes(cls, options: Mapping[str, Any]) -> tuple[int, int]:
        likely, bits = options["likely"], options["bits"]
        return 128 * likely + bits, 74 + 36 * likely + 4 * bits + 12 * options["tables"]

    def search(self, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray) -> None:
        nearest = self._from_tables(rows) if self.tables is not None else self._from_all_codes(rows)
        candidates = np.concatenate([nearest, self.candidates(rows, targets)], axis=1, dtype=np.int64)
        rivals[:] = self._best_of(rows, candidates, self.group, self.n_groups)

    def _from_all_codes(self, rows: np.ndarray) -> np.ndarray:
        """The classes with the nearest codes, among all classes of the group."""
        first, last = self.group_ends[self.group], self.group_ends[self.group + 1]
        lines = np.empty((len(rows), self.n_nearest), np.int32)
        kernels.nearest_codes(
            self.X, rows, self.directions, self.codes[first:last], kernels.hamming_room(self.n_bits, last - first),
            lines,
        )  # fmt: skip
        return np.where(lines >= 0, self.class_of[first + lines], -1)

    def _from_tables(self, rows: np.ndarray) -> np.ndarray:
        """The classes with the nearest codes, among those that share a key with the row."""
        assert self.tables is not None
        found = np.empty((len(rows), self.n_nearest), np.int32)
        tables_kernels.nearest_in_tables(
            self.X, self.Y, rows, self.directions, self.codes, self.line_of, self.tables, self.group, self.n_groups,
            tables_kernels.table_room(self.n_bits, self.n_nearest, self.vectors.shape[0]), found,
        )  # fmt: skip
        return found

    def update(self, moves: Moves) -> None:
        """Update the projections and the codes of all classes that changed."""
        row_projection = np.empty(self.n_bits, np.float32)
        kernels.move_projections(
            self.X, self.directions, moves.classes, moves.rows, moves.factors, row_projection, self.projections
        )
        kernels.project_classes(self.vectors.arrays, moves.truncated, self.directions, self.projections)
        length = self.vectors.lengths(moves.touched).max(initial=0.0)
        if self.augment and length > self.max_length:
            self.max_length = M_GROWTH * length
            self._encode(np.arange(self.vectors.shape[0]))
        else:
            self._encode(moves.touched)

    def rescale(self, factor: float) -> None:
        self.projections *= np.float32(factor)
        self.max_length *= factor

    def state(self) -> dict[str, np.ndarray]:
        length = np.array(self.max_length)
        tables = {} if self.tables is None else self.tables._asdict()
        own = {"projections": self.projections, "codes": self.codes, "max_length": length}
        return {**super().state(), **own, **tables}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        super().restore(state)
        self.projections[:] = state["projections"]
        self.codes[:] = state["codes"]
        self.max_length = float(state["max_length"])
        if self.tables is not None:
            self.tables = tables_kernels.KeyTables(
                **{name: state[name].copy() for name in tables_kernels.KeyTables._fields}
            )

    def _encode(self, classes: np.ndarray) -> None:
        last_coordinates = np.zeros(len(classes), np.float32)
        if self.augment:
            squares = self.vectors.arrays.squares[classes]
            last_coordinates[:] = np.sqrt(np.maximum(self.max_length**2 - squares, 0.0))
        kernels.encode(
            self.projections, last_coordinates, self.last_direction, classes, self.line_of[classes], self.codes
        )
        if self.tables is not None:
            counts = self.vectors.arrays.counts
            tables_kernels.put_classes(self.tables, classes, self.line_of, self.codes, counts)


def _directions(random: np.random.Generator, n: int, n_bits: int) -> np.ndarray:
    directions = np.empty((n, n_bits), np.int8)
    for part in parallel.ranges(n, ROWS_DRAWN):
        values = random.standard_normal((len(part), n_bits), dtype=np.float32)
        directions[part.start : part.stop] = np.clip(np.rint(STEPS * values), -127, 127)
    return directions
