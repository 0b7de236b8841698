"""Static embeddings: a table with one vector per token. The vector of a text is the mean over its tokens.

This is the layout of Model2Vec: a folder with `tokenizer.json`, which the package tokenizers reads, and
`model.safetensors`, whose only matrix is the table. A table of 32,000 tokens and 256 dimensions takes 16 MB in half
precision, so it is stored inside the model. The encoder is data, not code: a table of numbers and the JSON text of the
tokenizer.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from longtail import content
from longtail.compiled import frozen
from longtail.data.embeddings.base import MAX_DIMS, Encoder
from longtail.data.embeddings.static_kernels import mean_vectors
from longtail.errors import DataError, InputError, MissingExtra, ModelError

TOKENIZER = "tokenizer.json"
TABLE = "model.safetensors"
MODULES = "modules.json"  # every folder of a sentence-transformers model has it
PACKAGED = "wordllama"  # a package with a table of its own: 32,000 tokens, 256 dimensions
PACKAGED_FILES = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
BATCH = 4096  # texts that are tokenised together
MAX_TOKENIZER_BYTES = 256 << 20
MAX_HEADER_BYTES = 100 << 20


class StaticEncoder(Encoder):
    """The mean of the vectors of a text's tokens.

    table : float32 array of shape (n_tokens, n_dims)
    tokenizer : the text of tokenizer.json
    """

    kind = "static"

    def __init__(self, table: np.ndarray, tokenizer: str, name: str = "embedding") -> None:
        self.table = frozen(table, np.float32)
        self.tokenizer = tokenizer
        self.name = name
        self.n_dims = int(table.shape[1])
        self._tokenizer = _tokenizer(tokenizer)
        most = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        if most >= len(table):
            raise InputError(f"the tokenizer numbers tokens up to {most:,}, but the table has {len(table):,} vectors")

    @staticmethod
    def is_there(folder: Path) -> bool:
        """Whether the folder has both files, and they are not those of a sentence-transformers model, whose tensors are
        the layers of a network. A table may be such a model, too; then it is its only matrix."""
        both = (folder / TOKENIZER).is_file() and (folder / TABLE).is_file()
        return both and not ((folder / MODULES).is_file() and _is_network(folder / TABLE))

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The encoder in a folder."""
        return cls._read(folder / TABLE, folder / TOKENIZER, folder.resolve().name)

    @classmethod
    def packaged(cls) -> Self:
        """The encoder of the package wordllama. Only its files are read: its own loader looks for one of them on the
        network."""
        folder = packaged_folder()
        if folder is None:
            raise MissingExtra(PACKAGED, "embed", f"the embeddings {PACKAGED!r}")
        table, tokenizer = (folder / name for name in PACKAGED_FILES)
        return cls._read(table, tokenizer, PACKAGED)

    @classmethod
    def _read(cls, table: Path, tokenizer: Path, name: str) -> Self:
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load_file
        except ImportError:
            raise MissingExtra("safetensors", "embed", "an embedding table") from None
        try:
            tensors = load_file(table)
            text = tokenizer.read_text(encoding="utf-8")
        except (OSError, SafetensorError, UnicodeDecodeError, TypeError) as error:
            raise DataError(table.parent, f"cannot be read: {error}") from None
        matrices = [tensor for tensor in tensors.values() if tensor.ndim == 2 and tensor.dtype.kind == "f"]
        if len(matrices) != 1 or not 1 <= matrices[0].shape[1] <= MAX_DIMS:
            raise DataError(table, f"holds {len(matrices)} matrices of floats; one table of vectors is needed")
        if not np.isfinite(matrices[0]).all():
            raise DataError(table, "holds NaN or infinity")
        return cls(matrices[0].astype(np.float32), text, name)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        out = np.empty((len(texts), self.n_dims), np.float32)
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            found = [coded.ids for coded in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)]
            ends = np.zeros(len(found) + 1, np.int64)
            np.cumsum([len(ids) for ids in found], out=ends[1:])
            tokens = np.fromiter((token for ids in found for token in ids), np.uint32, count=int(ends[-1]))
            mean_vectors(frozen(tokens, np.uint32), frozen(ends, np.uint64), self.table, out[start : start + BATCH])
        return out

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        half = self.table.astype(np.float16)
        is_half = bool((half == self.table).all())
        arrays = {
            "encoder_table": half.view(np.uint16) if is_half else np.asarray(self.table),
            "encoder_tokenizer": np.frombuffer(self.tokenizer.encode("utf-8"), np.uint8),
        }
        return arrays, {"kind": self.kind, "name": self.name}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: Mapping[str, Any], where: Path) -> Self:
        name = meta.get("name")
        if set(meta) != {"kind", "name"} or not isinstance(name, str):
            raise ModelError(where, "the encoder of the text features needs the members kind and name")
        table = content.take(arrays, "encoder_table", ("<u2", "<f4"), 2, where)
        text = content.take(arrays, "encoder_tokenizer", "|u1", 1, where)
        if table.dtype == np.uint16:
            table = table.view(np.float16)
        if not 1 <= table.shape[1] <= MAX_DIMS or not np.isfinite(table).all():
            raise ModelError(where, f"encoder_table must hold finite vectors of 1 to {MAX_DIMS} numbers")
        if text.size > MAX_TOKENIZER_BYTES:
            most = MAX_TOKENIZER_BYTES
            raise ModelError(where, f"encoder_tokenizer has {text.size:,} bytes; at most {most:,} are read")
        try:
            return cls(table.astype(np.float32), text.tobytes().decode("utf-8"), name)
        except (InputError, UnicodeDecodeError) as error:
            raise ModelError(where, f"the encoder of the text features cannot be used: {error}") from None


def _is_network(table: Path) -> bool:
    """Whether a file of tensors has several matrices. It begins with 8 bytes that give the length of its header, a JSON
    text."""
    with table.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(min(size, MAX_HEADER_BYTES)))
            shapes = [each["shape"] for name, each in header.items() if name != "__metadata__"]
            return sum(len(shape) == 2 for shape in shapes) > 1
        except (ValueError, TypeError, KeyError, AttributeError):
            return False  # the reader says what is wrong with the file


def packaged_folder() -> Path | None:
    """The folder of the package wordllama, or None if it is not installed. The package is not imported."""
    found = importlib.util.find_spec(PACKAGED)
    places = None if found is None else found.submodule_search_locations
    return Path(next(iter(places))) if places else None


def _tokenizer(text: str) -> Any:
    """The tokenizer of a JSON text, without padding and truncation."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtra("tokenizers", "embed", "an embedding table") from None
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the package raises a bare Exception
        found = " ".join(str(error).split())[:200]
        raise InputError(f"the tokenizer cannot be read: {found}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
