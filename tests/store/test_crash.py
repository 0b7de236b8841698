"""Saving over a model while the disk fails, the user interrupts, or the process dies, at every single step of it."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from longtail.errors import ModelError
from longtail.store import read_model
from tests.store.faults import Faults
from tests.store.samples import assert_same_model, number_model, plain_model, save, text_model


def disk_full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken_disk() -> None:
    raise OSError(errno.EIO, "Input/output error")


def interrupt() -> None:
    raise KeyboardInterrupt


def is_model(root: Path, model) -> bool:
    try:
        assert_same_model(read_model(root)[0], model)
    except AssertionError:
        return False
    return True


def error_of(root: Path) -> ModelError | None:
    try:
        read_model(root)
    except ModelError as error:
        return error
    return None


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


@pytest.mark.parametrize("forever", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("fail", [disk_full, broken_disk, interrupt])
@pytest.mark.parametrize("old", [plain_model(0), None], ids=["over a model", "anew"])
def test_a_fault_at_any_step_leaves_the_old_model_or_the_new(memory_path, fail, forever, old):
    new, root = number_model(), memory_path / "m"  # the arrays of shards and indexes are written in the same way
    wanted = names(save(memory_path / "wanted", new))
    outcomes = []
    for first in range(1, 1000):
        if old is not None:
            save(root, old)
        elif root.exists():
            (root / "model.json").unlink(missing_ok=True)  # what is left is an unfinished save
        faults, error = Faults(first, fail, forever=forever), None
        with pytest.MonkeyPatch.context() as patch:
            faults.install(lambda place, name, value, patch=patch: patch.setattr(place, name, value, raising=False))
            try:
                save(root, new)
            except (ModelError, KeyboardInterrupt) as raised:
                error = raised
        if error is None:
            assert is_model(root, new)  # what returned normally is saved
            outcomes.append("saved")
        elif (root / "model.json").exists():
            outcomes.append("new" if is_model(root, new) else "old")
            assert outcomes[-1] == "new" or is_model(root, old)
        else:
            outcomes.append("old")
            assert old is None  # no manifest, no model: and there was none before
        if isinstance(error, ModelError):
            assert str(memory_path) in error.path
        save(root, new)
        assert names(root) == wanted  # no temporary file outlives the next save
        if not faults.fired:
            break
    assert outcomes[-1] == "saved"
    assert len(outcomes) > 40
    assert outcomes.count("old") > 30
    assert "new" in outcomes  # a fault after the switch, when the folder itself is flushed


def test_faults_while_loading_are_errors_of_the_folder(memory_path):
    root = save(memory_path / "m", text_model())
    for first in range(1, 1000):
        faults = Faults(first, broken_disk, forever=True)
        with pytest.MonkeyPatch.context() as patch:
            faults.install(lambda place, name, value, patch=patch: patch.setattr(place, name, value, raising=False))
            error = error_of(root)
        if not faults.fired:
            break
        assert error is not None
        assert "Input/output error" in error.reason
        assert Path(error.path).parent == root
    assert first > 30
    assert error is None


# --- a process that dies ---------------------------------------------------------------------------------------------

DYING = """
import json, os, signal, sys
import numpy as np
from longtail import folder
from tests.store.faults import Faults

root, outcomes = sys.argv[1], []
OLD, NEW = ({name: np.full(3, value) for name in "abc"} for value in (1.0, 2.0))
DEATHS = [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(9)]
for first in range(1, 1000):
    folder.write(root, folder.MODEL, OLD, {"value": 1.0})
    child = os.fork()
    if child == 0:
        Faults(first, DEATHS[first % 2]).install(setattr)
        folder.write(root, folder.MODEL, NEW, {"value": 2.0})
        os._exit(0)
    _, status = os.waitpid(child, 0)
    arrays, meta = folder.read(root, folder.MODEL)
    values = {meta["value"], *(value for array in arrays.values() for value in array.tolist())}
    assert len(values) == 1, f"a mixture after death at step {first}: {values}"
    outcomes.append(values.pop())
    left = len(os.listdir(root)) - 4
    folder.write(root, folder.MODEL, NEW, {"value": 2.0})
    assert len(os.listdir(root)) == 4, os.listdir(root)
    outcomes[-1] = [outcomes[-1], left]
    if status == 0:
        break
print(json.dumps(outcomes))
"""


def test_a_process_killed_at_any_step_leaves_the_old_folder_or_the_new(memory_path):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", DYING, str(memory_path / "m")]
    place = Path(__file__).parents[2]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=place)
    assert answer.returncode == 0, answer.stderr
    outcomes = json.loads(answer.stdout)
    values = [value for value, _ in outcomes]
    assert values == sorted(values)  # old up to the switch, new from there on
    assert min(values.count(1.0), values.count(2.0)) > 4
    assert outcomes[-1] == [2.0, 0]
    assert max(left for _, left in outcomes) >= 3  # dying does leave files behind; the next save takes them away
