"""Fixtures that several rooms share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """As tmp_path, but in memory where the system has such a place: for tests that write thousands of folders."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        yield Path(place)
