"""The formula of the mean-separating start, compiled. msi.py explains it."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

PARALLEL = 1e-9  # how small 1 - cos^2(p, x) may be


@kernel
def separating_coefficients(pp, xx, xp, n_positive, n, s, t):
    """Return u and v of w = u p + v x from <p,p>, <x,x> and <x,p>. Both are 0 if p and x are parallel.

    dual_kernels.py has a copy, because a kernel calls only kernels of its own file. A test compares the two.
    """
    determinant = pp * xx - xp * xp
    if n_positive == 0 or determinant <= PARALLEL * pp * xx:
        return 0.0, 0.0
    a = t + (s - t) * n_positive / n
    return (s * xx - a * xp) / determinant, (a * pp - s * xp) / determinant


@kernel
def mean_separating(X, positives, labels, x_mean, s, t, out):
    """out[b] = u p + v x for labels[b]"""
    n, D = len(X.indptr) - 1, len(x_mean)
    xx = 0.0
    for j in range(D):
        xx += x_mean[j] * x_mean[j]
    for b in range(len(out)):
        own = positives.rows[positives.indptr[labels[b]] : positives.indptr[labels[b] + 1]]
        w, count = out[b], len(own)
        for j in range(D):
            w[j] = 0.0
        if count == 0:
            continue
        for a in range(count):  # w holds p for now
            i = own[a]
            for q in range(X.indptr[i], X.indptr[i + np.uint32(1)]):
                w[X.indices[q]] += X.data[q] / count
            for f in range(X.dense.shape[1]):
                w[X.n_sparse + f] += X.dense[i, f] / count
        if X.bias > 0.0:
            w[-1] = X.bias
        pp, xp = 0.0, 0.0
        for j in range(D):
            pp += w[j] * w[j]
            xp += w[j] * x_mean[j]
        u, v = separating_coefficients(pp, xx, xp, count, n, s, t)
        for j in range(D):
            w[j] = u * w[j] + v * x_mean[j]
