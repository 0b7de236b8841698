"""Fixtures that several rooms share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("longtail", deadline=None)  # the first example of a test may compile a kernel
settings.load_profile("longtail")


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """As tmp_path, but in memory where the system has such a place: for tests that write thousands of folders."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        yield Path(place)
