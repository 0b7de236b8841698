"""Annif's response format, `{"results": [{"uri", "label", "notation", "score"}]}`, and the routes of its REST service.

A project of Annif is a model here. Annif expects scores from 0 to 1. They are probabilities if the model has them,
otherwise the logistic function of the score, which keeps the order but is not calibrated.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from msgspec import Struct

from longtail.serve import rows
from longtail.serve.messages import HttpError, Request, Response, encode
from longtail.serve.predictor import Answer, ServedModel
from longtail.serve.schema import Decoder, json_body
from longtail.serve.service import Service

DEFAULT_LIMIT = 10


class Document(Struct):
    """A text and an identifier, which is returned with its suggestions."""

    text: str
    document_id: str | None = None
    metadata: dict[str, Any] | None = None


class Documents(Struct):
    documents: list[Document]


decode_documents = Decoder(Documents)


def results(model: ServedModel, answer: Answer, keep: np.ndarray) -> list[list[dict[str, Any]]]:
    """Return the suggestions for each row."""
    values = answer.probabilities
    if values is None:
        scores = answer.scores.astype(float)
        values = scores if getattr(model.model, "threshold", 0.0) else 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
    titles = model.card.titles
    found = []
    for i, columns in enumerate(answer.labels):
        found.append(
            [
                {
                    "uri": str(model.labels[column]),
                    "label": titles[column] if titles and titles[column] else str(model.labels[column]),
                    "notation": str(model.labels[column]) if titles else None,
                    "score": round(float(min(max(value, 0.0), 1.0)), 6),
                }
                for column, value, kept in zip(columns.tolist(), values[i].tolist(), keep[i].tolist(), strict=True)
                if kept and value > 0
            ]
        )
    return found


async def projects(service: Service, request: Request) -> Response:
    return Response(encode({"projects": [_project(model) for model in service.models.values()]}))


async def project(service: Service, request: Request) -> Response:
    return Response(encode(_project(service.model(request))))


def _project(model: ServedModel) -> dict[str, Any]:
    return {
        "project_id": model.name,
        "name": model.name,
        "language": "en",
        "backend": {"backend_id": f"longtail-{model.method}"},
        "is_trained": True,
        "modification_time": None,
    }


async def suggest(service: Service, request: Request) -> Response:
    """Suggest labels for one text, which is sent as a form."""
    model = service.model(request)
    if request.media_type != b"application/x-www-form-urlencoded":
        raise HttpError(415, "not_a_form", "send a form: application/x-www-form-urlencoded with text=…")
    try:
        form = dict(parse_qsl(request.body.decode("utf-8"), keep_blank_values=True, errors="strict"))
    except (UnicodeDecodeError, ValueError):
        raise HttpError(400, "bad_form", "the form is not UTF-8") from None
    if "text" not in form:
        raise rows.bad("the form has no text", "text")
    found = await _suggest(service, request, model, [form["text"]], form)
    return Response(encode({"results": found[0]}))


async def suggest_batch(service: Service, request: Request) -> Response:
    """Suggest labels for several texts in JSON. Limit and threshold are in the query string."""
    model = service.model(request)
    body: Documents = decode_documents(json_body(request))
    found = await _suggest(service, request, model, [document.text for document in body.documents], request.query)
    pairs = zip(body.documents, found, strict=True)
    return Response(encode([{"document_id": document.document_id, "results": each} for document, each in pairs]))


async def _suggest(
    service: Service, request: Request, model: ServedModel, given: list[str], options: dict[str, str]
) -> list[list[dict[str, Any]]]:
    limit = options.get("limit", str(DEFAULT_LIMIT))
    if not limit.isascii() or not limit.isdigit() or not 0 < int(limit[:9]) <= service.limits.max_top_k:
        raise rows.bad(f"limit must be from 1 to {service.limits.max_top_k}", "limit")
    try:
        threshold = float(options.get("threshold") or 0.0)
    except ValueError:
        raise rows.bad("threshold must be a number", "threshold") from None
    texts = rows.texts(given, model, service.limits, "text")
    answer = await service.best(request, model, texts, int(limit))
    found = results(model, answer, np.ones(answer.labels.shape, bool))
    return [[each for each in row if each["score"] >= threshold] for row in found]
