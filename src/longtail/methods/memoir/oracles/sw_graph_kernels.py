"""Compiled loops of the small-world graph: search, and links that change while the classes move.

The graph stores links only. Scores are computed from the current weights, so they are never out of date. Links are
mutual: if a is linked to b, then b is linked to a. The number of links of a class is limited. A class with all its
links in use replaces its weakest link by a stronger one. With links alone, a search could therefore become unable to
reach some class. So all live classes also form a ring, in random order. The ring keeps the graph connected. Its links
between distant classes are the long-range links of a small world.

`find` and `dot` read the hash tables of weights_kernels. They are copies of its `find` and `score`, because a kernel
calls only kernels of its own file.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

EMPTY = np.uint32(2**32 - 1)  # equal to weights_kernels.EMPTY
NONE = -1


@kernel
def find(vectors, c, feature):
    """The slot of the feature in the table of class c, or -1."""
    bits = np.int64(vectors.bits[c])
    if bits == 0:
        return np.int64(-1)
    start, mask = vectors.starts[c], (np.int64(1) << bits) - 1
    h = np.int64(np.uint32(feature * np.uint32(2654435769)) >> np.uint32(32 - bits))
    while True:
        key = vectors.keys[start + h]
        if key == feature:
            return start + h
        if key == EMPTY:
            return np.int64(-1)
        h = (h + 1) & mask


@kernel
def dot(vectors, features, values, c):
    """The score of class c for the sparse vector with these features and values."""
    total = 0.0
    for p in range(len(features)):
        slot = find(vectors, c, features[p])
        if slot >= 0:
            total += values[p] * vectors.values[slot]
    return total


# --- search ----------------------------------------------------------------------------------------------------------


@kernel
def visit(vectors, features, values, c, n, mark, group, n_groups, beam):
    """Score class c, unless the search has visited it, and insert it into the sorted beam of n classes if its score is
    high enough. Returns the new n.

    beam.visited[c] is `mark` for a class that was visited, and -mark for one that was not visited but cannot be the
    answer (a label of the row). The best answer among the classes of the group (c mod n_groups) is kept in beam.answer
    with its score, even if it is not in the beam.
    """
    visited = beam.visited[c]
    if visited == mark:
        return n
    beam.visited[c] = mark
    score = dot(vectors, features, values, c)
    if visited != -mark and c % n_groups == group and score > beam.answer[1]:
        beam.answer[0], beam.answer[1] = c, score
    if n == len(beam.classes):
        if score <= beam.scores[n - 1]:
            return n
        n -= 1
    at = n
    while at > 0 and beam.scores[at - 1] < score:
        beam.classes[at] = beam.classes[at - 1]
        beam.scores[at] = beam.scores[at - 1]
        beam.open[at] = beam.open[at - 1]
        at -= 1
    beam.classes[at] = c
    beam.scores[at] = score
    beam.open[at] = True
    return n + 1


@kernel
def walk(vectors, graph, features, values, n, mark, group, n_groups, beam):
    """Visit the neighbours of the best class in the beam whose links have not been followed, until there is no such
    class. Returns the size of the beam."""
    while True:
        at = 0
        while at < n and not beam.open[at]:
            at += 1
        if at == n:
            return n
        beam.open[at] = False
        c = beam.classes[at]
        n = visit(vectors, features, values, graph.after[c], n, mark, group, n_groups, beam)
        n = visit(vectors, features, values, graph.before[c], n, mark, group, n_groups, beam)
        for link in range(graph.degrees[c]):
            n = visit(vectors, features, values, graph.links[c, link], n, mark, group, n_groups, beam)


@kernel
def search_rows(vectors, graph, X, Y, rows, starts, group, n_groups, salt, beam, out):
    """out[k] = the best class of the group that the search finds for row rows[k] and that is not one of its labels, or
    -1.

    The search starts at a random class and at the classes starts[k]. Negative entries (padding) are skipped.
    """
    n_live = graph.n_live[0]
    for k in range(len(rows)):
        i, mark = rows[k], k + 1
        out[k] = NONE
        if n_live == 0:
            continue
        beam.answer[0], beam.answer[1] = NONE, -np.inf
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            beam.visited[Y.indices[p]] = -mark
        features = X.indices[X.indptr[i] : X.indptr[i + 1]]
        values = X.data[X.indptr[i] : X.indptr[i + 1]]
        entry = graph.live[(salt + i * 7919) % n_live]
        n = visit(vectors, features, values, entry, 0, mark, group, n_groups, beam)
        for c in starts[k]:
            if c >= 0 and graph.at[c] >= 0:
                n = visit(vectors, features, values, c, n, mark, group, n_groups, beam)
        walk(vectors, graph, features, values, n, mark, group, n_groups, beam)
        out[k] = np.int64(beam.answer[0])


# --- links -----------------------------------------------------------------------------------------------------------


@kernel
def drop(graph, a, b):
    """Remove b from the links of a. The last link moves to the free place."""
    last = graph.degrees[a] - 1
    for link in range(graph.degrees[a]):
        if graph.links[a, link] == b:
            graph.links[a, link], graph.strengths[a, link] = graph.links[a, last], graph.strengths[a, last]
            graph.degrees[a] = last
            return


@kernel
def weakest(graph, a):
    """The position of the link of a with the smallest strength."""
    found = 0
    for link in range(1, graph.degrees[a]):
        if graph.strengths[a, link] < graph.strengths[a, found]:
            found = link
    return found


@kernel
def connect(graph, a, b, strength):
    """Link a and b. Nothing happens if they are already linked, or if one of them has no free link and all its links
    are at least as strong."""
    most = graph.links.shape[1]
    for link in range(graph.degrees[a]):
        if graph.links[a, link] == b:
            return
    for c in (a, b):
        if graph.degrees[c] == most and graph.strengths[c, weakest(graph, c)] >= strength:
            return
    for c in (a, b):
        if graph.degrees[c] == most:
            other = graph.links[c, weakest(graph, c)]
            drop(graph, c, other)
            drop(graph, other, c)
    for c, other in ((a, b), (b, a)):
        graph.links[c, graph.degrees[c]], graph.strengths[c, graph.degrees[c]] = other, strength
        graph.degrees[c] += 1


@kernel
def disconnect(graph, c):
    """Remove all links of class c. It stays in the ring."""
    for link in range(graph.degrees[c]):
        drop(graph, graph.links[c, link], c)
    graph.degrees[c] = 0


@kernel
def join_ring(graph, c, salt):
    """Make class c live: insert it into the ring after a random live class."""
    n = graph.n_live[0]
    before = graph.live[(salt + c * 7919) % n] if n else c
    after = graph.after[before] if n else c
    graph.before[c], graph.after[c] = before, after
    graph.after[before], graph.before[after] = c, c
    graph.live[n], graph.at[c] = c, n
    graph.n_live[0] = n + 1


@kernel
def leave_ring(graph, c):
    """Remove class c from the ring and from the live classes. The last live class takes its position in `live`."""
    before, after = graph.before[c], graph.after[c]
    graph.after[before], graph.before[after] = after, before
    last = graph.live[graph.n_live[0] - 1]
    graph.live[graph.at[c]], graph.at[last] = last, graph.at[c]
    graph.at[c] = NONE
    graph.before[c], graph.after[c] = NONE, NONE
    graph.n_live[0] -= 1


@kernel
def heaviest(vectors, c, features, values):
    """Write the weights of class c with the largest absolute values, largest first, until the arrays are full. Returns
    their number."""
    n, room = 0, len(features)
    for slot in range(vectors.starts[c], vectors.starts[c] + (np.int64(1) << np.int64(vectors.bits[c]))):
        feature, value = vectors.keys[slot], vectors.values[slot]
        if feature == EMPTY or (n == room and abs(value) <= abs(values[n - 1])):
            continue
        at = n if n < room else n - 1
        while at > 0 and abs(values[at - 1]) < abs(value):
            features[at], values[at] = features[at - 1], values[at - 1]
            at -= 1
        features[at], values[at] = feature, value
        n = min(n + 1, room)
    return n


@kernel
def relink(vectors, graph, classes, salt, features, values, beam):
    """Insert each class again. A class without weights is removed from the graph. Any other class is linked to the best
    classes that a search with its heaviest weights finds. That search starts at a random class, at the next class in
    the ring and at the former neighbours.

    features, values : room for the heaviest weights.
    """
    for k in range(len(classes)):
        c = classes[k]
        if vectors.counts[c] == 0:
            if graph.at[c] >= 0:
                disconnect(graph, c)
                leave_ring(graph, c)
            continue
        if graph.at[c] < 0:
            join_ring(graph, c, salt)
        n_heaviest = heaviest(vectors, c, features, values)
        wanted, weights = features[:n_heaviest], values[:n_heaviest]
        mark = k + 1
        beam.visited[c] = mark  # a class is not its own neighbour
        entry = graph.live[(salt + c * 104729) % graph.n_live[0]]
        n = visit(vectors, wanted, weights, entry, 0, mark, 0, 1, beam)
        n = visit(vectors, wanted, weights, graph.after[c], n, mark, 0, 1, beam)
        for link in range(graph.degrees[c]):
            n = visit(vectors, wanted, weights, graph.links[c, link], n, mark, 0, 1, beam)
        disconnect(graph, c)
        n = walk(vectors, graph, wanted, weights, n, mark, 0, 1, beam)
        for at in range(min(n, graph.links.shape[1])):
            connect(graph, np.int32(c), beam.classes[at], np.float32(beam.scores[at]))
