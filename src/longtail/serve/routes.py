"""The routes of the service, and the handlers of its own protocol (`/v1`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST

import longtail
from longtail.serve import annif, kserve, page, rows
from longtail.serve.board import exposition
from longtail.serve.messages import HttpError, Request, Response, encode
from longtail.serve.openapi import document
from longtail.serve.predictor import Answer, ServedModel
from longtail.serve.schema import (
    Explained,
    ExplainRequest,
    ExplainResponse,
    PredictRequest,
    PredictResponse,
    RowPrediction,
    Share,
    decode_explain,
    decode_predict,
    json_body,
)
from longtail.serve.service import Endpoint, Service
from longtail.serve.stream import predict_stream

MAX_EXPLANATIONS = 200
EXPLAINED_FEATURES = 10
BANDS = ("head", "torso", "tail")
MAX_LISTED = 200  # labels in one answer


# --- predictions -----------------------------------------------------------------------------------------------------


async def predict(service: Service, request: Request) -> Response:
    model = service.model(request)
    if request.stream is not None:
        return predict_stream(service, request, model)
    body: PredictRequest = decode_predict(json_body(request))
    given = _rows(body, model, service)
    answer, keep = await best_labels(service, request, model, given, body)
    if body.format == "annif":
        return Response(encode([{"results": each} for each in annif.results(model, answer, keep)]))
    predictions = plain(model, answer, keep, details=body.details)
    if body.explain:
        await _add_explanations(service, model, given, answer, keep, predictions)
    return Response(encode(PredictResponse(model.name, model.version, predictions)))


def _rows(body: PredictRequest, model: ServedModel, service: Service) -> Any:
    if sum(each is not None for each in (body.texts, body.rows, body.dense)) != 1:
        raise rows.bad("send exactly one of texts, rows and dense")
    if body.texts is not None:
        return rows.texts(body.texts, model, service.limits)
    if body.rows is not None:
        return rows.sparse(body.rows, model, service.limits)
    assert body.dense is not None
    return rows.dense(body.dense, model, service.limits)


async def best_labels(
    service: Service, request: Request, model: ServedModel, given: Any, body: PredictRequest
) -> tuple[Answer, np.ndarray]:
    """Return the best labels, and which of them to show."""
    k = rows.check_top_k(body.top_k, service.limits)
    allow = None if body.allow is None else rows.columns(body.allow, model, service.limits, "$.allow")
    deny = rows.columns(body.deny or (), model, service.limits, "$.deny")
    if allow is not None:
        allow = np.setdiff1d(allow, deny)
        answer = await service.best(request, model, given, k, allow)
        return answer, _above(answer, body.threshold)
    answer = await service.best(request, model, given, k + len(deny))
    keep = _above(answer, body.threshold)
    if len(deny):
        keep &= ~np.isin(answer.labels, deny)
        keep &= keep.cumsum(axis=1) <= k
    return answer, keep


def _above(answer: Answer, threshold: float | None) -> np.ndarray:
    if threshold is None:
        return np.ones(answer.labels.shape, bool)
    values = answer.scores if answer.probabilities is None else answer.probabilities
    return np.asarray(values >= threshold)


def plain(model: ServedModel, answer: Answer, keep: np.ndarray, *, details: bool = False) -> list[RowPrediction]:
    """Predictions with names, one per row."""
    whole = bool(keep.all())
    names = model.labels[answer.labels]
    scores = answer.scores.astype(float).round(6)
    probabilities = None if answer.probabilities is None else answer.probabilities.astype(float).round(6)
    title_of, band_of = (model.card.titles, model.bands) if details else (None, None)
    found = []
    for i in range(len(names)):
        kept: Any = slice(None) if whole else keep[i]
        found.append(
            RowPrediction(
                names[i][kept].tolist(),
                scores[i][kept].tolist(),
                None if probabilities is None else probabilities[i][kept].tolist(),
                None if title_of is None else [title_of[j] for j in answer.labels[i][kept]],
                None if band_of is None else [BANDS[band] for band in band_of[answer.labels[i][kept]]],
            )
        )
    return found


async def _add_explanations(
    service: Service, model: ServedModel, given: Any, answer: Answer, keep: np.ndarray, predictions: list[RowPrediction]
) -> None:
    if keep.sum() > MAX_EXPLANATIONS:
        raise rows.bad(f"{keep.sum()} labels are more than the {MAX_EXPLANATIONS} that one request can explain")
    for i, prediction in enumerate(predictions):
        row = given[i] if isinstance(given, list) else given[[i]]
        prediction.explanations = [
            await service.in_thread(explained, model, row, int(j), EXPLAINED_FEATURES)
            for j in answer.labels[i][keep[i]]
        ]


# --- explanations ----------------------------------------------------------------------------------------------------


async def explain(service: Service, request: Request) -> Response:
    model = service.model(request)
    body: ExplainRequest = decode_explain(json_body(request))
    if sum(each is not None for each in (body.text, body.row, body.dense)) != 1:
        raise rows.bad("send exactly one of text, row and dense")
    row: Any
    if body.text is not None:
        (row,) = rows.texts(body.text, model, service.limits, "$.text")
    elif body.row is not None:
        row = rows.sparse([body.row], model, service.limits, "$.row")
    else:
        row = rows.dense([body.dense or []], model, service.limits)
    top = rows.check_top_k(body.top, service.limits, "$.top")
    if body.label is None:
        answer = await service.best(request, model, [row] if isinstance(row, str) else row, 1)
        column = int(answer.labels[0, 0])
    else:
        column = rows.column(body.label, model, "$.label")
    explanation = await service.in_thread(explained, model, row, column, top)
    strongest = await service.in_thread(model.strongest, column, top)
    return Response(encode(ExplainResponse(model.name, model.version, explanation, strongest)))


def explained(model: ServedModel, row: Any, column: int, top: int) -> Explained:
    """Explain the score of a row, with the positions of its words."""
    found = model.explain(row, column, top)
    terms = [share.feature for share in found.contributions]
    places = model.spans(row, terms) if isinstance(row, str) else {}
    shares = [
        Share(
            share.feature,
            round(float(share.value), 6),
            round(float(share.weight), 6),
            round(float(share.contribution), 6),
            places.get(share.feature, []),
        )
        for share in found.contributions
    ]
    name = found.name.item() if isinstance(found.name, np.generic) else found.name
    probability = None if found.probability is None else round(float(found.probability), 6)
    return Explained(name, round(float(found.score), 6), round(float(found.bias), 6), shares, probability)


# --- models and labels -----------------------------------------------------------------------------------------------


async def list_models(service: Service, request: Request) -> Response:
    found = [
        {"name": m.name, "version": m.version, "method": m.method, "labels": m.n_labels, "texts": m.takes_texts}
        for m in service.models.values()
    ]
    return Response(encode({"models": found}))


async def describe(service: Service, request: Request) -> Response:
    model = service.model(request)
    card = model.card
    bands = None if model.bands is None else np.bincount(model.bands, minlength=3).tolist()
    return Response(
        encode(
            {
                "name": model.name,
                "version": model.version,
                "method": model.method,
                "parameters": model.params,
                "labels": model.n_labels,
                "features": model.n_features,
                "weights": model.model.n_weights,
                "bytes": model.n_bytes,
                "texts": model.takes_texts,
                "probabilities": model.has_probabilities,
                "multiclass": bool(model.model.multiclass),
                "training": model.training.as_dict(),
                "training_facts": model.training.facts(),
                "data": dict(card.data),
                "metrics": card.metrics,
                "reliability": card.reliability,
                "examples": list(card.examples),
                "bands": None if bands is None else dict(zip(BANDS, bands, strict=True)),
                "frequency_curve": _curve(card.frequency),
                "longtail": longtail.__version__,
            }
        )
    )


def _curve(frequency: np.ndarray | None) -> list[list[float]] | None:
    """Return rank and frequency at about forty ranks, evenly spaced on a logarithmic scale."""
    if frequency is None or not len(frequency):
        return None
    ranked = np.sort(frequency)[::-1]
    at = np.unique(np.geomspace(1, len(ranked), 40).round().astype(int))
    return [[int(rank), int(ranked[rank - 1])] for rank in at]


async def labels(service: Service, request: Request) -> Response:
    model = service.model(request)
    query = request.query
    unknown = set(query) - {"label", "q", "band", "sort", "offset", "limit"}
    if unknown:
        raise HttpError(400, "bad_query", f"unknown parameter {sorted(unknown)[0][:80]!r}")
    if "label" in query:
        return await _one_label(service, model, query["label"])
    band = query.get("band")
    if band is not None and band not in BANDS:
        raise HttpError(400, "bad_query", f"band must be one of {', '.join(BANDS)}", field="band")
    order = query.get("sort", "frequency")
    if order not in ("frequency", "name", "quality"):
        raise HttpError(400, "bad_query", "sort must be frequency, name or quality", field="sort")
    offset = _number(query, "offset", 0, model.n_labels)
    limit = _number(query, "limit", 50, MAX_LISTED)
    found = await service.in_thread(
        model.find, query.get("q", "")[:200], None if band is None else BANDS.index(band), order
    )
    listed = [_label(model, int(column)) for column in found[offset : offset + limit]]
    return Response(encode({"model": model.name, "version": model.version, "total": len(found), "labels": listed}))


def _number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = query.get(name, str(min(default, most)))
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > most:
        raise HttpError(400, "bad_query", f"{name} must be a whole number from 0 to {most}", field=name)
    return int(text)


async def _one_label(service: Service, model: ServedModel, name: str) -> Response:
    column = rows.column(name, model, "label")
    strongest = await service.in_thread(model.strongest, column, 30)
    return Response(
        encode({"model": model.name, "version": model.version, **_label(model, column), "strongest": strongest})
    )


def _label(model: ServedModel, column: int) -> dict[str, Any]:
    card, name = model.card, model.labels[column]
    quality = None if card.quality is None else float(card.quality[column])
    return {
        "label": name.item() if isinstance(name, np.generic) else name,
        "column": column,
        "title": None if card.titles is None else card.titles[column],
        "frequency": None if card.frequency is None else int(card.frequency[column]),
        "band": None if model.bands is None else BANDS[model.bands[column]],
        "quality": None if quality is None or quality != quality else round(quality, 4),
    }


# --- health ----------------------------------------------------------------------------------------------------------


async def live(service: Service, request: Request) -> Response:
    return Response(encode({"live": True}))


async def ready(service: Service, request: Request) -> Response:
    faults = ["this worker is stopping"] if service.draining else service.board.faults()
    notice = service.board.notice()
    said = {"ready": not faults, "faults": faults, "reload_error": notice.get("reload_error"),
            "models": {model.name: model.version for model in service.models.values()}}  # fmt: skip
    return Response(encode(said), 503 if faults else 200, headers=[(b"retry-after", b"1")] if faults else ())


async def prometheus(service: Service, request: Request) -> Response:
    models = [{"name": m.name, "version": m.version, "method": m.method} for m in service.models.values()]
    return Response(exposition(service.board, models), content_type=CONTENT_TYPE_LATEST.encode())


async def openapi(service: Service, request: Request) -> Response:
    return Response(encode(document(service.models.values(), service.limits)))


# --- the table -------------------------------------------------------------------------------------------------------


class Routes:
    """Paths and their endpoints. `{name}` is the third part of a path. There are no other variable parts."""

    def __init__(self, table: Mapping[str, Mapping[str, Endpoint]]) -> None:
        self.table = {tuple(path.strip("/").split("/")): dict(methods) for path, methods in table.items()}

    def find(self, path: str) -> tuple[dict[str, Endpoint] | None, dict[str, str]]:
        parts = tuple(path[1:].split("/"))
        found = self.table.get(parts)
        if found is not None and "{name}" not in parts:
            return found, {}
        if len(parts) < 3:
            return None, {}
        found = self.table.get((*parts[:2], "{name}", *parts[3:]))
        return found, {} if found is None else {"name": parts[2]}


def _table() -> Routes:
    health = {"live": Endpoint("health", live, public=True), "ready": Endpoint("health", ready, public=True)}
    scoring = Endpoint("predict", predict, scores=True, streams_ndjson=True)
    v2: dict[str, Any] = {"style": "v2"}
    table: dict[str, dict[str, Endpoint]] = {
        "/live": {"GET": health["live"]},
        "/ready": {"GET": health["ready"]},
        "/metrics": {"GET": Endpoint("metrics", prometheus)},
        "/openapi.json": {"GET": Endpoint("page", openapi)},
        "/v1/models": {"GET": Endpoint("models", list_models)},
        "/v1/models/{name}": {"GET": Endpoint("models", describe)},
        "/v1/models/{name}/labels": {"GET": Endpoint("labels", labels)},
        "/v1/models/{name}/predict": {"POST": scoring},
        "/v1/models/{name}/explain": {"POST": Endpoint("explain", explain, scores=True)},
        "/v1/projects": {"GET": Endpoint("models", annif.projects)},
        "/v1/projects/{name}": {"GET": Endpoint("models", annif.project)},
        "/v1/projects/{name}/suggest": {"POST": Endpoint("suggest", annif.suggest, scores=True)},
        "/v1/projects/{name}/suggest-batch": {"POST": Endpoint("suggest", annif.suggest_batch, scores=True)},
        "/v2": {"GET": Endpoint("models", kserve.server, **v2)},
        "/v2/health/live": {"GET": Endpoint("health", kserve.live, public=True, **v2)},
        "/v2/health/ready": {"GET": Endpoint("health", kserve.ready, public=True, **v2)},
        "/v2/models/{name}": {"GET": Endpoint("models", kserve.model, **v2)},
        "/v2/models/{name}/ready": {"GET": Endpoint("health", kserve.model_ready, public=True, **v2)},
        "/v2/models/{name}/infer": {"POST": Endpoint("infer", kserve.infer, scores=True, **v2)},
    }
    for path in page.FILES:
        table[path] = {"GET": Endpoint("page", page.serve, public=True)}
    return Routes(table)


ROUTES = _table()
