"""The state of a solver as arrays, for `Work.save`: random generators, and states of several objects in one."""

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
    """Several states as one."""
    return {f"{owner}.{name}": array for owner, state in states.items() for name, array in state.items()}


def of(state: Arrays, owner: str) -> dict[str, np.ndarray]:
    """The state of one owner in a joined state."""
    start = f"{owner}."
    return {name.removeprefix(start): array for name, array in state.items() if name.startswith(start)}


def with_room(used: np.ndarray, least: int) -> np.ndarray:
    """An array that grows: these entries, and room for half as many more, `least` in all at least. The array owns its
    memory, so it can be resized."""
    longer = np.empty(max(least, len(used) + len(used) // 2), used.dtype)
    longer[: len(used)] = used
    return longer
