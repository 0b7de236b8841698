"""The folder of a run.

run/
  run.json, block_*.npy   the manifest: versions, method, parameters, data and blocks, their fingerprint, and the plan
  lock                    held by the process that trains
  events.jsonl            progress, retries and failures, for `longtail runs`
  data/                   X and Y for workers in other processes, memory-mapped
  parts/
    00000012.part         the solution of block 12
    00000012.state        the intermediate state of block 12, if it takes long
"""

from __future__ import annotations

import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from longtail import folder, sealed
from longtail.errors import DataWarning, ModelError
from longtail.runs import pack
from longtail.runs.events import Log
from longtail.runs.identity import Identity, differences, fingerprint
from longtail.runs.lock import Lock

SAVE_COST = 0.03  # largest share of the time that saving states may take
_NUMBER = re.compile(r"(\d{8,})\.(part|state)")
Arrays = Mapping[str, np.ndarray]


class Listed(Protocol):
    """The attributes of a block that the manifest lists."""

    @property
    def number(self) -> int: ...

    @property
    def items(self) -> np.ndarray: ...

    @property
    def cost(self) -> float: ...


B = TypeVar("B", bound=Listed)


class Receipt(NamedTuple):
    """What is kept in memory of a part after it was written."""

    block: int
    bytes: int
    seconds: float


class Parts:
    """The parts of a run, and the states of its unfinished blocks. Workers use this class, too. It needs no lock,
    because the same block always gives the same bytes."""

    def __init__(self, root: Path, mark: str) -> None:
        self.folder = root / "parts"
        self.mark = mark  # the fingerprint of the run

    def path(self, block: int, kind: str = "part") -> Path:
        return self.folder / f"{block:08d}.{kind}"

    def write(self, block: int, arrays: Arrays, seconds: float) -> Receipt:
        """Write the solution of a block, and remove its state."""
        meta = {"run": self.mark, "block": block, "seconds": round(float(seconds), 6)}
        size = pack.write(self.path(block), "part", arrays, meta)
        with suppress(OSError):
            self.path(block, "state").unlink(missing_ok=True)
        return Receipt(block, size, seconds)

    def read(self, block: int) -> tuple[dict[str, np.ndarray], float]:
        """Return the verified arrays of a part, memory-mapped, and the seconds that its block took."""
        arrays, meta = self._read(block, "part")
        return arrays, float(meta["seconds"])

    def _read(self, block: int, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, meta = pack.read(self.path(block, kind), kind)
        if meta.get("run") != self.mark or meta.get("block") != block:
            raise ModelError(self.path(block, kind), f"is the {kind} of another run or block")
        return arrays, meta

    def missing(self, blocks: Sequence[B]) -> list[B]:
        """Return the blocks without a valid part. Warn of each part that is damaged."""
        return [block for block in blocks if not self._is_sound(block.number)]

    def _is_sound(self, block: int) -> bool:
        if not os.path.lexists(self.path(block)):
            return False
        try:
            self._read(block, "part")
        except ModelError as error:
            self.warn_of(block, error)
            return False
        return True

    def warn_of(self, block: int, error: ModelError) -> None:
        """Warn that a part cannot be used. Its block is solved again, and the new part replaces it."""
        warnings.warn(f"{error}; block {block} is solved again", DataWarning, stacklevel=2)

    def marks(self) -> set[Any]:
        """Return the fingerprints of the runs to which the valid parts in this folder belong."""
        found = set()
        for path in sorted(self.folder.glob("*.part")):
            with suppress(ModelError):
                found.add(pack.read(path, "part")[1].get("run"))
        return found

    def tidy(self) -> None:
        """Remove leftovers of a crash: temporary files, and states of blocks that have a part."""
        for path in list(self.folder.iterdir()):
            match = _NUMBER.fullmatch(path.name)
            done = match is not None and match[2] == "state" and path.with_suffix(".part").exists()
            if sealed.TEMPORARY.fullmatch(path.name) or done:
                with suppress(OSError):
                    path.unlink()

    def state(self, block: int, seconds: float) -> State:
        """Return the state of a block. It is saved at most once in `seconds`."""
        return State(self, block, seconds)


class State:
    """The intermediate state of one block. Its solver calls `saved` at the beginning, and `save` from time to time."""

    def __init__(self, parts: Parts, block: int, seconds: float) -> None:
        self._parts = parts
        self._block = block
        self._pause = seconds
        self._next = time.monotonic() + seconds

    def saved(self) -> dict[str, np.ndarray] | None:
        """Return the last saved state, or None if there is no valid one."""
        if not os.path.lexists(self._parts.path(self._block, "state")):
            return None
        try:
            return self._parts._read(self._block, "state")[0]
        except ModelError as error:
            warnings.warn(f"{error}; block {self._block} starts from its beginning", DataWarning, stacklevel=3)
            return None

    def save(self, state: Callable[[], Arrays]) -> None:
        """Save `state()`, unless a state was saved recently."""
        begin = time.monotonic()
        if begin < self._next:
            return
        path = self._parts.path(self._block, "state")
        pack.write(path, "state", state(), {"run": self._parts.mark, "block": self._block})
        end = time.monotonic()
        self._next = end + max(self._pause, (end - begin) / SAVE_COST if self._pause else 0.0)


class Run:
    """A run folder in which this process trains. It is a context manager, which releases the lock at the end.

    plan : what the run was expected to take when it began, as plain JSON values. It is not part of the identity.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        identity: Identity,
        blocks: Sequence[Listed],
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        self.identity = identity
        self.mark = fingerprint(identity)
        self.parts = Parts(self.root, self.mark)
        self.blocks = blocks
        self.plan = plan

    def __enter__(self) -> Self:
        folder.check_target(self.root, folder.RUN)
        with sealed.os_errors(self.root, "cannot write the run"):
            self.parts.folder.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(self.root / "lock").acquire()
        try:
            with sealed.os_errors(self.root, "cannot write the run"):
                self._claim()
                self.parts.tidy()
                self.log = Log(self.root)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                self.log.add("finished")
                shutil.rmtree(self.data_folder, ignore_errors=True)
            else:
                with suppress(ModelError):  # the disk may be full, and the first error is the one to report
                    self.log.add("stopped", reason=f"{kind.__name__}: {error}"[:500])
        finally:
            self.log.close()
            self._lock.release()

    @property
    def data_folder(self) -> Path:
        return self.root / "data"

    def _claim(self) -> None:
        """Make the folder a run with this identity, or check that it already is one."""
        if folder.holds(self.root, folder.RUN):
            try:
                meta, _ = folder.contents(self.root, folder.RUN)
            except ModelError as error:
                self._repair(error)
                return
            found = meta.get("identity")
            if meta.get("fingerprint") == self.mark and found == self.identity:
                return
            said = "; ".join(differences(found, self.identity)) or "its manifest contradicts itself"
            raise ModelError(self.root, f"holds another run: {said}; choose a new folder, or remove this one")
        if any(self.parts.folder.glob("*.part")):
            self._repair(ModelError(self.root, f"holds parts but no {folder.RUN.manifest}"))
            return
        self._write_manifest()

    def _repair(self, error: ModelError) -> None:
        """Write a damaged manifest again. This is possible because every part stores the fingerprint of its run."""
        marks = self.parts.marks()
        if not marks <= {self.mark}:
            raise ModelError(error.path, f"{error.reason}; its parts are of another run, so it cannot be made again")
        warnings.warn(f"{error}; the manifest is made again from the data and the parts", DataWarning, stacklevel=2)
        (self.root / folder.RUN.manifest).unlink(missing_ok=True)
        self._write_manifest()

    def _write_manifest(self) -> None:
        counts = [len(block.items) for block in self.blocks]
        listed = {
            "block_numbers": np.array([block.number for block in self.blocks], np.int64),
            "block_counts": np.array(counts, np.int64),
            "block_costs": np.array([block.cost for block in self.blocks], np.float64),
        }
        meta = {"identity": self.identity, "fingerprint": self.mark, "created": round(time.time(), 3)}
        meta["plan"] = None if self.plan is None else dict(self.plan)
        folder.write(self.root, folder.RUN, listed, meta)
