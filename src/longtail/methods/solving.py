"""Solve and stack: from a problem to its model, in this process or in others, with or without a run folder."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from longtail import memory, parallel, runs, store, training
from longtail.errors import InputError, ModelError, RunError
from longtail.methods.problem import Block, Extras, Part, Problem
from longtail.models import LinearModel, Model
from longtail.models.sharded import divided, shard_weights
from longtail.topk import TopK
from longtail.training import Training

if TYPE_CHECKING:
    from longtail.methods.planning import Plan

Progress = Callable[[float], None]  # receives the share of the work that is done, from 0 to 1
MAX_NAMES = 5  # labels that an error names
RELEASE_SECONDS = 0.25  # between two releases of memory, which take milliseconds
ROUNDS = 3  # how often blocks are solved if their parts on disk are damaged


class Maker(Protocol):
    """The part of an estimator that solving needs: it makes the problem."""

    method: str
    _extras: Extras

    def _problem(self, X: Any, Y: sp.csr_array) -> Problem: ...


class Solved(NamedTuple):
    """What became of a job: the model, its training record, and the best labels of held-out rows.

    held_out : for every fold of `Extras.folds`, the best labels of its rows; None if the solver does not find them
    """

    model: Model
    record: Training
    held_out: list[TopK] | None = None


@dataclass(frozen=True)
class Job:
    """One fit: the problem, and everything that another process needs to rebuild it."""

    problem: Problem
    maker: Maker
    X: Any
    Y: sp.csr_array
    parameters: Mapping[str, Any]  # the parameters that determine the model
    label_names: np.ndarray
    n_jobs: int | None
    setup_seconds: float = 0.0  # that making the problem took

    def identity(self, blocks: Sequence[Block]) -> runs.Identity:
        """Return what a run folder must match to be resumed by this job."""
        content = [np.asarray(block.items) for block in blocks]
        content += [np.array([[block.number, block.cost] for block in blocks], np.float64)]
        earlier = [array for part in self.problem.earlier() for array in _to_arrays(part).values()]
        earlier += self.maker._extras.arrays()
        rows, features = self.X.shape
        sizes = {"rows": int(rows), "features": int(features), "labels": int(self.Y.shape[1])}
        return {
            "versions": runs.versions(),
            "method": {"method": self.maker.method},
            "parameters": {name: runs.plain(value) for name, value in self.parameters.items()},
            "settings": {name: runs.plain(value) for name, value in self.problem.settings.items()},
            "data": {**sizes, "digest": runs.digest_of_data(self.X, self.Y)},
            "blocks": {"number": len(blocks), "digest": runs.digest(content)},
            "warm start": {"earlier parts": runs.digest(earlier) if earlier else None},
        }


def solve(
    job: Job,
    progress: Progress,
    run: str | os.PathLike[str] | None = None,
    workers: parallel.Workers | None = None,
    shard_size: int | None = None,
    plan: Plan | None = None,
) -> Solved:
    """Return the model of the job, its training record, and the best labels of held-out rows.

    plan : kept in the run folder; the time limits of blocks come from it
    """
    memory.release()  # what reading the data and making the problem needed
    workers = workers or parallel.Workers()
    most = shard_weights(shard_size)
    if run is not None:
        assembly = _Assembly(job.problem, most, store.Shelf(Path(run) / "shards"))
        return _in_folder(job, progress, Path(run), workers, assembly, plan)
    assembly = _Assembly(job.problem, most)
    if workers.are_threads:
        return _in_memory(job, progress, assembly)
    with tempfile.TemporaryDirectory(prefix="longtail-run-", ignore_cleanup_errors=True) as place:
        return _in_folder(job, progress, Path(place), workers, assembly, plan)


# --- in memory -------------------------------------------------------------------------------------------------------


def _in_memory(job: Job, progress: Progress, assembly: _Assembly) -> Solved:
    problem = job.problem

    def timed(block: Block, work: parallel.Work) -> Part:
        begin = time.perf_counter()
        return replace(problem.solve(block, work), seconds=time.perf_counter() - begin)

    with closing(parallel.solve(timed, problem.blocks(), job.n_jobs, progress)) as parts:
        for part in parts:
            assembly.add(part)
    progress(1.0)
    return assembly.result()


class _Assembly:
    """The stack and the record of a problem, while its parts arrive.

    most : the weights that a shard may have. A model with more weights is divided into shards.
    shelf : where shards are written as soon as they are complete; without it, the model is held in memory
    """

    def __init__(self, problem: Problem, most: int, shelf: store.Shelf | None = None) -> None:
        self.problem = problem
        self.most = most
        self.stack = problem.stack()
        if shelf is not None:
            self.stack.use_shelf(shelf, most)
        self.records: dict[int, training.BlockRecord] = {}
        self.released = 0.0
        for part in problem.earlier():
            self.add(part)

    def add(self, part: Part) -> None:
        self.stack.add(part)
        self.records[part.block] = training.BlockRecord(
            part.items, part.status, part.n_iter, part.figures, part.seconds
        )
        if time.monotonic() > self.released + RELEASE_SECONDS:
            memory.release()  # what solving the blocks needed
            self.released = time.monotonic()

    def result(self) -> Solved:
        memory.release()
        problem = self.problem
        record = training.combine(self.records, problem.unit, problem.item_of(), problem.settings)
        held_out, model = self.stack.held_out(), self.stack.model()
        return Solved(divided(model, self.most) if isinstance(model, LinearModel) else model, record, held_out)


# --- in a folder -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Solver:
    """Solves blocks and writes their parts into a run folder. It may run in any process."""

    problem: Problem
    parts: runs.Parts
    save_seconds: float

    def __call__(self, block: Block, work: parallel.Work) -> runs.Receipt:
        begin = time.perf_counter()
        part = self.problem.solve(block, work.keeping(self.parts.state(block.number, self.save_seconds)))
        return self.parts.write(block.number, _to_arrays(part), time.perf_counter() - begin)


@dataclass(frozen=True)
class Recipe:
    """What another process needs to rebuild the problem: the estimator and the place of the data."""

    maker: Maker
    root: Path
    mark: str
    save_seconds: float

    def __call__(self, data: dict[str, np.ndarray] | None = None) -> Callable[[int, parallel.Work], Any]:
        """Return a function that solves a block, given its number.

        Without `data`, the function reads the data of the run folder, writes the part there and returns a receipt. With
        `data`, for workers that cannot see the run folder, it returns the part, and `accept` writes it.
        """
        X, Y = runs.read_data(self.root / "data", self.mark) if data is None else runs.matrices_of(data)
        problem = self.maker._problem(X, Y)
        blocks = {block.number: block for block in problem.blocks()}
        if data is None:
            solver = Solver(problem, runs.Parts(self.root, self.mark), self.save_seconds)
            return lambda number, work: solver(blocks[number], work)

        def solved(number: int, work: parallel.Work) -> tuple[int, dict[str, np.ndarray], float]:
            begin = time.perf_counter()
            part = problem.solve(blocks[number], work)
            return number, _to_arrays(part), time.perf_counter() - begin

        return solved

    def shipped(self) -> dict[str, np.ndarray]:
        """Return the data, for workers that cannot see the run folder."""
        return runs.arrays_of(*runs.read_data(self.root / "data", self.mark))

    def accept(self, result: tuple[int, dict[str, np.ndarray], float]) -> runs.Receipt:
        """Write a part that a worker without access to the run folder returned."""
        return runs.Parts(self.root, self.mark).write(*result)


def _in_folder(
    job: Job,
    progress: Progress,
    root: Path,
    workers: parallel.Workers,
    assembly: _Assembly,
    plan: Plan | None,
) -> Solved:
    blocks = job.problem.blocks()
    expected = None if plan is None else _expected(blocks, plan.block_seconds)
    total = sum(block.cost for block in blocks) or 1.0
    with runs.Run(root, job.identity(blocks), blocks, None if plan is None else plan.as_dict()) as run:
        todo = list(blocks)
        for _ in range(ROUNDS):
            missing = run.parts.missing(todo)
            start = 1.0 - sum(block.cost for block in missing) / total
            run.log.add("started", workers=str(workers), blocks=len(blocks), missing=len(missing), share=start)
            if missing:
                _solve_missing(job, missing, run, workers, _scaled(progress, run, start), expected)
            todo = _stack(run, todo, assembly)
            if not todo:
                break
        else:
            raise RunError(f"{len(todo)} parts in {root} were damaged in each of {ROUNDS} attempts; check the disk")
        progress(1.0)
        return assembly.result()


def _expected(blocks: Sequence[Block], longest_seconds: float) -> Callable[[Block], float]:
    """Return a function from a block to the seconds that it should take, in proportion to its cost."""
    largest = max((block.cost for block in blocks), default=0.0) or 1.0
    return lambda block: longest_seconds * block.cost / largest


def _scaled(progress: Progress, run: runs.Run, start: float) -> Progress:
    """Convert the progress of the missing blocks into the progress of the whole run."""

    def scaled(share: float) -> None:
        whole = start + (1.0 - start) * share
        run.log.progress(whole)
        progress(whole)

    return scaled


def _solve_missing(
    job: Job,
    missing: list[Block],
    run: runs.Run,
    workers: parallel.Workers,
    progress: Progress,
    expected: Callable[[Block], float] | None,
) -> None:
    solver = Solver(job.problem, run.parts, workers.save_seconds)
    recipe = None
    if not workers.are_threads:
        runs.write_data(run.data_folder, job.X, job.Y, run.mark)
        recipe = Recipe(job.maker, run.root, run.mark, workers.save_seconds)
    engine = workers.engine(solver, recipe, job.n_jobs)

    def failed(key: int, attempt: int, reason: str) -> None:
        run.log.add("failed", block=missing[key].number, attempt=attempt, reason=reason[:500])

    try:
        results = parallel.dispatch(
            engine, missing, limits=workers.limits, expected=expected, progress=progress, failed=failed
        )
        with closing(results):
            for receipt in results:
                run.log.add("solved", block=receipt.block, seconds=round(receipt.seconds, 3), bytes=receipt.bytes)
    except parallel.Unsolved as error:
        unsolved = {missing[key].number: reason for key, reason in error.blocks.items()}
        for key in error.blocks:
            run.log.add("unsolved", block=missing[key].number, labels=_names(job, missing[key])[:1000])
        raise _unsolved(job, [missing[key] for key in error.blocks], unsolved, run) from None


def _unsolved(job: Job, blocks: list[Block], reasons: dict[int, str], run: runs.Run) -> RunError:
    said = "; ".join(f"block {block.number}, {_names(job, block)} ({reasons[block.number]})" for block in blocks[:3])
    more = f"; and {len(blocks) - 3} more blocks" if len(blocks) > 3 else ""
    return RunError(
        f"{len(blocks)} of {len(run.blocks)} blocks failed in every attempt: {said}{more}; the parts of the others are "
        f"kept in {run.root}; start the run again to retry the failed blocks",
        reasons,
    )


def _names(job: Job, block: Block) -> str:
    """Describe the labels or repetitions of a block in words."""
    unit = job.problem.unit
    if unit == "model":
        return "the whole model"
    units = np.flatnonzero(np.isin(job.problem.item_of(), block.items))
    shown = [str(job.label_names[number]) if unit == "label" else str(number) for number in units[:MAX_NAMES]]
    more = f" and {len(units) - MAX_NAMES:,} more" if len(units) > MAX_NAMES else ""
    return f"{unit}{'' if len(units) == 1 else 's'} {', '.join(shown)}{more}"


def _stack(run: runs.Run, blocks: list[Block], assembly: _Assembly) -> list[Block]:
    """Stack the parts on disk. Return the blocks whose parts are damaged."""
    damaged = []
    for block in blocks:
        try:
            arrays, seconds = run.parts.read(block.number)
            part = _from_arrays(block, arrays, seconds)
        except ModelError as error:
            run.parts.warn_of(block.number, error)
            damaged.append(block)
        else:
            assembly.add(part)
    return damaged


# --- part <-> arrays -------------------------------------------------------------------------------------------------

_OWN = ("items", "status", "n_iter")


def _to_arrays(part: Part) -> dict[str, np.ndarray]:
    arrays = {name: np.asarray(getattr(part, name)) for name in _OWN}
    arrays |= {f"arrays.{name}": np.asarray(array) for name, array in part.arrays.items()}
    arrays |= {f"figures.{name}": np.asarray(array) for name, array in part.figures.items()}
    odd = [name for name, array in arrays.items() if array.dtype.hasobject]
    if odd:
        raise InputError(f"{odd[0]} holds objects, and a run folder keeps numbers only; train without a run folder")
    return arrays


def _from_arrays(block: Block, arrays: dict[str, np.ndarray], seconds: float) -> Part:
    groups: dict[str, dict[str, np.ndarray]] = {"arrays": {}, "figures": {}}
    own = {}
    for name, array in arrays.items():
        group, _, rest = name.partition(".")
        if rest:
            groups[group][rest] = array
        else:
            own[group] = array
    return Part(block.number, **own, **groups, seconds=seconds)  # type: ignore[arg-type]
