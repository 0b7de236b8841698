"""Training runs under fire, for as long as you like: `make soak`, or `python -m tests.runs.soak --kills 100`.

    driver    kill -9 of the training process at random moments, for every method, until `--kills` of them hit
    workers   kill -9 or SIGSTOP of one worker process, or of all, at random moments
    faults    a block raises, ends its worker, hangs or has no memory; in processes and on Ray; a poison block
    flips     a random bit of a random part, state or manifest
    disk      ENOSPC and EIO, once and from then on, at every step
    versions  a run of another version of the library is refused, and goes on with its own
    engines   every method in processes, on Ray, and on Ray without shared storage
    ray       a node of a Ray cluster with three nodes is killed

Every round ends with the model of an uninterrupted fit, byte for byte, or counts as lost. Seeds are printed, and
`--seed` repeats a soak.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import longtail
from longtail import parallel, runs
from longtail.errors import DataWarning, ModelError, RunError
from longtail.parallel import cluster
from tests.runs import toy
from tests.runs.disk import fail_at_every_step
from tests.runs.problems import KINDS, fit, model_id

PARTS = ("driver", "flips", "versions", "disk", "workers", "faults", "engines", "ray")
METHODS = ("one-vs-all", "pd-sparse", "memoir", "mach")
FAULTS = ("kill", "exit", "stop", "hang", "raise", "memory")
HASTY = parallel.AttemptLimits(min_timeout=5.0, silence=4.0, start=30.0, first_block=30.0)


class Soak:
    def __init__(self, place: Path, seed: int, kills: int) -> None:
        self.place, self.random, self.kills = place, random.Random(seed), kills
        self.expected: dict[str, str] = {}
        self.lost = 0

    def tell(self, part: str, **counts: object) -> None:
        print(f"{part:<36}" + ", ".join(f"{name}: {count}" for name, count in counts.items()), flush=True)

    def check(self, clf, kind: str) -> bool:
        """Whether the model is the one of an uninterrupted fit."""
        if kind not in self.expected:
            self.expected[kind] = model_id(fit(kind), self.place / "expected" / kind)
        target = self.place / "model"
        shutil.rmtree(target, ignore_errors=True)
        same = model_id(clf, target) == self.expected[kind]
        self.lost += not same
        return same

    # --- the driver --------------------------------------------------------------------------------------------------

    def driver(self, kind: str) -> None:
        """A child process trains and is killed; the next one goes on, until one of them comes to the end."""
        self.check(fit(kind), kind)
        begin = time.monotonic()
        fit(kind, self.place / "timing")
        longest = 1.3 * (time.monotonic() - begin)
        shutil.rmtree(self.place / "timing")
        rounds = kills = lost = resumed = 0
        while kills < self.kills:
            run, ended = self.place / f"run-{rounds}", False
            while not ended:
                child = os.fork()  # the kernels are loaded already, so a child begins at once
                if child == 0:
                    self._train(kind, run)
                status = _wait_or_kill(child, self.random.uniform(0, longest))
                ended = os.WIFEXITED(status)
                if ended and os.WEXITSTATUS(status):
                    raise AssertionError(f"{kind}: a child failed, see above; the run is in {run}")
                kills += not ended
                resumed += not ended and (run / "run.json").exists()
            rounds += 1
            lost += not self.check(fit(kind, run), kind)
            shutil.rmtree(run)
        self.tell(f"driver, {kind}", rounds=rounds, kills=kills, resumed=resumed, lost=lost)

    @staticmethod
    def _train(kind: str, run: Path) -> None:
        code = 1
        try:
            warnings.simplefilter("ignore")
            fit(kind, run)
            code = 0
        except BaseException as error:
            print(f"child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)

    # --- workers -----------------------------------------------------------------------------------------------------

    def workers(self, rounds: int) -> None:
        """One worker process, or all of them, are killed or stopped while they train."""
        killed = stopped = at_once = lost = 0
        for number in range(rounds):
            run, over = self.place / f"workers-{number}", threading.Event()
            hits: list[int] = []
            sort = self.random.choice((signal.SIGKILL, signal.SIGSTOP))
            most = self.random.choice((1, 99))
            at_once += most > 1

            def shoot(over=over, hits=hits, sort=sort, most=most) -> None:
                while not over.wait(self.random.uniform(0.1, 2.0)) and len(hits) < 3:
                    for child in multiprocessing.active_children()[:most]:
                        os.kill(child.pid, sort)
                        hits.append(sort)

            thread = threading.Thread(target=shoot)
            thread.start()
            try:
                clf = fit("one-vs-all", run, workers="processes:2", silence=3.0)
            finally:
                over.set()
                thread.join()
            killed += hits.count(signal.SIGKILL)
            stopped += hits.count(signal.SIGSTOP)
            lost += not self.check(clf, "one-vs-all")
        self.tell("workers", rounds=rounds, all_at_once=at_once, killed=killed, stopped=stopped, lost=lost)

    # --- faults of blocks --------------------------------------------------------------------------------------------

    def faults(self, where: str) -> None:
        """One block goes wrong once, in every way; then one always kills its worker."""
        X, Y = toy.data()
        plain = model_id(toy.Toy().fit(X, Y), self.place / "toy")
        who = replace(parallel.Workers.of(where), limits=HASTY)
        lost = retries = 0
        for fault in FAULTS:
            root = self.place / f"fault-{where.partition(':')[0]}-{fault}"
            clf = self._toy(root, who, f"{fault}:2:1")
            lost += model_id(clf, root / "model") != plain
            retries += runs.status(root / "run").log.retries
        root = self.place / f"poison-{where.partition(':')[0]}"
        named = False
        try:
            self._toy(root, who, "kill:4:3")
        except RunError as error:
            named = "block 4, labels 12, 13, 14" in str(error) and runs.status(root / "run").n_done == 6
        lost += not named or model_id(self._toy(root, who, ""), root / "model") != plain
        self.lost += lost
        self.tell(f"faults, {where}", kinds=len(FAULTS), retries=retries, poison=int(named), lost=lost)

    @staticmethod
    def _toy(root: Path, workers: parallel.Workers, fault: str) -> toy.Toy:
        (root / "marks").mkdir(parents=True, exist_ok=True)
        os.environ |= {"TOY_FAULT": fault, "TOY_MARKS": str(root / "marks")}
        try:
            return toy.Toy().fit(*toy.data(), run=root / "run", workers=workers)
        finally:
            del os.environ["TOY_FAULT"], os.environ["TOY_MARKS"]

    # --- engines -----------------------------------------------------------------------------------------------------

    def engines(self) -> None:
        look = cluster._make_look
        for where in ("processes:2", "ray", "ray without shared storage"):
            if where.endswith("storage"):
                cluster._make_look = lambda: lambda *words: (look()(*words)[0], False)
            try:
                lost = sum(not self.check(fit(kind, workers=where.partition(" ")[0]), kind) for kind in METHODS)
            finally:
                cluster._make_look = look
            self.tell(f"engines, {where}", methods=len(METHODS), lost=lost)

    # --- versions ----------------------------------------------------------------------------------------------------

    def versions(self) -> None:
        refused = lost = 0
        for kind in METHODS:
            run, own = self.place / f"version-{kind}", longtail.__version__
            _stopped(kind, run)
            longtail.__version__ = "0.0.0"
            try:
                fit(kind, run)
            except ModelError as error:
                refused += 'longtail was "' in str(error)
            finally:
                longtail.__version__ = own
            lost += not self.check(fit(kind, run), kind)
        self.lost += len(METHODS) - refused
        self.tell("versions", runs=len(METHODS), refused=refused, lost=lost)

    # --- bits --------------------------------------------------------------------------------------------------------

    def flips(self, rounds: int) -> None:
        warned = states = lost = 0
        for _ in range(rounds):
            kind = self.random.choice(METHODS)
            root = self.place / f"flips-{kind}"
            if kind in ("pd-sparse", "memoir"):  # their states are damaged; the others are parts of finished runs
                shutil.rmtree(root, ignore_errors=True)
                _stopped(kind, root)
            elif not root.exists():
                fit(kind, root)
            files = [*root.glob("parts/*.state"), *root.glob("parts/*.part"), root / "run.json"]
            path = self.random.choice(sorted(files))
            states += path.suffix == ".state"
            raw = bytearray(path.read_bytes())
            raw[self.random.randrange(len(raw))] ^= 1 << self.random.randrange(8)
            path.write_bytes(raw)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                clf = fit(kind, root)
            found = any(issubclass(each.category, DataWarning) for each in said)
            warned += found
            lost += not (self.check(clf, kind) and found)
            self.lost += not found
        self.tell("flips", rounds=rounds, of_states=states, found=warned, lost=lost)

    # --- the disk ----------------------------------------------------------------------------------------------------

    def disk(self) -> None:
        for code in (errno.ENOSPC, errno.EIO):
            for forever in (False, True):
                steps = sum(
                    fail_at_every_step(self.place / "disk", code, forever=forever, size=size) for size in (10, 0)
                )
                self.tell(f"disk, {errno.errorcode[code]} {'on' if forever else 'once'}", steps=steps, lost=0)

    # --- Ray ---------------------------------------------------------------------------------------------------------

    def ray(self) -> None:
        from tests.runs.ray_cluster import three_nodes

        with three_nodes() as cluster:
            run = self.place / "ray"
            killed: list[float] = []

            def progress(share: float) -> None:
                if share > 0.2 and not killed:
                    killed.append(share)
                    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)

            clf = fit("one-vs-all", run, progress, workers=f"ray:{cluster.address}")
            same = self.check(clf, "one-vs-all")
            found = runs.status(run)
        self.tell("ray, node killed", killed=len(killed), retries=found.log.retries, lost=int(not same))


class _Enough(Exception):  # noqa: N818
    """Ends a fit."""


def _stopped(kind: str, run: Path) -> None:
    """A run that is stopped when it has kept the first part or state."""

    def stop(share: float) -> None:
        if any((run / "parts").glob("*.part")) or any((run / "parts").glob("*.state")):
            raise _Enough

    with contextlib.suppress(_Enough):
        fit(kind, run, stop)


def _wait_or_kill(child: int, seconds: float) -> int:
    """How a child ended that has so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="of the driver, for each method")
    parser.add_argument("--rounds", type=int, default=10, help="of killed workers; ten times as many flips")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    words = parser.parse_args()
    seed = random.randrange(2**31) if words.seed is None else words.seed
    print(f"seed {seed}", flush=True)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "expected").mkdir()
        (Path(place) / "disk").mkdir()
        soak = Soak(Path(place), seed, words.kills)
        parts = {
            "driver": [partial(soak.driver, kind) for kind in words.kinds],
            "flips": [partial(soak.flips, 10 * words.rounds)],
            "versions": [soak.versions],
            "disk": [soak.disk],
            "workers": [partial(soak.workers, words.rounds)],
            "faults": [partial(soak.faults, where) for where in ("processes:2", "ray")],
            "engines": [soak.engines],
            "ray": [soak.ray],
        }
        for name, tasks in parts.items():
            for task in tasks if name in words.only else ():
                task()
    print(f"lost: {soak.lost}")
    return 1 if soak.lost else 0


if __name__ == "__main__":
    sys.exit(main())
