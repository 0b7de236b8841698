"""Kernels without a folder for their machine code."""

from __future__ import annotations

import warnings

import numba
import pytest

from longtail import compiled


def double(x):
    return 2 * x


def test_a_missing_cache_is_told_once(monkeypatch):
    njit = numba.njit

    def no_locator(cache: bool = False, **options):
        if cache:
            raise RuntimeError("cannot cache function 'double': no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", no_locator)
    compiled._warn_of_no_cache.cache_clear()
    with pytest.warns(RuntimeWarning, match="kernels are compiled at every start.*NUMBA_CACHE_DIR") as seen:
        assert compiled.kernel(double)(3) == 6
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled.kernel(double)
