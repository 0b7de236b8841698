"""`longtail predict MODEL DATA`: the best labels of every row, as JSON lines, CSV or Parquet.

Rows are read, predicted and written some thousand at a time, in memory that does not grow with the file. From standard
input every text is answered as soon as no further one is waiting. Only matrices in binary files (.npz, saved datasets)
and rows with a --filter are read as a whole.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli import reading as limits
from longtail.cli.decisions import Allow, Deny, Offsets, TailBoost, set_rules
from longtail.cli.output import UsageError
from longtail.cli.partial import opened
from longtail.cli.progress import step
from longtail.cli.reading import Filter, Model, load_estimator, open_model, read_data, read_filter, top_without
from longtail.cli.writing import OWN, encoder, form_of
from longtail.errors import DataError, DataWarning, InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from longtail.cli.partial import Target
    from longtail.cli.progress import Step
    from longtail.cli.writing import Row, RowEncoder
    from longtail.data.text import Record
    from longtail.models import Model as AnyModel
    from longtail.topk import TopK

Fields = Mapping[str, Any]
_READ_BY_RECORD = ("format", "text_field", "delimiter", "encoding")


def predict(
    model: Model,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="A data file, a saved dataset, or - for standard input.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="One text, in place of DATA.")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="How many labels per row.")] = 5,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file: .jsonl, .csv or .parquet.")
    ] = None,
    output_format: Annotated[
        str | None, typer.Option("--output-format", metavar="NAME", help="jsonl, csv or parquet; else by --output.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="NAME,NAME,…", help="Texts: fields of the input to repeat.  [default: id]"),
    ] = None,
    threshold: Annotated[
        bool, typer.Option("--threshold", help="Only labels above the model's threshold, however many.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run that wrote to the same --output.")
    ] = False,
    filter: Filter = None,
    allow: Allow = None,
    deny: Deny = None,
    offsets: Offsets = None,
    tail_boost: TailBoost = 0.0,
    *,
    reading: dict[str, Any],
) -> None:
    """Predict the best labels of every row of DATA.

    One line of JSON per row: {"labels": [names or numbers, best first], "scores": […]}, with "probabilities" if MODEL
    is calibrated. Labels in DATA are ignored. FILE of --output appears when it is complete.
    """
    if (data is None) == (text is None):
        raise UsageError("predict needs either DATA or --text; see longtail predict --help")
    if resume and (output is None or data is None or data == "-"):
        raise UsageError("--resume needs a file to read and --output FILE; standard input cannot be read again")
    form = form_of(output, output_format)
    _check_paths(model, data, output)
    alone = open_model(model)
    if allow is not None or deny is not None or offsets is not None or tail_boost:
        clf = load_estimator(model)
        set_rules(clf, allow, deny, offsets, tail_boost)
        alone = clf.model_
    if threshold and alone.thresholds is None:
        raise UsageError(f"{model} has no threshold; choose one with: longtail thresholds {model} DATA")
    dense = _given(reading)
    quiet = output is None and sys.stdout.isatty()
    given = {"top_k": top_k, "output_format": form, "keep": keep, "threshold": threshold, "tail_boost": tail_boost}
    contents = {name: _crc(path) for name, path in _files(filter, allow, deny, offsets).items()}
    identity = {**_named(given), **contents, **_named(reading), "model": _model_id(model), "block": limits.ROWS}
    numbered = alone.label_names is None or alone.label_names.dtype.kind in "iu"
    form_encoder = encoder(form, numbered=numbered, calibrated=alone.is_calibrated)
    with (
        opened(output, form_encoder.finish, identity, resume) as target,
        step("Predicting", "rows", show=not quiet) as shown,
    ):
        writer = _Writer(alone, target, form_encoder, shown, top_k, threshold, keep)
        if text is not None:
            writer.vectors(_features([text], alone, None if dense is None else dense[:1]), None)
        elif filter is not None or not (writer.texts(str(data), reading, dense) or writer.lines(str(data), reading)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)  # of labels that the model does not know
                X = read_data(str(data), reading, like=alone, empty=True)[0].X
            writer.vectors(X, read_filter(filter, X.shape[0], alone.n_labels))


def _given(reading: dict[str, Any]) -> Any:
    """The embeddings of `--dense`, memory-mapped, or None."""
    if "dense" not in reading:
        return None
    from longtail.data.npy import open_npy

    return open_npy(reading["dense"])


def _features(texts: list[str], model: AnyModel, dense: Any) -> csr_array:
    if model.text_features is None:
        raise InputError("the model was trained without a text pipeline, so it cannot read texts; pass rows of numbers")
    return model.text_features.transform(texts, dense)


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names on the command line, for messages."""
    return {f"--{name.replace('_', '-')}": value for name, value in options.items()}


def _files(filter: str | None, allow: str | None, deny: str | None, offsets: str | None) -> dict[str, str | None]:
    return {"--filter": filter, "--allow": allow, "--deny": deny, "--offsets": offsets}


def _crc(path: str | None) -> str | None:
    """The checksum of a file of options, or None."""
    return None if path is None else f"a file with the CRC-32 {zlib.crc32(Path(path).read_bytes()):08x}"


def _model_id(model: str) -> str:
    from longtail import store

    return store.model_id(model)


def _check_paths(model: str, data: str | None, output: str | None) -> None:
    if data is None or data == "-":
        return
    if not os.path.exists(data) and len(data.split()) > 1:
        raise UsageError(f"there is no file {data!r}; for one text, write: longtail predict {model} --text {data!r}")
    if output is not None and os.path.exists(output) and os.path.exists(data) and os.path.samefile(data, output):
        raise UsageError(f"--output is the input {data!r}, which would be lost; choose another file")


class _Writer:
    """Predicts rows in blocks and writes them."""

    def __init__(
        self,
        model: AnyModel,
        target: Target,
        form: RowEncoder,
        shown: Step,
        k: int,
        threshold: bool,
        keep: str | None,
    ) -> None:
        self.model = model
        self.target = target
        self.form = form
        self.shown = shown
        self.above = model.thresholds if threshold else None
        self.k = k if self.above is None else self.above.n_candidates
        self.keep = ["id"] if keep is None else [name.strip() for name in keep.split(",")]
        self.must_have = keep is not None
        if set(self.keep) & set(OWN):
            raise UsageError(f"--keep cannot keep {', '.join(OWN)}, which predictions have themselves")
        self.pending: list[Record] = []
        self.dense: Any = None  # embeddings of all texts, if they were computed elsewhere
        self.done = 0
        self.share: float | None = None  # of the input that has been read

    def vectors(self, X: Any, pairs: Any) -> None:
        """Predict the rows of a matrix."""
        for start in range(0, X.shape[0], limits.ROWS):
            rows = slice(start, start + limits.ROWS)
            self.share = min(start + limits.ROWS, X.shape[0]) / X.shape[0]
            self._vectors(X[rows], None if pairs is None else pairs[rows])

    def lines(self, path: str, reading: dict[str, Any]) -> bool:
        """Predict the vectors of a text file as they are read; False if it is no such file."""
        from longtail.data.read import read_rows

        if "dense" in reading:
            return False
        how = {name: reading[name] for name in ("format", "labels", "zero_based") if name in reading}
        blocks = read_rows(path, like=self.model, n_rows=limits.ROWS, waiting=self._read_so_far, **how)
        if blocks is None:
            return False
        for X in blocks:
            self._vectors(X, None)
        return True

    def texts(self, path: str, reading: dict[str, Any], dense: Any) -> bool:
        """Predict the texts of a file as they are read; False if it holds vectors, or if the model takes no texts.

        dense : the embeddings of the texts, if they were computed elsewhere
        """
        from longtail.data.read import read_records

        if self.model.text_features is None:
            return False
        how = {name: value for name, value in reading.items() if name in _READ_BY_RECORD}
        records = read_records(path, **how, waiting=self._read_so_far)
        if records is None:
            return False
        self.dense = dense
        for record in records:
            if not self.done and not self.pending:
                self._choose_fields(path, record)
            self.pending.append(record)
            if len(self.pending) >= limits.ROWS:
                self.flush()
        self.flush()
        if dense is not None and len(dense) != self.done:
            raise DataError(path, f"holds {self.done:,} texts, but --dense has {len(dense):,} rows; each needs one")
        return True

    def _read_so_far(self, done: int, total: int | None) -> None:
        if total is None:
            self.flush()  # standard input may keep us waiting for the next text
        else:
            self.share = done / max(total, 1)

    def flush(self) -> None:
        """Predict and write the texts that were read."""
        if self.pending:
            block, self.pending = self.pending, []
            fields = [{name: record.fields.get(name) for name in self.keep} for record in block]
            texts = [record.text for record in block]
            vectors = None if self.dense is None else self.dense[self.done : self.done + len(block)]
            own = b"" if vectors is None else vectors.tobytes()
            self._write(
                len(block),
                lambda: json.dumps([texts, fields], default=str).encode() + own,
                lambda: _features(texts, self.model, vectors),
                fields,
            )

    def _vectors(self, X: Any, pairs: Any) -> None:
        from longtail.hybrid import as_csr

        def content() -> bytes:
            rows = as_csr(X)
            return b"".join(part.tobytes() for part in (rows.indptr - rows.indptr[0], rows.indices, rows.data))

        self._write(X.shape[0], content, lambda: X, None, pairs)

    def _choose_fields(self, path: str, first: Record) -> None:
        missing = [name for name in self.keep if name not in first.fields]
        if missing and self.must_have:
            found = ", ".join(map(repr, first.fields)) or "no fields"
            raise DataError(path, f"found {found}, but --keep asks for {missing[0]!r}")
        self.keep = [name for name in self.keep if name in first.fields]

    def _write(
        self,
        n_rows: int,
        content: Callable[[], bytes],
        make_rows: Callable[[], Any],
        fields: Sequence[Fields] | None,
        pairs: Any = None,
    ) -> None:
        """Predict and write a block, unless an interrupted run has written it."""
        if self.target.already(n_rows, content):
            self.shown.skip()
        else:
            top = top_without(self.model, make_rows(), self.k, pairs)
            self.target.add(self.form.encode(list(self._rows(top, fields)), first=self.done == 0), n_rows)
        self.done += n_rows
        self.shown.flow(self.done, self.share)

    def _rows(self, top: TopK, fields: Sequence[Fields] | None) -> Iterator[Row]:
        names = self.model.label_names
        labels = top.labels if names is None else names[top.labels]
        columns = {"labels": labels, "scores": top.scores.astype(float).round(6)}
        if top.probabilities is not None:
            columns["probabilities"] = top.probabilities.astype(float).round(6)
        chosen = top.scores > float("-inf") if self.above is None else self.above.chosen(top)
        for i in range(len(top)):
            kept = {} if fields is None else fields[i]
            yield {**kept, **{name: values[i][chosen[i]].tolist() for name, values in columns.items()}}
