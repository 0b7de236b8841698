"""Compiled loops of the SimpleLSH oracle: codes of random projections, and nearest neighbours in Hamming distance.

    h_b(w) = sign(a_b.P(w)),  P(w) = [w, sqrt(M^2 - |w|^2)] for classes,  Q(x) = [x, 0] for rows,  a_b Gaussian     [28]

Bit b of a code is 1 where a_b.P(w) > 0. The projections a_b.w of the classes, without the last coordinate, are stored,
so w += f x costs one addition per bit. The last coordinate depends on |w| and is added when the code is made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import kernel

WORD = 64  # bits in a word of a code
EMPTY = np.uint32(2**32 - 1)  # the key of a free slot; equal to weights_kernels.EMPTY


class HammingRoom(NamedTuple):
    """Working memory of `nearest_codes`."""

    projection: np.ndarray  # (n_bits,) of the row
    code: np.ndarray  # (words,) of the row
    distances: np.ndarray  # (classes,)
    counts: np.ndarray  # (n_bits + 1,) how many classes have each distance


def hamming_room(n_bits: int, n_codes: int) -> HammingRoom:
    return HammingRoom(
        projection=np.empty(n_bits, np.float32),
        code=np.empty(n_bits // WORD, np.uint64),
        distances=np.empty(n_codes, np.uint16),
        counts=np.empty(n_bits + 1, np.int64),
    )


@intrinsic
def popcount(typing_context, word):
    """Return the number of bits of a 64-bit word that are 1. It is one instruction, but Numba has no function for
    it."""

    def generate(context, builder, signature, args):
        function = builder.module.declare_intrinsic("llvm.ctpop", [ir.IntType(64)])
        return builder.call(function, args)

    return types.uint64(types.uint64), generate


@kernel
def project_row(X, i, directions, out):
    """out_b = a_b.x_i"""
    out[:] = 0.0
    for p in range(X.indptr[i], X.indptr[i + 1]):
        x, line = X.data[p], directions[X.indices[p]]
        for b in range(len(out)):
            out[b] += x * np.float32(line[b])


@kernel
def move_projections(X, directions, classes, rows, factors, row_projection, projections):
    """a_b.w_c += factors[k] a_b.x_i for class c = classes[k] and row i = rows[k]. A row that occurs several times in
    succession is projected once.

    row_projection : room for the projections of a row.
    """
    last = np.int64(-1)
    for k in range(len(classes)):
        if rows[k] != last:
            last = rows[k]
            project_row(X, last, directions, row_projection)
        line, factor = projections[classes[k]], np.float32(factors[k])
        for b in range(len(line)):
            line[b] += factor * row_projection[b]


@kernel
def project_classes(vectors, classes, directions, projections):
    """Compute a_b.w_c from all weights of a class, for classes that changed by more than multiples of rows."""
    for c in classes:
        projections[c] = 0.0
        if vectors.bits[c] == 0:
            continue
        for slot in range(vectors.starts[c], vectors.starts[c] + (np.int64(1) << np.int64(vectors.bits[c]))):
            if vectors.keys[slot] != EMPTY:
                line = directions[vectors.keys[slot]]
                for b in range(len(line)):
                    projections[c, b] += vectors.values[slot] * np.float32(line[b])


@kernel
def encode(projections, last_coordinates, last_direction, classes, lines, codes):
    """codes[lines[k]] = the code of class classes[k], whose last coordinate is last_coordinates[k]."""
    for k in range(len(classes)):
        line, last = projections[classes[k]], last_coordinates[k]
        for word in range(codes.shape[1]):
            bits = np.uint64(0)
            for b in range(WORD):
                value = line[word * WORD + b] + last * np.float32(last_direction[word * WORD + b])
                if value > 0:
                    bits |= np.uint64(1) << np.uint64(b)
            codes[lines[k], word] = bits


@kernel
def nearest_codes(X, rows, directions, codes, room, out):
    """out[k] = the lines of `codes` nearest to the code of row rows[k], in increasing order, then -1 in unused places.

    If only some lines of the largest distance fit, the first of them are taken.

    room : a HammingRoom for these codes.
    """
    n_wanted, words = out.shape[1], codes.shape[1]
    for k in range(len(rows)):
        project_row(X, rows[k], directions, room.projection)
        for word in range(words):
            room.code[word] = np.uint64(0)
            for b in range(WORD):
                if room.projection[word * WORD + b] > 0:
                    room.code[word] |= np.uint64(1) << np.uint64(b)
        room.counts[:] = 0
        for at in range(len(codes)):
            distance = np.uint64(0)
            for word in range(words):
                distance += popcount(codes[at, word] ^ room.code[word])
            room.distances[at] = distance
            room.counts[distance] += 1
        radius, n_inside = 0, room.counts[0]
        while n_inside <= n_wanted and radius + 1 < len(room.counts):
            radius += 1
            n_inside += room.counts[radius]
        n_border = n_wanted - (n_inside - room.counts[radius])  # how many lines at distance `radius` fit
        n = 0
        out[k, :] = -1
        for at in range(len(codes)):
            if room.distances[at] < radius or (room.distances[at] == radius and n_border > 0):
                n_border -= room.distances[at] == radius
                out[k, n] = at
                n += 1
                if n == n_wanted:
                    break
