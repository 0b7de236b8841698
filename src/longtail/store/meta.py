"""Checked access to the members of the manifest's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail.errors import ModelError


def member(meta: Mapping[str, Any], name: str, kind: Any, where: Path) -> Any:
    """Return the member `name`. Raise ModelError if it is missing or has another type. A bool does not count as a
    number."""
    value = meta.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ModelError(where, f"member {name!r} is missing or of the wrong type")
    return value
