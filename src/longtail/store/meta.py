"""Members of the manifest's meta data, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail.errors import ModelError


def member(meta: Mapping[str, Any], name: str, kind: Any, where: Path) -> Any:
    """The member `name`, if it is there with this type; a truth value is no number."""
    value = meta.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ModelError(where, f"member {name!r} is missing or of the wrong type")
    return value
