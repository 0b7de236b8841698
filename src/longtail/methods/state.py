"""Helpers that turn the state of a solver into arrays for `Work.save`."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]


def of_generator(random: np.random.Generator) -> np.ndarray:
    """The state of a generator, as the bytes of a JSON text."""
    return np.frombuffer(json.dumps(random.bit_generator.state, sort_keys=True).encode(), np.uint8)


def set_generator(random: np.random.Generator, state: np.ndarray) -> None:
    """Put a generator of the same kind into the state that `of_generator` returned."""
    random.bit_generator.state = json.loads(state.tobytes())


def joined(**states: Arrays) -> dict[str, np.ndarray]:
    """Merge several states into one. The name of each array is prefixed with its owner."""
    return {f"{owner}.{name}": array for owner, state in states.items() for name, array in state.items()}


def of(state: Arrays, owner: str) -> dict[str, np.ndarray]:
    """Return the state of one owner from a joined state."""
    start = f"{owner}."
    return {name.removeprefix(start): array for name, array in state.items() if name.startswith(start)}


def with_room(used: np.ndarray, least: int) -> np.ndarray:
    """Copy `used` into a longer array: at least `least` entries, and at least 1.5 times the length of `used`.

    The new array owns its memory, so it can be resized.
    """
    longer = np.empty(max(least, len(used) + len(used) // 2), used.dtype)
    longer[: len(used)] = used
    return longer
