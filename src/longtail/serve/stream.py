"""Predictions for a stream of rows: one JSON object per line in, one per line out, in the same order.

The body is read while answers are written, so it may have any length. If a client reads its answers slowly, the service
reads from it slowly. A line that cannot be scored is answered by an error, and the stream continues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.serve import rows
from longtail.serve.messages import NDJSON, HttpError, Request, Response, Stream, encode
from longtail.serve.predictor import ServedModel
from longtail.serve.schema import SparseRow, StreamLine, decode_line, refuse_compressed
from longtail.serve.service import Service

LINES = 64  # lines that are scored together


def predict_stream(service: Service, request: Request, model: ServedModel) -> Response:
    refuse_compressed(request)
    query = request.query
    unknown = set(query) - {"top_k", "threshold"}
    if unknown:
        raise HttpError(400, "bad_query", f"unknown parameter {sorted(unknown)[0][:80]!r}")
    text = query.get("top_k", "5")
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= service.limits.max_top_k:
        raise HttpError(400, "bad_query", f"top_k must be from 1 to {service.limits.max_top_k}", field="top_k")
    try:
        threshold = float(query["threshold"]) if "threshold" in query else None
    except ValueError:
        raise HttpError(400, "bad_query", "threshold must be a number", field="threshold") from None
    assert request.stream is not None
    chunks = _chunks(service, request, model, request.stream, int(text), threshold)
    return Response(chunks, content_type=NDJSON, headers=[(b"x-model-version", model.version.encode())])


async def _chunks(
    service: Service, request: Request, model: ServedModel, stream: Stream, k: int, threshold: float | None
) -> AsyncIterator[bytes]:
    try:
        while lines := await stream.lines(LINES):
            yield await _answers(service, request, model, lines, k, threshold)
    except HttpError as fault:
        yield encode({"error": fault.body()}) + b"\n"


async def _answers(
    service: Service, request: Request, model: ServedModel, lines: list[bytes], k: int, threshold: float | None
) -> bytes:
    given: list[tuple[StreamLine | None, Any]] = [_row(line, model, service) for line in lines]
    good = [row for _, row in given if not isinstance(row, HttpError)]
    told: list[dict[str, Any]] = []
    if good:
        block = good if model.takes_texts and isinstance(good[0], str) else sp.vstack(good, format="csr")
        answer = await service.best(request, model, block, k)
        names, scores = model.labels[answer.labels], answer.scores.astype(float).round(6)
        for i in range(len(good)):
            values: dict[str, np.ndarray] = {"labels": names[i], "scores": scores[i]}
            if answer.probabilities is not None:
                values["probabilities"] = answer.probabilities[i].astype(float).round(6)
            if threshold is not None:
                keep = values.get("probabilities", values["scores"]) >= threshold
                values = {name: each[keep] for name, each in values.items()}
            told.append({name: each.tolist() for name, each in values.items()})
    answers = iter(told)
    out = []
    for line, row in given:
        said = {"error": row.body()} if isinstance(row, HttpError) else next(answers)
        out.append(encode({"id": line.id, **said} if line is not None and line.id is not None else said))
    return b"\n".join(out) + b"\n"


def _row(line: bytes, model: ServedModel, service: Service) -> tuple[StreamLine | None, Any]:
    """Return the line, and its row or the error in it."""
    found: StreamLine | None = None
    try:
        found = decode_line(line)
        if (found.text is None) == (found.indices is None):
            raise rows.bad("send either text, or indices and values")
        if found.text is not None:
            return found, rows.texts(found.text, model, service.limits, "$.text")[0]
        if model.takes_texts:
            raise rows.bad("a stream holds texts for a model of texts")
        sparse = SparseRow(found.indices or [], found.values or [])
        return found, rows.sparse([sparse], model, service.limits, "$")
    except HttpError as fault:
        return found, fault
