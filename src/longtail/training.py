"""The record of a training run. All methods use the same form.

A fit solves one problem per label (one-vs-all), per repetition (MACH), or one for the whole model. Each of these is a
*unit*, and the record says how every unit ended. The same record is the attribute `training_` of an estimator, is saved
in the model folder, and is what `longtail inspect` and the report show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from longtail.errors import ModelError


class Status(IntEnum):
    """How the training of one unit ended. The kernels return the first three numbers."""

    CONVERGED = 0
    MAX_ITER = 1
    LINE_SEARCH_FAILED = 2
    EARLY_STOPPED = 3
    COMPLETED = 4

    @property
    def message(self) -> str:
        """What happened, and what to do about it."""
        return MESSAGES[self]

    @property
    def is_success(self) -> bool:
        return self not in (Status.MAX_ITER, Status.LINE_SEARCH_FAILED)


MESSAGES: dict[Status, str] = {
    Status.CONVERGED: "reached the tolerance",
    Status.MAX_ITER: "stopped at max_iter before reaching the tolerance; increase max_iter or tol, or decrease C",
    Status.LINE_SEARCH_FAILED: (
        "stopped because no step lowered the objective; increase tol, decrease C, or scale the rows to unit length "
        "(normalize=True)"
    ),
    Status.EARLY_STOPPED: "stopped because the held-out rows showed no further gain; the best weights were kept",
    Status.COMPLETED: "completed all passes",
}

_SCALARS = ("wall_seconds", "cpu_seconds", "peak_bytes")
_PER_UNIT = {"status": np.uint8, "n_iter": np.int32}
_PER_BLOCK = {"block_status": np.uint8, "block_n_iter": np.int32}
_ARRAY, _FIGURE, _TIMING = "training_", "figure_", "timing_"  # prefixes of array names in a model folder
_FIGURE_DTYPES = ("<f4", "<f8", "<i4", "<i8", "|u1")


@dataclass(frozen=True, eq=False)
class Training:
    """The record of a fit.

    Attributes
    ----------
    unit : {"label", "repetition", "member", "model"}
        What a unit is: a label, a repetition, a member of an ensemble, or the whole model.
    status : ndarray of uint8, one per unit
        A `Status`.
    n_iter : ndarray of int32, one per unit
        Newton steps, rounds or passes, whichever the method's `max_iter` counts.
    block_status, block_n_iter : ndarray, one per block
        The worst status and the largest number of iterations in each block of work.
    block_seconds : ndarray of float32, one per block
    figures : mapping of str to ndarray
        Measurements that are specific to the method, such as the duality gap of every label. `training.gap` is short
        for `training.figures["gap"]`. The docstring of the estimator lists them.
    settings : mapping
        The seed, and the parameters after defaults, None and "auto" were resolved.
    wall_seconds, cpu_seconds : float
        Time of the fit; CPU time is summed over all threads.
    peak_bytes : float
        Largest resident memory of the process up to the end of the fit. NaN if the system does not report it.
    """

    unit: str
    status: np.ndarray
    n_iter: np.ndarray
    block_status: np.ndarray
    block_n_iter: np.ndarray
    block_seconds: np.ndarray
    figures: Mapping[str, np.ndarray] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: float = float("nan")

    def __getattr__(self, name: str) -> np.ndarray:
        figures = self.__dict__.get("figures", {})  # absent while a copy is being made
        if name in figures:
            return np.asarray(figures[name])
        known = ", ".join(figures) or "none"
        raise AttributeError(f"this training record has no {name!r}; its figures are: {known}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.figures]

    @property
    def converged(self) -> np.ndarray:
        """A boolean array: False for units that ended with MAX_ITER or LINE_SEARCH_FAILED."""
        bad = [status for status in Status if not status.is_success]
        return ~np.isin(self.status, bad)

    def counts(self) -> dict[Status, int]:
        """Return the number of units for each status that occurred."""
        codes, counts = np.unique(self.status, return_counts=True)
        return {Status(code): int(count) for code, count in zip(codes.tolist(), counts.tolist(), strict=True)}

    def messages(self) -> list[str]:
        """Return one message per status that occurred: how many units, what happened, what to do."""
        return [f"{_count(count, self.unit)} {status.message}" for status, count in self.counts().items()]

    def facts(self) -> dict[str, str]:
        """Return the record as names and texts, for `longtail inspect` and the report."""
        facts = {"ended": "; ".join(self.messages()) or "nothing to train"}
        if len(self.n_iter):
            facts["iterations"] = f"{self.n_iter.mean():.1f} on average, {self.n_iter.max()} at most"
        facts["blocks"] = f"{len(self.block_seconds):,}"
        facts["training time"] = f"{self.wall_seconds:,.1f} s, {self.cpu_seconds:,.1f} s of CPU"
        if np.isfinite(self.peak_bytes):
            facts["peak memory"] = f"{self.peak_bytes / 1e6:,.0f} MB"
        for name, values in sorted(self.figures.items()):
            facts[name.replace("_", " ")] = _summary(values)
        if self.settings:
            facts["settings"] = ", ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        return facts

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values. Long arrays are summarised by their minimum, median and maximum."""
        figures = {name: _quantiles(values) for name, values in {"n_iter": self.n_iter, **self.figures}.items()}
        return {
            "unit": self.unit,
            "status": {status.name.lower(): count for status, count in self.counts().items()},
            **{name: values for name, values in figures.items() if values is not None},
            "blocks": len(self.block_seconds),
            "settings": dict(self.settings),
            **{name: _json_number(getattr(self, name)) for name in _SCALARS},
        }

    def __str__(self) -> str:
        facts = self.facts()
        width = 2 + max(map(len, facts))
        return "\n".join(f"{name:<{width}}{text}" for name, text in facts.items())

    # --- to disk and back --------------------------------------------------------------------------------------------

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the record as arrays and JSON values.

        Times are kept apart, with the prefix `timing`, because they differ between two equal fits.
        """
        arrays = {_ARRAY + name: getattr(self, name).astype(dtype) for name, dtype in _PER_UNIT.items()}
        arrays |= {_ARRAY + name: getattr(self, name).astype(dtype) for name, dtype in _PER_BLOCK.items()}
        arrays |= {_FIGURE + name: np.asarray(values) for name, values in self.figures.items()}
        arrays[_TIMING + "block_seconds"] = self.block_seconds.astype(np.float32)
        timing = {name: _json_number(getattr(self, name)) for name in _SCALARS}
        return arrays, {"unit": self.unit, "settings": dict(self.settings), "timing": timing}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], meta: Any, where: Path) -> Training:
        """Rebuild the record from the values of `to_arrays`. Raise ModelError about `where` if they are invalid."""
        if not isinstance(meta, dict) or set(meta) != {"unit", "settings", "timing"}:
            raise ModelError(where, "the training record must have exactly the members settings, timing and unit")
        unit, settings, timing = (meta[name] for name in ("unit", "settings", "timing"))
        if not isinstance(unit, str) or not isinstance(settings, dict) or not isinstance(timing, dict):
            raise ModelError(where, "the training record has a member of the wrong type")
        parts = {name: _taken(arrays, _ARRAY + name, dtype, where) for name, dtype in (_PER_UNIT | _PER_BLOCK).items()}
        parts["block_seconds"] = _taken(arrays, _TIMING + "block_seconds", np.float32, where)
        for names in (tuple(_PER_UNIT), (*_PER_BLOCK, "block_seconds")):
            if len({len(parts[name]) for name in names}) > 1:
                raise ModelError(where, f"the training arrays {', '.join(names)} differ in length")
        if len(parts["status"]) and parts["status"].max() >= len(Status):
            raise ModelError(where, "training_status holds a number that is not a status")
        figures = {name.removeprefix(_FIGURE): array for name, array in arrays.items() if name.startswith(_FIGURE)}
        for name, array in figures.items():
            if array.dtype.str not in _FIGURE_DTYPES:
                raise ModelError(where, f"figure_{name} has dtype {array.dtype.str}, not {', '.join(_FIGURE_DTYPES)}")
        scalars = {name: _number(timing.get(name), name, where) for name in _SCALARS}
        fields: dict[str, Any] = {**parts, **scalars}
        return cls(unit, figures=figures, settings=settings, **fields)


_NOTHING = np.empty(0, np.uint8)
NO_RECORD = Training(
    "model", _NOTHING, _NOTHING, _NOTHING, _NOTHING, np.empty(0, np.float32)
)  # of a model that was not trained here


def is_timing(name: str) -> bool:
    """Return whether an array of a model folder holds times. Times may differ between two equal models."""
    return name.startswith(_TIMING)


# --- putting a record together ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BlockRecord:
    """What one solved block adds to the record: arrays with one entry per item of the block."""

    items: np.ndarray
    status: np.ndarray
    n_iter: np.ndarray
    figures: Mapping[str, np.ndarray]
    seconds: float


def combine(
    records: Mapping[int, BlockRecord], unit: str, item_of: np.ndarray, settings: Mapping[str, Any]
) -> Training:
    """Combine the records of all blocks, in the order of the block numbers.

    item_of : for each unit, the item that was solved for it. Labels with the same rows share one item.
    """
    ordered = [records[number] for number in sorted(records)]
    items = np.concatenate([record.items for record in ordered]) if ordered else np.empty(0, np.int64)
    order = np.argsort(items, kind="stable")
    source = order[np.searchsorted(items, item_of, sorter=order)]

    def gathered(arrays: Iterator[np.ndarray], dtype: Any) -> np.ndarray:
        joined = np.concatenate(list(arrays)) if ordered else np.empty(0)
        return joined.astype(dtype)[source]

    if len(items) == 1:  # a single unit may measure anything, such as one number per pass
        figures = {name: np.asarray(values) for name, values in ordered[0].figures.items()}
    else:
        names = ordered[0].figures if ordered else {}
        figures = {name: np.concatenate([record.figures[name] for record in ordered])[source] for name in names}
    return Training(
        unit=unit,
        status=gathered((record.status for record in ordered), np.uint8),
        n_iter=gathered((record.n_iter for record in ordered), np.int32),
        block_status=np.array([_worst(record.status) for record in ordered], np.uint8),
        block_n_iter=np.array([record.n_iter.max(initial=0) for record in ordered], np.int32),
        block_seconds=np.array([record.seconds for record in ordered], np.float32),
        figures=figures,
        settings=settings,
    )


def joined(records: Sequence[Training]) -> Training:
    """Join the records of fits that solved different units of one problem. Times add up."""
    first = records[0]

    def together(name: str) -> np.ndarray:
        return np.concatenate([getattr(record, name) for record in records])

    return Training(
        unit=first.unit,
        status=together("status"),
        n_iter=together("n_iter"),
        block_status=together("block_status"),
        block_n_iter=together("block_n_iter"),
        block_seconds=together("block_seconds"),
        figures={name: together(name) for name in first.figures},
        settings=first.settings,
        wall_seconds=sum(record.wall_seconds for record in records),
        cpu_seconds=sum(record.cpu_seconds for record in records),
        peak_bytes=max(record.peak_bytes for record in records),
    )


def timed(training: Training, *, wall_seconds: float, cpu_seconds: float, peak_bytes: float) -> Training:
    """Return the record with the totals of the run."""
    return replace(training, wall_seconds=wall_seconds, cpu_seconds=cpu_seconds, peak_bytes=peak_bytes)


def _worst(status: np.ndarray) -> int:
    """Return the worst status: any failure is worse than a success."""
    found = [Status(code) for code in np.unique(status).tolist()]
    failures = [each for each in found if not each.is_success]
    return int(max(failures or found, default=Status.COMPLETED))


def _count(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def _known(values: np.ndarray) -> np.ndarray:
    """Return the measured values. NaN and infinity are left out."""
    return values[np.isfinite(values)] if values.dtype.kind == "f" else values.ravel()


def _summary(values: np.ndarray) -> str:
    """Format an array in one line: all values if it is short, otherwise its range and median."""
    known = _known(values)
    if not known.size:
        return "not measured"
    if known.size <= 8:
        return ", ".join(f"{value:.4g}" for value in known.tolist())
    low, middle, high = np.percentile(known, [0, 50, 100]).tolist()
    return f"{low:.3g} to {high:.3g}, median {middle:.3g}"


def _quantiles(values: np.ndarray) -> list[float] | None:
    """Return all values if there are at most 8, otherwise minimum, median and maximum. None if there are no values."""
    known = _known(values)
    if not known.size:
        return None
    return [float(value) for value in (known if known.size <= 8 else np.percentile(known, [0, 50, 100]))]


def _json_number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _number(value: Any, name: str, where: Path) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(where, f"the member {name} of the training record is not a number")
    return float(value)


def _taken(arrays: Mapping[str, np.ndarray], name: str, dtype: Any, where: Path) -> np.ndarray:
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.ndim != 1:
        raise ModelError(where, f"the array {name} is missing, or is not a 1-d array of {np.dtype(dtype).name}")
    return array
