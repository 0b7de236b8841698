"""What one-vs-all will take: blocks of sampled labels are solved on all rows, by as many threads as training will have.

The labels of a sample are at equal distances in the order of frequency, so a sample has its share of frequent labels.
The time of a block is a constant (buffers, and passes over X that the last labels of a block do not fill) plus a time
per label. Samples of two sizes determine both.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from longtail.methods.forecast import TIMER, Forecast, Range, Stopwatch, allocated, disk_bytes, spread, weights_of_all
from longtail.methods.one_vs_all.parts import GROWTH
from longtail.methods.problem import Block, Part
from longtail.models.sharded import WEIGHT_BYTES
from longtail.parallel import Team, Work

if TYPE_CHECKING:
    from longtail.methods.one_vs_all.problem import OneVsAllProblem

WEIGHTS_DOUBT = 0.05
FIRST_LABELS = 64  # labels of the smallest timed blocks; each further round has twice as many


class _Trial(NamedTuple):
    labels: np.ndarray
    n_weights: np.ndarray  # of each of these labels
    weights: np.ndarray
    features: np.ndarray  # of each of the weights
    seconds: float


def of_labels(problem: OneVsAllProblem, n_threads: int) -> Forecast:
    n_positive = problem.positives.n_positive
    order = problem.labels[np.argsort(-n_positive[problem.labels], kind="stable")]
    in_trees = problem.solver != "dual" and problem.start.begins_at_parent
    blocks = problem.blocks()
    smallest = max(1, min(FIRST_LABELS, problem.block_size, len(order) // 8))

    def sample(size: int, number: int, count: int) -> np.ndarray:
        if in_trees:  # a label starts at the solution of its parent, so only whole blocks can be solved
            return blocks[int(spread(len(blocks), count)[number])].items
        labels: np.ndarray = order[spread(len(order), size, (number + 0.5) / count)]
        falling = np.argsort(-n_positive[labels], kind="stable")
        return np.asarray(labels[falling])

    def solve_small() -> None:
        problem.solve(Block(0, sample(smallest, 0, 1), 1.0), Work())

    solve_small()  # compiles
    thread_bytes = allocated(solve_small)
    n_blocks = max(1, min(n_threads, len(blocks)))
    watch, trials, size = Stopwatch(), list[_Trial](), smallest
    with Team(n_blocks) as team:
        while True:
            samples = [sample(size, number, n_blocks) for number in range(n_blocks)]
            found = team.run(lambda labels: _solved(problem, labels), samples)
            trials += found
            watch.spent += sum(trial.seconds for trial in found)
            seconds = _seconds(trials, len(order), len(blocks))
            size = min(2 * size, problem.block_size)
            if in_trees or not watch.has_time_for(2 * sum(trial.seconds for trial in found), seconds.likely):
                break
            if n_blocks * size > len(order) // 4:
                break
    labels = np.concatenate([trial.labels for trial in trials])
    sampled = np.concatenate([trial.n_weights for trial in trials])
    doubt = 2 * float(sampled.std() / max(sampled.mean(), 1e-9)) / math.sqrt(len(labels))
    weights = Range.around(weights_of_all(labels, sampled, n_positive), WEIGHTS_DOUBT + min(doubt, 0.2))
    part_bytes = weights.likely / max(len(blocks), 1)
    return Forecast(
        cpu_seconds=seconds,
        busy_threads=n_blocks,
        model_bytes=weights.times(WEIGHT_BYTES).plus(8 * problem.n_labels),
        thread_bytes=thread_bytes + 3 * WEIGHT_BYTES * part_bytes,  # a part is sorted, and waits for earlier ones
        stack_bytes=GROWTH * WEIGHT_BYTES * weights.likely + 8 * problem.n_labels,
        sample=f"{len(labels):,} of {len(order):,} labels",
        sample_seconds=watch.spent,
        disk_bytes=disk_bytes(*_without_bias(problem, trials), weights, problem.n_labels),
    )


def _solved(problem: OneVsAllProblem, labels: np.ndarray) -> _Trial:
    begin = time.thread_time()
    part: Part = problem.solve(Block(0, labels, 1.0), Work())
    spent = time.thread_time() - begin
    return _Trial(part.items, np.diff(part.arrays["indptr"]), part.arrays["data"], part.arrays["indices"], spent)


def _without_bias(problem: OneVsAllProblem, trials: list[_Trial]) -> tuple[np.ndarray, np.ndarray]:
    """The weights of all trials and their features. The weights of the bias are always float32."""
    weights, features = (np.concatenate([getattr(trial, name) for trial in trials]) for name in ("weights", "features"))
    own = features < problem.n_features
    return weights[own], features[own]


def _seconds(trials: list[_Trial], n_labels: int, n_blocks: int) -> Range:
    """CPU seconds of all blocks: seconds = constant + labels times slope, by least squares."""
    sizes = np.array([len(trial.labels) for trial in trials], float)
    seconds = np.array([trial.seconds for trial in trials])
    rates = seconds / sizes
    slope, constant = seconds.sum() / sizes.sum(), 0.0
    if np.ptp(sizes):
        slope, constant = np.polyfit(sizes, seconds, 1)
        if slope <= 0 or constant < 0:
            slope, constant = seconds[sizes == sizes.max()].mean() / sizes.max(), 0.0
    likely = float(slope * n_labels + constant * n_blocks)
    doubt = TIMER + 2 * float(rates.std() / rates.mean()) / math.sqrt(len(rates))
    return Range.around(likely, doubt)
