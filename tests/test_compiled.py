"""Kernels whose machine code cannot be saved: there is no folder, or the compilation is disturbed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings

import numba
import pytest

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


def test_a_compilation_that_is_disturbed_gives_a_kernel_that_works(tmp_path):
    (tmp_path / "triple.py").write_text(
        "from longtail.compiled import kernel\n\n\n@kernel\ndef triple(x):\n    return 3 * x\n", encoding="utf-8"
    )
    told = []
    for script in (DISTURBED, "import triple\nprint(triple.triple(5), triple.triple.stats.cache_hits)"):
        words = [sys.executable, "-c", textwrap.dedent(script)]
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        told.append((ended.stdout.strip(), "KeyboardInterrupt" in ended.stderr))
    assert told == [("[3, 6, 9, 12] 1 Counter()", True), ("15 Counter()", False)]
