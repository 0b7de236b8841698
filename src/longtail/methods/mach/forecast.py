"""What MACH will take: some rows of the first epoch are timed, and some buckets are trained on all rows.

Every row and epoch costs the same, so a few rows of the real groups tell the time. How many weights are large enough to
be stored is known only at the end of training, but each bucket of a sigmoid is trained by itself: a few buckets have
their share of the weights. The buckets of a softmax are coupled. Sigmoids in their place give some more weights than
they have, and a softmax over the sampled buckets and their own rows some fewer.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from longtail.compiled import frozen
from longtail.methods.forecast import TIMER, Forecast, Range, Stopwatch, allocated
from longtail.methods.mach.descent import LINKS, ColumnPiece, RepetitionGroup, thread_shares
from longtail.models.buckets import WEIGHTS
from longtail.parallel import Team, Work

if TYPE_CHECKING:
    from longtail.methods.mach.bases import BasesProblem
    from longtail.methods.mach.problem import MachProblem

SAMPLE_BUCKETS = 16  # the kernels' natural width; fewer columns take as long
FIRST_ROWS = 64
WEIGHTS_DOUBT = 0.1  # of the number of weights


def of_repetitions(problem: MachProblem, n_threads: int) -> Forecast:
    data, hashes, blocks = problem.data, problem.hashes, problem.blocks()
    if not blocks:
        return Forecast(Range(0, 0, 0), 1, Range(0, 0, 0), 0, 0, "nothing to train", 0.0)
    at_once = min(n_threads, len(blocks))
    each = max(1, n_threads // len(blocks))  # threads of a block
    n_visits = data.descent.max_iter * len(data.training) * len(blocks)
    order = frozen(data.order(0), np.int64)
    watch = Stopwatch()

    def train(group: RepetitionGroup, first: int, stop: int) -> float:
        begin = time.thread_time()
        for piece in group.pieces:
            piece.train(order[first:stop], first)
        return time.thread_time() - begin

    def block_bytes() -> None:
        group = RepetitionGroup(data, hashes, blocks[0].items, each)
        train(group, 0, min(FIRST_ROWS, len(order)))  # compiles
        group.packed()

    thread_bytes = allocated(block_bytes)
    with Team(at_once) as team:
        groups = [RepetitionGroup(data, hashes, block.items, each) for block in blocks[:at_once]]
        first_use = Stopwatch()  # the first use of a page of memory takes longer than the work
        for group in groups:
            with first_use.lap():
                for piece in group.pieces:
                    piece.weights.V.fill(0)
        team.run(lambda group: train(group, 0, min(FIRST_ROWS, len(order))), groups)
        done, n_rows, seconds, timed = 0, FIRST_ROWS, 0.0, 0
        while True:
            stop = min(done + n_rows, len(order))
            spent = team.run(lambda group, at=done, end=stop: train(group, at, end), groups)  # type: ignore[misc]
            watch.spent += sum(spent)
            timed += at_once * (stop - done)
            seconds = watch.spent / timed * n_visits
            done, n_rows = stop, 2 * n_rows
            if stop == len(order) or not watch.has_time_for(2 * sum(spent), seconds / 2):
                break
    del groups
    weights = _weights(problem, watch)
    model = weights.times(_bytes_per_weight(problem))
    dense = float(
        len(data.features) * hashes.n_repetitions * hashes.n_buckets * np.dtype(WEIGHTS[data.descent.weights]).itemsize
    )
    model = Range(*(min(value, dense) for value in model)).plus(hashes.table.nbytes)
    return Forecast(
        cpu_seconds=Range.around(seconds + len(blocks) * min(first_use.laps), 2 * TIMER),
        busy_threads=min(n_threads, at_once * _n_pieces(problem, each)),
        model_bytes=model,
        thread_bytes=thread_bytes,
        stack_bytes=2 * model.likely,  # all parts, and the model that they are joined into
        sample=f"{timed:,} of {n_visits:,} visits of a row",
        sample_seconds=watch.spent,
        block_threads=_n_pieces(problem, hashes.n_repetitions * hashes.n_buckets),
    )


def _n_pieces(problem: MachProblem, n_threads: int) -> int:
    """The number of pieces into which this number of threads divides a block."""
    return len(thread_shares(len(problem.blocks()[0].items), problem.hashes.n_buckets, problem.data.link, n_threads))


def _weights(problem: MachProblem, watch: Stopwatch) -> Range:
    """The number of weights that are not pruned."""
    data, hashes = problem.data, problem.hashes
    n_buckets = min(SAMPLE_BUCKETS, hashes.n_buckets)
    of_all = hashes.n_repetitions * hashes.n_buckets / n_buckets
    with watch.lap():
        high = of_all * _large_weights(problem, n_buckets, "sigmoid", data.training)
    if data.link == "sigmoid":
        return Range.around(high, WEIGHTS_DOUBT)
    ends = data.rows.Y[1].view(np.int64)
    bucket = hashes.table[data.rows.Y[0].view(np.int32)[ends[data.training]], -1]
    with watch.lap():
        low = of_all * _large_weights(problem, n_buckets, "softmax", data.training[bucket < n_buckets])
    low, high = min(low, high), max(low, high)
    return Range(low / (1 + WEIGHTS_DOUBT), math.sqrt(low * high), high * (1 + WEIGHTS_DOUBT))


def _large_weights(problem: MachProblem, n_buckets: int, link: str, training: np.ndarray) -> int:
    """Train the first buckets of the last repetition on these rows, and count the weights that are not pruned."""
    data, hashes = problem.data, problem.hashes
    piece = ColumnPiece(data, frozen(hashes.table[:, -1:], hashes.dtype), range(1), range(n_buckets))
    piece.rule = piece.rule._replace(link=LINKS[link], total_rows=data.descent.max_iter * len(training))
    for epoch in range(data.descent.max_iter):
        order = data.order(epoch)
        rows = frozen(order[np.isin(order, training)] if len(training) < len(order) else order, np.int64)
        piece.train(rows, epoch * len(rows))
    piece.absorb_scales()
    return int(np.count_nonzero(np.abs(piece.weights.V) >= max(data.descent.prune / data.scale, 1e-30)))


def _bytes_per_weight(problem: MachProblem) -> int:
    n_columns = problem.hashes.n_repetitions * problem.hashes.n_buckets
    code = np.dtype(WEIGHTS[problem.data.descent.weights]).itemsize
    return code + (2 if n_columns <= 2**16 else 4)


BASE_ROWS = 500
BASE_DOUBT = 2.0  # how the time of a scikit-learn classifier grows with the rows is its own affair


def of_bases(problem: BasesProblem, n_threads: int) -> Forecast:
    """One repetition is trained on some rows. The time is taken as proportional to the rows, with much doubt."""
    blocks, n = problem.blocks(), problem.X.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(n, max(BASE_ROWS, n // 100))).astype(np.int64))
    smaller = problem.like(problem.X[rows], problem.Y[rows])
    watch = Stopwatch()
    bytes_used = allocated(lambda: smaller.solve(blocks[0], Work())) if blocks else 0
    with watch.lap():
        if blocks:
            smaller.solve(blocks[0], Work())
    seconds = watch.spent * n / len(rows) * len(blocks)
    size = 4.0 * (problem.n_features + 1) * problem.hashes.n_repetitions * problem.hashes.n_buckets
    return Forecast(
        cpu_seconds=Range.around(seconds, BASE_DOUBT),
        busy_threads=max(1, min(n_threads, len(blocks))),
        model_bytes=Range(0.05 * size, 0.5 * size, size).plus(problem.hashes.table.nbytes),
        thread_bytes=bytes_used * n / len(rows),
        stack_bytes=2 * size,
        sample=f"one repetition on {len(rows):,} of {n:,} rows",
        sample_seconds=watch.spent,
    )
