"""Slow, obvious twins of the kernels of MEMOIR, on dense arrays."""

from __future__ import annotations

import numpy as np

from longtail.methods.memoir.weights_kernels import EMPTY, FIRST_TABLE


def truncate(w, amount):
    """Eq. (13): soft thresholding."""
    return np.sign(w) * np.maximum(np.abs(w) - amount, 0.0)


def step(W, X, rows, targets, rivals, eta, rho=1.0):
    """The inner loop of Algorithms 1 and 2 on dense W, in place; which pairs moved."""
    moved = []
    for i, y, r in zip(rows, targets, rivals, strict=True):
        violates = r >= 0 and rho + X[i] @ W[r] - X[i] @ W[y] > 0
        moved.append(violates)
        if violates:
            W[r] -= eta * X[i]
            W[y] += eta * X[i]
    return np.array(moved, bool)


def best_rivals(W, X, Y, rows, classes=None):
    """(score of the best class that is no label of the row, all classes that reach it) for every row."""
    found = []
    for i in rows:
        scores = W @ X[i]
        scores[Y[i] > 0] = -np.inf
        if classes is not None:
            outside = np.ones(len(W), bool)
            outside[classes] = False
            scores[outside] = -np.inf
        found.append((scores.max(), set(np.flatnonzero(scores >= scores.max() - 1e-6).tolist())))
    return found


def best_candidate(W, x, labels, candidates, group, n_groups):
    """The candidate with the largest score that belongs to the group and is no label; the first of equal ones, or
    -1."""
    allowed = [c for c in candidates if c >= 0 and c % n_groups == group and not labels[c]]
    return max(allowed, key=lambda c: x @ W[c], default=-1)


def first_best(scores, begin):
    """The first position of the largest score, looking from `begin` to the end and then from 0; -1 if all are -inf."""
    best = max(scores)
    order = [*range(begin, len(scores)), *range(begin)]
    return next(at for at in order if scores[at] == best) if best > -np.inf else -1


def update_top(top, c, value):
    """A weight for one feature has changed: update the list of [class, value], which has [-1, 0] in unused places."""
    known = [pair for pair in top if pair[0] == c]
    smallest = min(top, key=lambda pair: pair[1])
    if known:
        known[0][1] = value
    elif value > smallest[1]:
        smallest[:] = [c, value]


def add_recent(recent, rival, room):
    """Add a rival to the list of a class, oldest first."""
    if rival >= 0 and rival not in recent:
        recent.append(rival)
        del recent[:-room]


def partial_scores(top_classes, top_values, x, labels, group, n_groups):
    """{class: the part of its score that comes from features that have it as a top class}, where that is above 0."""
    scores = {}
    for feature in np.flatnonzero(x):
        for c, value in zip(top_classes[feature].tolist(), top_values[feature].tolist(), strict=True):
            if c >= 0 and c % n_groups == group and not labels[c]:
                scores[c] = scores.get(c, 0.0) + x[feature] * value
    return {c: score for c, score in scores.items() if score > 0}


def heaviest(w, room):
    """The features with the largest absolute weights, largest first."""
    order = sorted(np.flatnonzero(w).tolist(), key=lambda feature: -abs(w[feature]))
    return order[:room]


def objective(W, X, y, lam):
    """Eq. (10)."""
    scores = X @ W.T
    own = scores[np.arange(len(y)), y]
    scores[np.arange(len(y)), y] = -np.inf
    return lam / 2 * (W**2).sum() + np.maximum(0.0, 1 + scores.max(axis=1) - own).mean()


def lost_share(w, amount):
    """The length of the weights that truncation sets to zero, as a share of the length of w."""
    return np.linalg.norm(w[np.abs(w) <= amount]) / max(np.linalg.norm(w), 1e-300)


def train_eagerly(X, rows, targets, batches, penalty, queries, limit=1.0):
    """Algorithms 1 and 2 on a dense W that is really multiplied and projected, with the batches and rivals of
    `queries`. Returns the weights, and the mean of those after each batch, without postponed truncation."""
    n_classes = int(max(targets.max(), max(query.rivals.max() for query in queries))) + 1
    W = np.zeros((n_classes, X.shape[1]))
    pending = [[] for _ in range(n_classes)]
    after = []
    for t in range(batches.n_batches):
        eta = batches.rate(t)
        own = [query for query in queries if query.batch == t]
        chosen = np.concatenate([query.pairs for query in own])
        rivals = np.concatenate([query.rivals for query in own])
        if not penalty.l1:
            W *= 1 - penalty.lam * eta
        step(W, X, rows[chosen], targets[chosen], rivals, eta / penalty.rho, penalty.rho)
        if penalty.l1:
            touched = np.unique(np.concatenate([targets[chosen], rivals[rivals >= 0]]))
            for c in touched:
                pending[c].append(n_classes / len(touched) * penalty.lam * eta)
                if len(pending[c]) == penalty.every:
                    if lost_share(W[c], sum(pending[c])) <= limit:
                        W[c] = truncate(W[c], sum(pending[c]))
                    pending[c] = []
        elif penalty.project and penalty.lam:
            W *= min(1.0, 1 / (np.sqrt(penalty.lam) * max(np.linalg.norm(W), 1e-300)))
        after.append(W.copy())
    last = np.array([truncate(w, sum(due)) for w, due in zip(W, pending, strict=True)])
    return last, np.mean(after, axis=0)


def check_vectors(vectors):
    """Check every invariant of the arrays behind the class vectors; their entries as {(class, feature): value}."""
    entries, segments = {}, {0: [], 1: []}
    for c, bits in enumerate(vectors.bits):
        if not bits:
            assert vectors.counts[c] == 0
            continue
        assert bits >= FIRST_TABLE
        start, size = int(vectors.starts[c]), 1 << int(bits)
        segments[0].append((start, size))
        slots = [slot for slot in range(start, start + size) if vectors.keys[slot] != EMPTY]
        assert len(slots) == vectors.counts[c] <= 0.75 * size
        for slot in slots:
            feature = int(vectors.keys[slot])
            assert (c, feature) not in entries
            if vectors.indexed:
                number = feature * vectors.n_groups + c % vectors.n_groups
                place = int(vectors.places[slot])
                assert place < vectors.list_counts[number]
                at = int(vectors.list_starts[number]) + place
                assert int(vectors.posting_classes[at]) == c // vectors.n_groups
                assert vectors.posting_values[at] == vectors.values[slot]
            entries[c, feature] = float(vectors.values[slot])
    if vectors.indexed:
        assert int(vectors.list_counts.sum()) == len(entries)  # with the places above: each posting belongs to one slot
        for number, bits in enumerate(vectors.list_bits):
            if bits:
                assert vectors.list_counts[number] <= 1 << int(bits)
                segments[1].append((int(vectors.list_starts[number]), 1 << int(bits)))
    for arena, links in ((0, vectors.keys), (1, vectors.posting_classes)):
        for bits in range(64):
            start = int(vectors.free[arena, bits])
            while start >= 0:
                segments[arena].append((start, 1 << bits))
                start = int(links[start]) - 1
        ends = 0
        for start, size in sorted(
            segments[arena]
        ):  # used and free segments tile the arena: nothing overlaps or is lost
            assert start == ends
            ends = start + size
        assert ends == vectors.used[arena] <= len(links)
    squares = np.zeros(len(vectors.bits))
    for (c, _), value in entries.items():
        squares[c] += value**2
    rounded = 1e-6 * max(1.0, squares.max())  # a class may have been long before it came back to nearly zero
    np.testing.assert_allclose(vectors.squares, squares, rtol=1e-6, atol=rounded)
    np.testing.assert_allclose(vectors.total_square[0], squares.sum(), rtol=1e-6, atol=rounded)
    return entries


class SlowGraph:
    """The small-world graph on dictionaries, over a dense W: the twin of sw_graph_kernels."""

    def __init__(self, n_links):
        self.n_links = n_links
        self.links = {}  # class -> {neighbour: strength}
        self.ring = []
        self.live = []

    def search(self, W, x, entries, beam_size, *, excluded=(), group=0, n_groups=1, own=None):
        """(best class that may be an answer or -1, the beam, best first)."""
        visited, beam = {own}, []
        answer = (-np.inf, -1)

        def visit(c):
            nonlocal answer
            if c in visited:
                return
            visited.add(c)
            score = float(x @ W[c])
            if c not in excluded and c % n_groups == group and score > answer[0]:
                answer = score, c
            beam.append([score, c, True])
            beam.sort(key=lambda entry: -entry[0])
            del beam[beam_size:]

        for c in entries:
            visit(c)
        while any(is_open for _, _, is_open in beam):
            entry = next(entry for entry in beam if entry[2])
            entry[2] = False
            at = self.ring.index(entry[1])
            neighbours = [self.ring[(at + 1) % len(self.ring)], self.ring[at - 1], *self.links[entry[1]]]
            for c in neighbours:
                visit(c)
        return answer[1], [(c, score) for score, c, _ in beam]

    def search_row(self, W, x, row, target, candidates, labels, group, n_groups, salt, beam_size):
        if not self.live:
            return -1
        entries = [self.live[(salt + row * 7919) % len(self.live)], target, *candidates]
        entries = [c for c in entries if c in self.links]
        return self.search(W, x, entries, beam_size, excluded=labels, group=group, n_groups=n_groups)[0]

    def connect(self, a, b, strength):
        if b in self.links[a]:
            return
        full = [c for c in (a, b) if len(self.links[c]) == self.n_links]
        if any(min(self.links[c].values()) >= strength for c in full):
            return
        for c in full:
            weakest = min(self.links[c], key=self.links[c].get)
            del self.links[c][weakest], self.links[weakest][c]
        self.links[a][b] = self.links[b][a] = strength

    def disconnect(self, c):
        for other in self.links[c]:
            del self.links[other][c]
        self.links[c] = {}

    def relink(self, W, classes, salt, n_heaviest, beam_size):
        for c in classes:
            if not W[c].any():
                if c in self.links:
                    self.disconnect(c)
                    del self.links[c]
                    self.ring.remove(c)
                    self.live[self.live.index(c)] = self.live[-1]
                    self.live.pop()
                continue
            if c not in self.links:
                before = self.live[(salt + c * 7919) % len(self.live)] if self.live else None
                self.ring.insert(self.ring.index(before) + 1 if self.live else 0, c)
                self.live.append(c)
                self.links[c] = {}
            x = np.zeros(W.shape[1])
            kept = heaviest(W[c], n_heaviest)
            x[kept] = W[c][kept]
            after = self.ring[(self.ring.index(c) + 1) % len(self.ring)]
            entries = [self.live[(salt + c * 104729) % len(self.live)], after, *self.links[c]]
            self.disconnect(c)
            _, beam = self.search(W, x, entries, beam_size, own=c)
            for other, score in beam[: self.n_links]:
                self.connect(c, other, score)
