"""The identity of a run: library versions, method, parameters, data and blocks. Every part stores its fingerprint.

Only runs with the same fingerprint share parts, because other data, parameters or versions would give other bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

import longtail

FORMAT = 1  # format version of run folders
VERSIONED = ("numba", "numpy")  # checked in addition to longtail, because another compiler may round differently

Identity = dict[str, dict[str, Any]]  # group -> name -> plain JSON value


def versions() -> dict[str, Any]:
    """Return the versions of all software that can change the bytes of a model."""
    found: dict[str, Any] = {"longtail": longtail.__version__, "run format": FORMAT}
    for package in VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Return a hash of the types, shapes and bytes of arrays."""
    total = hashlib.sha256()
    for array in arrays:
        array = np.asarray(array)
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()[:32]


def plain(value: Any) -> Any:
    """Convert a parameter to a JSON value. Arrays become their digest, other objects their text."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, np.ndarray):
        return digest([value]) if value.dtype != object else repr(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return repr(value)


def fingerprint(identity: Identity) -> str:
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def differences(found: Any, wanted: Identity) -> list[str]:
    """Describe in words how the run in a folder differs from this run."""
    return list(_differences(found if isinstance(found, dict) else {}, wanted))


def _differences(found: dict[str, Any], wanted: Identity) -> Iterator[str]:
    for group, values in wanted.items():
        there = found.get(group)
        there = there if isinstance(there, dict) else {}
        for name in sorted({*there, *values}):
            old, new = there.get(name), values.get(name)
            if old != new or type(old) is not type(new):
                yield f"{_called(group, name)} was {_short(old)} and is now {_short(new)}"


def _called(group: str, name: str) -> str:
    """Name a value of the identity in words. For example, `parameters` and `C` give "parameter C"."""
    singular = {"parameters": "parameter ", "settings": "setting ", "data": "data: ", "blocks": "blocks: "}
    return singular.get(group, "") + name


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
