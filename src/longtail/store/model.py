"""Writing models to folders and reading them back: metadata, names and text pipeline.

linear.py, compact.py, sharded.py, hashed.py and ensemble.py convert the arrays of each kind of model.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from longtail import check, content, folder
from longtail.data.text_pipeline import TextPipeline
from longtail.errors import ModelError
from longtail.growth import Growth
from longtail.matrix import MAX_COLUMNS
from longtail.models import Model
from longtail.store import compact, decisions, ensemble, hashed, linear, sharded
from longtail.store.form import Form
from longtail.store.meta import member
from longtail.training import Training, is_timing

KINDS: dict[str, Any] = {
    "linear": linear,
    "compact": compact,
    "sharded": sharded,
    "hashed": hashed,
    "ensemble": ensemble,
}  # member `model` -> functions that write and read it
_OF_INDEX = re.compile(r"(member\d+_)?(shard\d+_)?index_")  # the names of its arrays


@dataclass(frozen=True)
class Provenance:
    """The origin of a model: the method, its parameters as plain JSON values, its training record, and what it
    remembers of its training data for updates."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    training: Training | None = None
    growth: Growth | None = None


def write_model(
    path: str | os.PathLike[str],
    model: Model,
    provenance: Provenance,
    *,
    form: Form = Form(),  # noqa: B008 - a constant
) -> None:
    """Save `model` in the folder `path`, replacing a model there in one step.

    form : how the weights of linear models are stored
    """
    root = Path(path)
    form.check()
    model = form.of(model)
    kind = next(name for name, each in KINDS.items() if isinstance(model, each.MODEL))
    weights, own = KINDS[kind].to_arrays(model, root, form)
    arrays: dict[str, np.ndarray] = {}
    meta: dict[str, Any] = {
        "method": provenance.method,
        "params": {name: _plain(value) for name, value in provenance.params.items()},
        "model": kind,
        "n_labels": model.n_labels,
        "n_features": model.n_features,
        "bias": float(model.bias),
        "normalize": model.normalize,
        "multiclass": model.multiclass,
        "label_names": _pack_names(arrays, "label", model.label_names, root),
        "feature_names": _pack_names(arrays, "feature", model.feature_names, root),
        "text_features": None,
        "training": None,
        **own,
    }
    decided, members = decisions.to_arrays(model)
    arrays |= decided
    meta |= members
    if model.text_features is not None:
        if not isinstance(model.text_features, TextPipeline):
            found = type(model.text_features).__name__
            raise ModelError(root, f"cannot save {found} as text pipeline; use TextFeatures")
        pipeline, meta["text_features"] = model.text_features.to_arrays()
        arrays |= pipeline
        if meta["feature_names"] and model.text_features.column_names() == list(model.feature_names or ()):
            _drop_names(arrays, "feature")  # the pipeline holds the same names
            meta["feature_names"] = None
    if provenance.training is not None:
        record, meta["training"] = provenance.training.to_arrays()
        arrays |= record
    if provenance.growth is not None:
        remembered, meta["growth"] = provenance.growth.to_arrays()
        arrays |= remembered
    folder.write(root, folder.MODEL, chain(weights, arrays.items()), meta)


def load_model(folder: str | os.PathLike[str], *, mmap: bool = True) -> Model:
    """Load the model saved in `folder` without its estimator, for processes that only predict.

    scikit-learn is not imported, so the process starts sooner and needs about half the memory. The model predicts and
    explains, but cannot be trained, calibrated or updated. It takes rows as a csr_array, which
    `model.text_features.transform` makes from texts. The files are verified before use. The weights are memory-mapped
    unless `mmap=False`.
    """
    return read_model(folder, mmap=mmap)[0]


def read_model(
    path: str | os.PathLike[str], *, mmap: bool = True, text_features: type[TextPipeline] = TextPipeline
) -> tuple[Model, Provenance]:
    """Return the verified model of the folder `path`, and its provenance.

    text_features : the class of the text pipeline, if the model has one. The default does not need scikit-learn.
    """
    root = Path(path)
    arrays, meta = folder.read(root, folder.MODEL, mmap=mmap)
    where = root / folder.MODEL.manifest
    kind = member(meta, "model", str, where)
    n_labels = member(meta, "n_labels", int, where)
    n_features = member(meta, "n_features", int, where)
    bias = member(meta, "bias", float, where)
    if kind not in KINDS:
        raise ModelError(where, f"holds a model of a kind that this version lacks; it knows {', '.join(KINDS)}")
    if not 0 <= n_labels <= MAX_COLUMNS or not 0 <= n_features <= MAX_COLUMNS or not 0 <= bias < math.inf:
        raise ModelError(where, f"n_labels {n_labels}, n_features {n_features} and bias {bias} cannot all be true")
    own = KINDS[kind].from_arrays(arrays, meta, n_labels, n_features, bias, where)
    pipeline = meta.get("text_features")
    if pipeline is not None:
        pipeline = text_features.from_arrays(arrays, pipeline, where)
        if pipeline.n_features_out_ != n_features:
            raise ModelError(
                where, f"the text pipeline makes {pipeline.n_features_out_} features, but the model has {n_features}"
            )
    label_names = _unpack_names(arrays, "label", meta.get("label_names"), n_labels, where)
    feature_names = _unpack_names(arrays, "feature", meta.get("feature_names"), n_features, where)
    model = KINDS[kind].MODEL(
        **own,
        n_features=n_features,
        normalize=member(meta, "normalize", bool, where),
        multiclass=member(meta, "multiclass", bool, where),
        label_names=label_names,
        feature_names=None if feature_names is None else feature_names.tolist(),
        text_features=pipeline,
        **decisions.from_arrays(arrays, meta, n_labels, where),
    )
    record = meta.get("training")
    training = None if record is None else Training.from_arrays(arrays, record, where)
    method, params = member(meta, "method", str, where), member(meta, "params", dict, where)
    remembered = meta.get("growth")
    growth = None if remembered is None else Growth.from_arrays(arrays, remembered, n_labels, where)
    return model, Provenance(method, params, training, growth)


def model_id(path: str | os.PathLike[str]) -> str:
    """Return a short identifier of the content of the model in the folder `path`. Equal models have equal identifiers,
    even if their training times differ, or one of them is stored without its index."""
    meta, files = folder.contents(path, folder.MODEL)
    training = meta.get("training")
    if isinstance(training, dict):
        meta = {**meta, "training": {name: value for name, value in training.items() if name != "timing"}}
    growth = meta.get("growth")
    if isinstance(growth, dict) and isinstance(growth.get("history"), list):
        meta = {**meta, "growth": [_without_time(entry) for entry in growth["history"]]}
    listed = {name: crc for name, crc in files.items() if not is_timing(name) and not _OF_INDEX.match(name)}
    content_bytes = json.dumps([meta, listed], sort_keys=True, allow_nan=False).encode()
    return hashlib.sha256(content_bytes).hexdigest()[:16]


def _without_time(entry: Any) -> Any:
    """An entry of the history without the members that differ between two equal updates."""
    return {name: value for name, value in dict(entry).items() if name not in ("when", "seconds")}


def model_size(path: str | os.PathLike[str]) -> int:
    """Return the bytes on disk of the model in the folder `path`, without its index."""
    return folder.size(path, folder.MODEL, lambda name: not _OF_INDEX.match(name))


def index_size(path: str | os.PathLike[str]) -> int:
    """Return the bytes on disk of the index of the model in the folder `path`."""
    return folder.size(path, folder.MODEL) - model_size(path)


def _plain(value: Any) -> Any:
    """Convert a parameter to a JSON value. NumPy numbers, for example from a parameter grid, become Python numbers."""
    return value.item() if isinstance(value, np.generic) else value


# --- names: none, numbers, or strings --------------------------------------------------------------------------------

_NUMBERS = {"int": "<i8", "float": "<f8", "bool": "|u1"}  # kinds of number names, and how a file holds them
_KIND_OF = {"i": "int", "u": "int", "f": "float", "b": "bool"}


def _pack_names(arrays: dict[str, np.ndarray], owner: str, names: Any, root: Path) -> str | None:
    if names is None:
        return None
    if all(isinstance(name, str) for name in names):
        packed = content.pack_strings(names)
        arrays[f"{owner}_names_utf8"], arrays[f"{owner}_names_offsets"] = packed["utf8"], packed["offsets"]
        return "str"
    array = np.asarray(names)
    if array.dtype == object and all(type(name) is int for name in names):
        array = np.array(list(names))
    kind = _KIND_OF.get(array.dtype.kind)
    if kind is None or (array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max):
        odd = next((name for name in names if not isinstance(name, str)), None)
        raise ModelError(
            root,
            f"{owner} name {odd!r} is neither a string nor a whole number of 64 bits, or names mix; rename to save",
        )
    if kind == "int" and owner == "label" and np.array_equal(array, np.arange(len(array))):
        return "range"
    arrays[f"{owner}_names"] = array.astype(_NUMBERS[kind])
    return kind


def _drop_names(arrays: dict[str, np.ndarray], owner: str) -> None:
    for name in (f"{owner}_names", f"{owner}_names_utf8", f"{owner}_names_offsets"):
        arrays.pop(name, None)


def _unpack_names(arrays: dict[str, np.ndarray], owner: str, kind: Any, count: int, where: Path) -> np.ndarray | None:
    if kind is None:
        return None
    if kind == "range" and owner == "label":  # n_labels was compared with W; n_features is not verified
        return np.arange(count)
    if kind == "str":
        utf8 = content.take(arrays, f"{owner}_names_utf8", "|u1", 1, where)
        offsets = content.take(arrays, f"{owner}_names_offsets", "<i8", 1, where)
        names = check.name_array(content.unpack_strings(utf8, offsets, f"{owner}_names", where))
    elif isinstance(kind, str) and kind in _NUMBERS:
        names = content.take(arrays, f"{owner}_names", _NUMBERS[kind], 1, where)
        names = names.astype(bool) if kind == "bool" else names
    else:
        raise ModelError(
            where, f"member '{owner}_names' must be null, 'range' (of labels), 'str', 'int', 'float' or 'bool'"
        )
    if len(names) != count:
        raise ModelError(where, f"has {len(names)} {owner} names for {count}")
    return names
