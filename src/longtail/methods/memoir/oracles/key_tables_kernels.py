"""Compiled loops over hash tables whose keys are parts of codes: multi-table search for near codes.

Table t has the key of bits t K .. t K + K - 1 of a code. The classes with one key form a doubly linked list, so a class
enters and leaves a table in constant time. Only classes with weights are in the tables. A search walks T lists, which
have about C / 2^K classes each if the keys are spread evenly.

`encode_row` and `popcount` are copies of what simple_lsh_kernels has, because a kernel calls only kernels of its own
file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import kernel

WORD = 64  # bits in a word of a code
NONE = -1


class KeyTables(NamedTuple):
    """T tables. An entry is NONE where there is no class."""

    heads: np.ndarray  # (T, 2^K) the first class of each list
    after: np.ndarray  # (T, classes) the next class of the list
    before: np.ndarray  # (T, classes) the previous class; NONE: it is the first
    keys: np.ndarray  # (T, classes) the key of the list that has the class; NONE: the class is in no list

    @classmethod
    def empty(cls, n_classes: int, n_bits: int, n_tables: int) -> KeyTables:
        def none(size: int) -> np.ndarray:
            return np.full((n_tables, size), NONE, np.int32)

        return cls(none(1 << (n_bits // n_tables)), none(n_classes), none(n_classes), none(n_classes))


class TableRoom(NamedTuple):
    """Working memory of `nearest_in_tables`."""

    projection: np.ndarray  # (n_bits,) of the row
    code: np.ndarray  # (words,) of the row
    distances: np.ndarray  # (wanted,) distances of the nearest classes so far, in increasing order
    seen: np.ndarray  # zeros, one per class


def table_room(n_bits: int, n_wanted: int, n_classes: int) -> TableRoom:
    return TableRoom(
        projection=np.empty(n_bits, np.float32),
        code=np.empty(n_bits // WORD, np.uint64),
        distances=np.empty(n_wanted, np.int64),
        seen=np.zeros(n_classes, np.int32),
    )


@intrinsic
def popcount(typing_context, word):
    """The number of bits of a 64-bit word that are 1."""

    def generate(context, builder, signature, args):
        function = builder.module.declare_intrinsic("llvm.ctpop", [ir.IntType(64)])
        return builder.call(function, args)

    return types.uint64(types.uint64), generate


@kernel
def key_of(code, table, n_tables):
    """The key of a code in a table: K consecutive bits, which may lie in two words."""
    K = WORD * len(code) // n_tables
    key = np.int64(0)
    for b in range(K):
        at = table * K + b
        bit = (code[at // WORD] >> np.uint64(at % WORD)) & np.uint64(1)
        key |= np.int64(bit) << b
    return key


@kernel
def leave(tables, table, c):
    """Remove class c from the list that has it."""
    before, after = tables.before[table, c], tables.after[table, c]
    if before == NONE:
        tables.heads[table, tables.keys[table, c]] = after
    else:
        tables.after[table, before] = after
    if after != NONE:
        tables.before[table, after] = before
    tables.keys[table, c] = NONE


@kernel
def enter(tables, table, c, key):
    """Put class c at the head of the list of a key."""
    first = tables.heads[table, key]
    tables.heads[table, key] = c
    tables.before[table, c] = NONE
    tables.after[table, c] = first
    if first != NONE:
        tables.before[table, first] = c
    tables.keys[table, c] = key


@kernel
def put_classes(tables, classes, lines, codes, counts):
    """Move each class to the lists of its code, codes[lines[c]]. A class without weights (counts[c] = 0) is removed."""
    n_tables = len(tables.keys)
    for c in classes:
        for table in range(n_tables):
            key = key_of(codes[lines[c]], table, n_tables) if counts[c] > 0 else NONE
            if key == tables.keys[table, c]:
                continue
            if tables.keys[table, c] != NONE:
                leave(tables, table, c)
            if key != NONE:
                enter(tables, table, c, key)


@kernel
def encode_row(X, i, directions, room):
    """room.code = the code of row i: the signs of its projections."""
    projection = room.projection
    projection[:] = 0.0
    for p in range(X.indptr[i], X.indptr[i + 1]):
        x, line = X.data[p], directions[X.indices[p]]
        for b in range(len(projection)):
            projection[b] += x * np.float32(line[b])
    for word in range(len(room.code)):
        room.code[word] = np.uint64(0)
        for b in range(WORD):
            if projection[word * WORD + b] > 0:
                room.code[word] |= np.uint64(1) << np.uint64(b)


@kernel
def nearest_in_tables(X, Y, rows, directions, codes, lines, tables, group, n_groups, room, out):
    """out[k] = the classes whose codes are nearest to the code of row rows[k], nearest first, then -1 in unused places.

    Only classes of the group (c mod n_groups) that share a key with the row and are not its labels take part. Of equal
    distances, the smaller class number comes first, so the order inside the lists does not matter.

    room : a TableRoom for these codes.
    """
    n_wanted, n_tables = out.shape[1], len(tables.keys)
    for k in range(len(rows)):
        i, n = rows[k], 0
        out[k, :] = NONE
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            room.seen[Y.indices[p]] = k + 1
        encode_row(X, i, directions, room)
        for table in range(n_tables):
            c = tables.heads[table, key_of(room.code, table, n_tables)]
            while c != NONE:
                if room.seen[c] != k + 1 and c % n_groups == group:
                    room.seen[c] = k + 1
                    distance = np.int64(0)
                    for word in range(len(room.code)):
                        distance += np.int64(popcount(codes[lines[c], word] ^ room.code[word]))
                    last = n - 1
                    if n < n_wanted or comes_before(distance, c, room.distances[last], out[k, last]):
                        n = min(n + 1, n_wanted)
                        at = n - 1
                        while at > 0 and comes_before(distance, c, room.distances[at - 1], out[k, at - 1]):
                            room.distances[at], out[k, at] = room.distances[at - 1], out[k, at - 1]
                            at -= 1
                        room.distances[at], out[k, at] = distance, c
                c = tables.after[table, c]


@kernel
def comes_before(distance, c, other_distance, other):
    """Whether a class is nearer than another, or as near with a smaller number."""
    return distance < other_distance or (distance == other_distance and c < other)
