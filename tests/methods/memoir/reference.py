"""Slow, obvious twins of the kernels of MEMOIR, on dense arrays."""

from __future__ import annotations

import numpy as np

from longtail.methods.memoir.store_kernels import EMPTY, FIRST_TABLE


def truncate(w, amount):
    """Eq. (13): soft thresholding."""
    return np.sign(w) * np.maximum(np.abs(w) - amount, 0.0)


def step(W, X, rows, targets, rivals, eta):
    """The inner loop of Algorithms 1 and 2 on dense W, in place; which pairs moved."""
    moved = []
    for i, y, r in zip(rows, targets, rivals, strict=True):
        violates = r >= 0 and 1 + X[i] @ W[r] - X[i] @ W[y] > 0
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


def champion_shares(champions, values, x, labels, group, n_groups):
    """{class: what the features of which it is a champion give to its score}, where that is above 0."""
    shares = {}
    for feature in np.flatnonzero(x):
        for c, value in zip(champions[feature].tolist(), values[feature].tolist(), strict=True):
            if c >= 0 and c % n_groups == group and not labels[c]:
                shares[c] = shares.get(c, 0.0) + x[feature] * value
    return {c: share for c, share in shares.items() if share > 0}


def objective(W, X, y, lam):
    """Eq. (10)."""
    scores = X @ W.T
    own = scores[np.arange(len(y)), y]
    scores[np.arange(len(y)), y] = -np.inf
    return lam / 2 * (W**2).sum() + np.maximum(0.0, 1 + scores.max(axis=1) - own).mean()


def train_eagerly(X, rows, targets, schedule, penalty, steps):
    """Algorithms 1 and 2 on a dense W that is really multiplied and projected, with the batches and rivals of
    `steps`."""
    n_classes = int(max(targets.max(), max(rivals.max() for _, rivals in steps))) + 1
    W = np.zeros((n_classes, X.shape[1]))
    debts = [[] for _ in range(n_classes)]
    for t, (chosen, rivals) in enumerate(steps):
        eta = schedule.eta(t)
        if not penalty.l1:
            W *= 1 - penalty.lam * eta
        step(W, X, rows[chosen], targets[chosen], rivals, eta)
        if penalty.l1:
            touched = np.unique(np.concatenate([targets[chosen], rivals[rivals >= 0]]))
            for c in touched:
                debts[c].append(n_classes / len(touched) * penalty.lam * eta)
                if len(debts[c]) == penalty.every:
                    W[c] = truncate(W[c], sum(debts[c]))
                    debts[c] = []
        elif penalty.project and penalty.lam:
            W *= min(1.0, 1 / (np.sqrt(penalty.lam) * max(np.linalg.norm(W), 1e-300)))
    return np.array([truncate(w, sum(owed)) for w, owed in zip(W, debts, strict=True)])


def check_store(store):
    """Every invariant of the arrays behind the weights; the entries as {(class, feature): value}."""
    entries, blocks = {}, {0: [], 1: []}
    for c, bits in enumerate(store.bits):
        if not bits:
            assert store.counts[c] == 0
            continue
        assert bits >= FIRST_TABLE
        start, size = int(store.starts[c]), 1 << int(bits)
        blocks[0].append((start, size))
        slots = [slot for slot in range(start, start + size) if store.keys[slot] != EMPTY]
        assert len(slots) == store.counts[c] <= 0.75 * size
        for slot in slots:
            feature = int(store.keys[slot])
            assert (c, feature) not in entries
            if store.indexed:
                number = feature * store.n_groups + c % store.n_groups
                place = int(store.places[slot])
                assert place < store.list_counts[number]
                at = int(store.list_starts[number]) + place
                assert int(store.classes[at]) == c // store.n_groups
                assert store.postings[at] == store.values[slot]
            entries[c, feature] = float(store.values[slot])
    if store.indexed:
        assert int(store.list_counts.sum()) == len(entries)  # with the places above: each posting belongs to one slot
        for number, bits in enumerate(store.list_bits):
            if bits:
                assert store.list_counts[number] <= 1 << int(bits)
                blocks[1].append((int(store.list_starts[number]), 1 << int(bits)))
    for arena, links in ((0, store.keys), (1, store.classes)):
        for bits in range(64):
            start = int(store.free[arena, bits])
            while start >= 0:
                blocks[arena].append((start, 1 << bits))
                start = int(links[start]) - 1
        ends = 0
        for start, size in sorted(blocks[arena]):  # used and free blocks tile the arena: nothing overlaps or is lost
            assert start == ends
            ends = start + size
        assert ends == store.top[arena] <= len(links)
    squares = np.zeros(len(store.bits))
    for (c, _), value in entries.items():
        squares[c] += value**2
    rounded = 1e-6 * max(1.0, squares.max())  # a class may have been long before it came back to nearly zero
    np.testing.assert_allclose(store.norms, squares, rtol=1e-6, atol=rounded)
    np.testing.assert_allclose(store.square[0], squares.sum(), rtol=1e-6, atol=rounded)
    return entries
