"""Model folders whose seals are right and whose content is not: what an attacker, or a faulty writer, could leave.

Spelled out again here rather than borrowed from longtail.folder, so that the format is checked twice.
"""

from __future__ import annotations

import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np


class Forgery:
    """The manifest of a folder as a dict to be edited; `seal` writes it with a valid checksum."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.body: dict[str, Any] = json.loads((root / "model.json").read_bytes())
        del self.body["~crc32"]
        self.meta, self.entries = self.body["meta"], self.body["arrays"]

    def seal(self) -> None:
        (self.root / "model.json").write_bytes(sealed(self.body))

    def array(self, name: str) -> np.ndarray:
        return np.load(self.root / self.entries[name]["file"])

    def put(self, name: str, array: Any, dtype: Any = None) -> None:
        """Exchange an array, with name, size, checksum, dtype and shape all as they should be."""
        array = np.array(array, dtype)
        file = io.BytesIO()
        np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=True)
        self.put_bytes(name, file.getvalue(), dtype=array.dtype.str, shape=list(array.shape))

    def put_bytes(self, name: str, raw: bytes, **members: Any) -> None:
        crc = zlib.crc32(raw)
        entry = {**self.entries.get(name, {}), "file": f"{name}-{crc:08x}.npy", "crc32": crc, "bytes": len(raw)}
        self.entries[name] = {**entry, **members}
        (self.root / self.entries[name]["file"]).write_bytes(raw)

    def edit(self, name: str, change: Any) -> None:
        """Exchange an array by a changed copy of itself."""
        array = self.array(name).copy()
        changed = change(array)
        self.put(name, array if changed is None else changed)

    def header(self, name: str, old: bytes, new: bytes) -> None:
        """Exchange text in the header of an array file, which keeps its length."""
        raw = (self.root / self.entries[name]["file"]).read_bytes()
        assert old in raw[:128]
        head = raw[:128].replace(old, new).rstrip(b" \n")
        self.put_bytes(name, head.ljust(127) + b"\n" + raw[128:])


def sealed(body: dict[str, Any]) -> bytes:
    plain = json.dumps(body, indent=1, sort_keys=True)
    return (json.dumps({**body, "~crc32": zlib.crc32(plain.encode())}, indent=1, sort_keys=True) + "\n").encode()
