"""A run on a disk that fails at its first call, then at its second, and so on."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import pytest
from sklearn.base import clone

from longtail import parallel
from longtail.errors import DataWarning, LongtailError
from tests.runs.toy import Toy, data
from tests.store.faults import Faults

X, Y = data()


def fail_at_every_step(place: Path, code: int, *, forever: bool, size: int) -> int:
    """Fail with this error code, once or `forever`, at every step of a run; the number of steps.

    Each time, the run ends well or with an error of one line, and then goes on and ends with the same weights. What has
    the name of a part is sound, and stays as it is. Two steps save a state once each, and replace it once.
    """
    toy, workers, root = Toy(size, n_steps=2, n_jobs=1), parallel.Workers(save_seconds=0.0), place / "run"
    expected = clone(toy).fit(X, Y).model_.W

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    for first in range(1, 2000):
        shutil.rmtree(root, ignore_errors=True)
        faults, said = Faults(first, fail, forever=forever), None
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # a part that could not be read, for example
            faults.install(lambda place, name, value, patch=patch: patch.setattr(place, name, value, raising=False))
            patch.setattr("longtail.runs.lock.open", faults._open, raising=False)
            patch.setattr(os, "write", faults._guarded(os.write))
            try:
                clf = clone(toy).fit(X, Y, run=root, workers=workers)
            except LongtailError as error:
                said = str(error)
        if said is not None:
            assert "\n" not in said
            assert str(place) in said
            done = {path: path.read_bytes() for path in root.glob("parts/*.part")} if root.exists() else {}
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                clf = clone(toy).fit(X, Y, run=root, workers=workers)
            assert done == {path: path.read_bytes() for path in done}
        W = clf.model_.W
        assert (W.data.tobytes(), W.indices.tobytes()) == (expected.data.tobytes(), expected.indices.tobytes())
        if not faults.fired:
            return first
    raise AssertionError("a run never takes so many steps")
