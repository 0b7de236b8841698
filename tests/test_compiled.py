"""How kernels are compiled: by one process for all, and also where the machine code cannot be saved."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import textwrap
import time
import warnings

import numba
import numpy as np
import pytest
from numba import types

from longtail import compiled


def double(x):
    return 2 * x


def test_a_missing_cache_is_told_once(monkeypatch):
    njit = numba.njit

    def no_locator(*function, cache: bool = False, **options):
        if cache:
            raise RuntimeError("cannot cache function 'double': no locator available")
        return njit(*function, **options)

    monkeypatch.setattr(numba, "njit", no_locator)
    compiled._warn_of_no_cache.cache_clear()
    with pytest.warns(RuntimeWarning, match="kernels are compiled at every start.*NUMBA_CACHE_DIR") as seen:
        assert compiled.kernel(double)(3) == 6
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled.kernel(double)


def sum_of_ones(n):
    return np.ones(n).sum()


def test_a_borrowing_kernel_makes_no_arrays():
    assert compiled.borrowing_kernel(double)(3) == 6
    with pytest.raises(numba.core.errors.NumbaError, match="returning of array"):
        compiled.borrowing_kernel(sum_of_ones)(3)


@pytest.mark.parametrize("form", ["outer", "inner"])
def test_threads_share_the_forms_of_a_kernel(form, monkeypatch):
    """Since Python 3.12, `cached_property` does not make threads wait for each other."""

    def slowly(kernel):
        time.sleep(0.05)
        return object()

    monkeypatch.setattr(compiled.Kernel, f"_make_{form}", slowly)
    fresh = compiled.kernel(double)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: getattr(fresh, form), range(4)))
    assert made == 4 * made[:1]


DISTURBED = """
    from numba.core.codegen import JITCodeLibrary

    hook, calls = JITCodeLibrary._object_compiled_hook, []

    def interrupted(library, machine_code):
        if "triple" in library.name:
            calls.append(library.name)
            raise KeyboardInterrupt
        hook(library, machine_code)

    JITCodeLibrary._object_compiled_hook = interrupted
    import concurrent.futures
    import triple

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(triple.triple, [1, 2, 3, 4]))
    print(answers, len(calls), triple.triple.stats.cache_hits)
"""


@compiled.kernel
def plus(x, y):
    return x + y


@compiled.kernel
def plus_constants(x):
    return plus(plus(x, 0), plus(1, plus(x, x)))


def test_constants_need_no_compilation_of_their_own():
    assert plus_constants(5) == 16
    plus_constants.inner.compile((types.int64,))  # never from the cache
    assert plus.inner.signatures == [(types.int64, types.int64)]


TOGETHER = """
    import time
    from numba.core import event

    class Slow(event.Listener):
        def on_start(self, event):
            time.sleep(1)  # so that the other process comes meanwhile

        def on_end(self, event):
            pass

    event.register("numba:compile", Slow())
    import triple

    open(f"ready{os.getpid()}", "w").close()
    while len(glob.glob("ready*")) < 2:
        time.sleep(0.01)
    print(triple.triple(5), sum(triple.triple.stats.cache_hits.values()))
"""


def triple(folder):
    """Write a module with a kernel, and return the environment that keeps its machine code beside it."""
    (folder / "triple.py").write_text(
        "from longtail.compiled import kernel\n\n\n@kernel\ndef triple(x):\n    return 3 * x\n", encoding="utf-8"
    )
    return {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}


def test_two_processes_compile_a_kernel_once(tmp_path):
    words = [sys.executable, "-c", "import glob, os\n" + textwrap.dedent(TOGETHER)]
    options = {"cwd": tmp_path, "env": triple(tmp_path), "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(words, **options) for _ in range(2)]
    assert sorted(each.communicate(timeout=120)[0].strip() for each in both) == ["15 0", "15 1"]


def test_machine_code_of_another_version_is_compiled_again(tmp_path):
    """The types of the first version are gone in the second."""
    script = """
        from typing import NamedTuple
        from longtail.compiled import kernel

        class {name}(NamedTuple):
            x: int

        @kernel
        def double(pair):
            return 2 * pair.x
    """
    words = [sys.executable, "-c", "import pairs; print(pairs.double(pairs.{name}(4)))"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for name in ("First", "Second"):
        (tmp_path / "pairs.py").write_text(textwrap.dedent(script).format(name=name), encoding="utf-8")
        command = [word.format(name=name) for word in words]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ended.stdout.strip() == "8", ended.stderr


@pytest.mark.parametrize("folder", [None, "absent"])
def test_without_a_place_for_the_lock_a_kernel_is_compiled_all_the_same(folder, tmp_path):
    with compiled._alone(folder and str(tmp_path / folder), "double"):
        pass


def test_a_process_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "PATIENCE", 0.1)
    with compiled._alone(str(tmp_path), "double"), compiled._alone(str(tmp_path), "double"):
        assert os.listdir(tmp_path) == ["double.lock"]


def test_a_compilation_that_is_disturbed_gives_a_kernel_that_works(tmp_path):
    environment = triple(tmp_path)
    told = []
    for script in (DISTURBED, "import triple\nprint(triple.triple(5), triple.triple.stats.cache_hits)"):
        words = [sys.executable, "-c", textwrap.dedent(script)]
        ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        told.append((ended.stdout.strip(), "KeyboardInterrupt" in ended.stderr))
    assert told == [("[3, 6, 9, 12] 1 Counter()", True), ("15 Counter()", False)]


@compiled.kernel
def both(a, b):
    return compiled_larger(a, b), compiled_smaller(a, b)


compiled_larger, compiled_smaller = compiled.larger, compiled.smaller


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, 2), (2, 1), (-3, 2), (1.5, 1), (np.float32(0.5), np.float32(-0.5)), (np.uint32(7), np.uint32(2**31 + 1)),
     (np.nan, 1.0), (1.0, np.nan), (0.0, -0.0)],
)  # fmt: skip
def test_larger_and_smaller_are_max_and_min(a, b):
    found, expected = both(a, b), (max(a, b), min(a, b))
    np.testing.assert_array_equal(found, expected)
    assert [np.signbit(value) for value in found] == [np.signbit(value) for value in expected]
