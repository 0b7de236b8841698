"""Texts that stay in a file until they are used, so that a dataset may hold more of them than fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from longtail.errors import ModelError
from longtail.matrix import pointer_fault

BYTES_AT_ONCE = 1 << 24


class StoredTexts(Sequence[str]):
    """A sequence of texts over an array of UTF-8 bytes and the offsets of the texts in it."""

    def __init__(self, utf8: np.ndarray, offsets: np.ndarray) -> None:
        self.utf8, self.offsets = utf8, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        i = range(len(self))[at]
        return self.utf8[self.offsets[i] : self.offsets[i + 1]].tobytes().decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self):,} stored texts>"

    def to_list(self) -> list[str]:
        """All texts, in memory."""
        return list(self)

    def check(self, name: str, where: Path) -> StoredTexts:
        """Return the texts. Raise ModelError if the arrays are damaged. The file is read piece by piece."""
        if pointer_fault(self.offsets, len(self), self.utf8.size):
            raise ModelError(where, f"{name}_offsets does not divide {self.utf8.size:,} bytes")
        at = 0
        while at < len(self):
            until = self.offsets[at] + BYTES_AT_ONCE
            end = max(at + 1, int(np.searchsorted(self.offsets, until, side="right")) - 1)
            begins = self.offsets[at:end]
            begins = begins[begins < self.offsets[end]] - self.offsets[at]
            piece = self.utf8[self.offsets[at] : self.offsets[end]]
            try:
                piece.tobytes().decode("utf-8", "surrogatepass")
                divided = bool(((piece[begins] & 0xC0) == 0x80).any())  # a text begins inside a character
            except UnicodeDecodeError:
                divided = True
            if divided:
                raise ModelError(where, f"{name}_utf8 is not UTF-8")
            at = end
        return self
