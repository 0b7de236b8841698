"""Compiled loops of the SimpleLSH oracle: sign codes of random projections, and the classes nearest in Hamming
distance.

    h_b(w) = sign(a_b.P(w)),  P(w) = [w, sqrt(M^2 - |w|^2)] for classes,  Q(x) = [x, 0] for rows,  a_b Gaussian     [28]

Bit b of a code is h_b > 0. Projections of the classes without the last coordinate are kept, so that w += f x costs one
addition per bit; the last coordinate, which depends on |w|, comes in when a code is made.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import kernel

WORD = 64  # bits of a word of a code
EMPTY = np.uint32(2**32 - 1)  # the key of a free slot, as in store_kernels


@intrinsic
def popcount(typing_context, word):
    """How many bits of a 64-bit word are set; one instruction, which NumPy and Numba have no name for."""

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
    """a_b.w_c += factor a_b.x_i for moves of class c by factor x_i; a row's moves follow each other."""
    last = np.int64(-1)
    for k in range(len(classes)):
        if rows[k] != last:
            last = rows[k]
            project_row(X, last, directions, row_projection)
        line, factor = projections[classes[k]], np.float32(factors[k])
        for b in range(len(line)):
            line[b] += factor * row_projection[b]


@kernel
def project_classes(store, classes, directions, projections):
    """a_b.w_c from all weights of a class, for classes that did not just move along rows."""
    for c in classes:
        projections[c] = 0.0
        if store.bits[c] == 0:
            continue
        for slot in range(store.starts[c], store.starts[c] + (np.int64(1) << np.int64(store.bits[c]))):
            if store.keys[slot] != EMPTY:
                line = directions[store.keys[slot]]
                for b in range(len(line)):
                    projections[c, b] += store.values[slot] * np.float32(line[b])


@kernel
def encode(projections, tails, tail_direction, classes, lines, codes):
    """The code of class classes[k], whose last coordinate is tails[k], into codes[lines[k]]."""
    for k in range(len(classes)):
        line, tail = projections[classes[k]], tails[k]
        for word in range(codes.shape[1]):
            bits = np.uint64(0)
            for b in range(WORD):
                value = line[word * WORD + b] + tail * np.float32(tail_direction[word * WORD + b])
                if value > 0:
                    bits |= np.uint64(1) << np.uint64(b)
            codes[lines[k], word] = bits


@kernel
def nearest_codes(X, rows, directions, codes, first, last, row_projection, code, distances, counts, out):
    """out[k] = the lines first .. last of `codes` nearest to the code of row rows[k], blanks (-1) at the end.

    All lines within the largest radius that does not exceed the room of out, then lines of the next distance.
    """
    room, words = out.shape[1], codes.shape[1]
    for k in range(len(rows)):
        project_row(X, rows[k], directions, row_projection)
        for word in range(words):
            code[word] = np.uint64(0)
            for b in range(WORD):
                if row_projection[word * WORD + b] > 0:
                    code[word] |= np.uint64(1) << np.uint64(b)
        counts[:] = 0
        for at in range(first, last):
            distance = np.uint64(0)
            for word in range(words):
                distance += popcount(codes[at, word] ^ code[word])
            distances[at - first] = distance
            counts[distance] += 1
        radius, inside = 0, counts[0]
        while inside <= room and radius + 1 < len(counts):
            radius += 1
            inside += counts[radius]
        border = room - (inside - counts[radius])  # how many of distance `radius` there is room for
        n = 0
        out[k, :] = -1
        for at in range(last - first):
            if distances[at] < radius or (distances[at] == radius and border > 0):
                border -= distances[at] == radius
                out[k, n] = at + first
                n += 1
                if n == room:
                    break
