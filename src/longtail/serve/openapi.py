"""The OpenAPI document: schemas generated from the classes in schema.py, and examples that can be run unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

import longtail
from longtail.serve.limits import Limits
from longtail.serve.predictor import ServedModel
from longtail.serve.schema import ExplainRequest, ExplainResponse, PredictRequest, PredictResponse

EXAMPLE_TEXT = "closed fracture of the left ankle after a fall"
REF = "#/components/schemas/{name}"
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "For programs."},
                "message": {"type": "string", "description": "For people."},
                "field": {"type": "string", "description": "The invalid part of the body."},
            },
        }
    },
}
V2_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
OBJECT = {"type": "object"}


def document(models: Iterable[ServedModel], limits: Limits) -> dict[str, Any]:
    """Return the OpenAPI document of the service with these models."""
    served = list(models)
    _, schemas = msgspec.json.schema_components(
        [PredictRequest, PredictResponse, ExplainRequest, ExplainResponse], ref_template=REF
    )
    schemas |= {"Error": ERROR, "V2Error": V2_ERROR}
    schemas["PredictRequest"]["properties"]["top_k"]["maximum"] = limits.max_top_k
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "longtail",
            "version": longtail.__version__,
            "description": "Predicts the best of many labels for texts and rows, with explanations.",
        },
        "paths": _paths(served),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _paths(served: list[ServedModel]) -> dict[str, Any]:
    name = {
        "name": "name",
        "in": "path",
        "required": True,
        "description": "Name of a model.",
        "schema": {"type": "string", "enum": [model.name for model in served]},
        "example": served[0].name if served else "model",
    }
    rows = _example_rows(served[0]) if served else {"texts": EXAMPLE_TEXT}
    one = _example_row(served[0]) if served else {"text": EXAMPLE_TEXT}
    v2 = _example_v2(served[0]) if served else {}
    predict_examples = {
        "plain": {"summary": "The three best labels", "value": {**rows, "top_k": 3}},
        "explained": {"summary": "With explanations", "value": {**rows, "top_k": 2, "explain": True}},
        "annif": {"summary": "In Annif's format", "value": {**rows, "top_k": 3, "format": "annif"}},
    }
    line = b'{"text": "%s"}\n' % EXAMPLE_TEXT.encode()
    paths: dict[str, Any] = {
        "/v1/models": {"get": _operation("listModels", "The models of this service")},
        "/v1/models/{name}": {"get": _operation("describeModel", "Facts about a model", [name])},
        "/v1/models/{name}/predict": {
            "post": {
                **_operation("predict", "The best labels of texts or rows", [name], ref="PredictResponse", scores=True),
                "description": "With Content-Type application/x-ndjson: one object per line in, one per line out, "
                "for streams of any length; top_k and threshold are then query parameters.",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {"$ref": REF.format(name="PredictRequest")},
                            "examples": predict_examples,
                        },
                        "application/x-ndjson": {"schema": {"type": "string"}, "example": line.decode()},
                    },
                },
            }
        },
        "/v1/models/{name}/explain": {
            "post": {
                **_operation("explain", "Why a row has its score", [name], ref="ExplainResponse", scores=True),
                "requestBody": _json_body("ExplainRequest", one),
            }
        },
        "/v1/models/{name}/labels": {
            "get": _operation(
                "findLabels",
                "Labels by name, title and frequency",
                [
                    name,
                    _query("q", "Part of a name or title.", {"type": "string"}),
                    _query("band", "Only frequent, medium or rare labels.", {"enum": ["head", "torso", "tail"]}),
                    _query("sort", "The order.", {"enum": ["frequency", "name", "quality"]}),
                    _query("offset", "Skip this many labels.", {"type": "integer", "minimum": 0}),
                    _query("limit", "How many.", {"type": "integer", "minimum": 0, "maximum": 200}),
                    _query("label", "Only this label, with its strongest features.", {"type": "string"}),
                ],
            )
        },
        "/v1/projects": {"get": _operation("annifProjects", "The models, as Annif lists projects")},
        "/v1/projects/{name}/suggest": {
            "post": {
                **_operation("annifSuggest", "Suggestions in Annif's format", [name], scores=True),
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/x-www-form-urlencoded": {
                            "schema": {
                                "type": "object",
                                "required": ["text"],
                                "properties": {
                                    "text": {"type": "string"},
                                    "limit": {"type": "integer", "minimum": 1},
                                    "threshold": {"type": "number"},
                                },
                            },
                            "example": {"text": EXAMPLE_TEXT, "limit": 3},
                        }
                    },
                },
            }
        },
        "/v2": {"get": _operation("v2Server", "Open Inference Protocol: the server", style="v2")},
        "/v2/models/{name}": {"get": _operation("v2Model", "Inputs and outputs", [name], style="v2")},
        "/v2/models/{name}/infer": {
            "post": {
                **_operation("v2Infer", "Inference", [name], style="v2", scores=True),
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": OBJECT, "example": v2}},
                },
            }
        },
        "/live": {"get": _operation("live", "Whether the process answers")},
        "/ready": {"get": _operation("ready", "Whether all workers are ready", busy=True)},
        "/metrics": {"get": _operation("metrics", "Figures for Prometheus", media="text/plain")},
    }
    if served and not served[0].takes_texts:
        del paths["/v1/projects/{name}/suggest"]
    return paths


def _operation(
    identifier: str,
    summary: str,
    parameters: list[dict[str, Any]] | None = None,
    *,
    ref: str | None = None,
    style: str = "v1",
    scores: bool = False,
    busy: bool = False,
    media: str = "application/json",
) -> dict[str, Any]:
    error = {"$ref": REF.format(name="V2Error" if style == "v2" else "Error")}
    failure = {"application/json": {"schema": error}}
    schema: dict[str, Any] = {"$ref": REF.format(name=ref)} if ref else ({} if media == "application/json" else OBJECT)
    if ref == "PredictResponse":
        schema = {"anyOf": [schema, {"type": "array"}]}  # Annif's form
    content = {media: {"schema": schema if media == "application/json" else {"type": "string"}}}
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": content}}
    said = {"400": "The request cannot be understood.", "401": "A token is missing."}
    if parameters:
        said["404"] = "There is no such model."
    if scores:
        said |= {"408": "Too slow.", "413": "The body is too large.", "415": "The body has another type."}
    if scores or busy:
        said["503"] = "The service is overloaded; see Retry-After."
    for status, text in said.items():
        responses[status] = {"description": text, "content": failure}
    if busy:
        responses["503"]["content"] = {"application/json": {"schema": OBJECT}}
    return {
        "operationId": identifier,
        "summary": summary,
        **({"parameters": parameters} if parameters else {}),
        "responses": responses,
    }


def _query(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _json_body(ref: str, example: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": {"$ref": REF.format(name=ref)}, "example": example}
    return {"required": True, "content": {"application/json": content}}


def _example_rows(model: ServedModel) -> dict[str, Any]:
    if model.takes_texts:
        return {"texts": [model.card.examples[0] if model.card.examples else EXAMPLE_TEXT]}
    return {"rows": [{"indices": [0], "values": [1.0]}]}


def _example_row(model: ServedModel) -> dict[str, Any]:
    if model.takes_texts:
        return {"text": model.card.examples[0] if model.card.examples else EXAMPLE_TEXT}
    return {"row": {"indices": [0], "values": [1.0]}}


def _example_v2(model: ServedModel) -> dict[str, Any]:
    if model.takes_texts:
        inputs = [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [EXAMPLE_TEXT]}]
    else:
        inputs = [
            {"name": "indptr", "datatype": "INT64", "shape": [2], "data": [0, 1]},
            {"name": "indices", "datatype": "INT32", "shape": [1], "data": [0]},
            {"name": "values", "datatype": "FP32", "shape": [1], "data": [1.0]},
        ]
    return {"inputs": inputs, "parameters": {"top_k": 3}}
