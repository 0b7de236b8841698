"""Compiled loops of the small-world graph: best-first search, and links that are made and broken while classes move.

Only links are kept; scores are always taken from the weights as they are, so no vector is ever stale. Links are mutual:
b is linked to a when a is linked to b. A class has at most M of them; when it is full, a new link replaces its weakest
if that is weaker. So links alone may leave a class unreachable. The live classes therefore also form a ring, in random
order: its links hold the graph together, and are the long-range contacts of a small world.

`find` and `dot` read the tables of store_kernels, which describes them; a kernel file is complete in itself.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

EMPTY = np.uint32(2**32 - 1)
NONE = -1


@kernel
def find(store, c, feature):
    """The slot of the feature in the table of class c, or -1."""
    bits = np.int64(store.bits[c])
    if bits == 0:
        return np.int64(-1)
    start, mask = store.starts[c], (np.int64(1) << bits) - 1
    h = np.int64(np.uint32(feature * np.uint32(2654435769)) >> np.uint32(32 - bits))
    while True:
        key = store.keys[start + h]
        if key == feature:
            return start + h
        if key == EMPTY:
            return np.int64(-1)
        h = (h + 1) & mask


@kernel
def dot(store, features, values, c):
    """The score of class c for the vector with these features."""
    total = 0.0
    for p in range(len(features)):
        slot = find(store, c, features[p])
        if slot >= 0:
            total += values[p] * store.values[slot]
    return total


# --- search ----------------------------------------------------------------------------------------------------------


@kernel
def offer(store, features, values, c, n, stamp, group, n_groups, beam):
    """Score class c unless it was met, and put it into the beam, which is sorted, if it is good enough; the new size.

    beam.met[c] is stamp for a class that was met, and -stamp for one that was not but can be no answer. The best answer
    so far, of the classes c = group (mod n_groups), is kept in beam.answer with its score, whether the beam has it or
    not.
    """
    met = beam.met[c]
    if met == stamp:
        return n
    beam.met[c] = stamp
    score = dot(store, features, values, c)
    if met != -stamp and c % n_groups == group and score > beam.answer[1]:
        beam.answer[0], beam.answer[1] = c, score
    if n == len(beam.classes):
        if score <= beam.scores[n - 1]:
            return n
        n -= 1
    at = n
    while at > 0 and beam.scores[at - 1] < score:
        beam.classes[at], beam.scores[at], beam.open[at] = (
            beam.classes[at - 1],
            beam.scores[at - 1],
            beam.open[at - 1],
        )
        at -= 1
    beam.classes[at], beam.scores[at], beam.open[at] = c, score, True
    return n + 1


@kernel
def widen(store, graph, features, values, n, stamp, group, n_groups, beam):
    """Follow the links of the best class of the beam whose links have not been followed, until there is none."""
    while True:
        at = 0
        while at < n and not beam.open[at]:
            at += 1
        if at == n:
            return n
        beam.open[at] = False
        c = beam.classes[at]
        n = offer(store, features, values, graph.after[c], n, stamp, group, n_groups, beam)
        n = offer(store, features, values, graph.before[c], n, stamp, group, n_groups, beam)
        for link in range(graph.degrees[c]):
            n = offer(store, features, values, graph.links[c, link], n, stamp, group, n_groups, beam)


@kernel
def search_rows(store, graph, X, Y, rows, targets, entries, group, n_groups, salt, beam, out):
    """out[k] = the best class found for row rows[k] that belongs to the group and is no label of it, or -1.

    The search enters the graph at a class drawn at random, at the target, whose neighbours are likely rivals, and at
    the entries of the row.
    """
    n_live = graph.n_live[0]
    for k in range(len(rows)):
        i, stamp, n, out[k] = rows[k], k + 1, 0, NONE
        if n_live == 0:
            continue
        beam.answer[0], beam.answer[1] = NONE, -np.inf
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            beam.met[Y.indices[p]] = -stamp
        features, values = X.indices[X.indptr[i] : X.indptr[i + 1]], X.data[X.indptr[i] : X.indptr[i + 1]]
        entry = graph.live[(salt + i * 7919) % n_live]
        n = offer(store, features, values, entry, n, stamp, group, n_groups, beam)
        if graph.at[targets[k]] >= 0:
            n = offer(store, features, values, np.int32(targets[k]), n, stamp, group, n_groups, beam)
        for c in entries[k]:
            if c >= 0 and graph.at[c] >= 0:
                n = offer(store, features, values, c, n, stamp, group, n_groups, beam)
        n = widen(store, graph, features, values, n, stamp, group, n_groups, beam)
        out[k] = np.int64(beam.answer[0])


# --- links -----------------------------------------------------------------------------------------------------------


@kernel
def drop(graph, a, b):
    """Take b off the links of a; the last link moves to its place."""
    last = graph.degrees[a] - 1
    for link in range(graph.degrees[a]):
        if graph.links[a, link] == b:
            graph.links[a, link], graph.strengths[a, link] = graph.links[a, last], graph.strengths[a, last]
            graph.degrees[a] = last
            return


@kernel
def weakest(graph, a):
    """The link of a with the smallest strength."""
    found = 0
    for link in range(1, graph.degrees[a]):
        if graph.strengths[a, link] < graph.strengths[a, found]:
            found = link
    return found


@kernel
def connect(graph, a, b, strength):
    """Link a and b, unless they are linked, or one of them has better links already and no room."""
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
    """Break all links of class c; it stays in the ring."""
    for link in range(graph.degrees[c]):
        drop(graph, graph.links[c, link], c)
    graph.degrees[c] = 0


@kernel
def join_ring(graph, c, salt):
    """Class c becomes live, in the ring after a live class drawn at random."""
    n = graph.n_live[0]
    before = graph.live[(salt + c * 7919) % n] if n else c
    after = graph.after[before] if n else c
    graph.before[c], graph.after[c] = before, after
    graph.after[before], graph.before[after] = c, c
    graph.live[n], graph.at[c] = c, n
    graph.n_live[0] = n + 1


@kernel
def leave_ring(graph, c):
    """Class c is live no more; the last of `live` takes its place there."""
    before, after = graph.before[c], graph.after[c]
    graph.after[before], graph.before[after] = after, before
    last = graph.live[graph.n_live[0] - 1]
    graph.live[graph.at[c]], graph.at[last] = last, graph.at[c]
    graph.at[c], graph.before[c], graph.after[c] = NONE, NONE, NONE
    graph.n_live[0] -= 1


@kernel
def heaviest(store, c, features, values):
    """The heaviest weights of class c, as many as there is room for; how many."""
    n, room = 0, len(features)
    for slot in range(store.starts[c], store.starts[c] + (np.int64(1) << np.int64(store.bits[c]))):
        feature, value = store.keys[slot], store.values[slot]
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
def relink(store, graph, classes, salt, features, values, beam):
    """Place each class anew: out of the graph without weights; else linked to the best that a search for its heaviest
    weights finds, which begins at its former neighbours and at a class drawn at random.

    features, values : room for the heaviest weights.
    """
    for k in range(len(classes)):
        c = classes[k]
        if store.counts[c] == 0:
            if graph.at[c] >= 0:
                disconnect(graph, c)
                leave_ring(graph, c)
            continue
        if graph.at[c] < 0:
            join_ring(graph, c, salt)
        m = heaviest(store, c, features, values)
        wanted, weights = features[:m], values[:m]
        stamp, n = k + 1, 0
        beam.met[c] = stamp  # never its own neighbour
        entry = graph.live[(salt + c * 104729) % graph.n_live[0]]
        n = offer(store, wanted, weights, entry, n, stamp, 0, 1, beam)
        n = offer(store, wanted, weights, graph.after[c], n, stamp, 0, 1, beam)
        for link in range(graph.degrees[c]):
            n = offer(store, wanted, weights, graph.links[c, link], n, stamp, 0, 1, beam)
        disconnect(graph, c)
        n = widen(store, graph, wanted, weights, n, stamp, 0, 1, beam)
        for at in range(min(n, graph.links.shape[1])):
            connect(graph, np.int32(c), beam.classes[at], np.float32(beam.scores[at]))
