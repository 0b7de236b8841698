"""The bodies of requests and responses. The OpenAPI document is generated from these classes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from longtail.serve.messages import HttpError, Request

Positive = Annotated[int, Meta(ge=1)]


class SparseRow(Struct, forbid_unknown_fields=True):
    """The features of a row that are not zero."""

    indices: Annotated[list[int], Meta(description="Column numbers, each at most once.")]
    values: Annotated[list[float], Meta(description="Their values.")]


class PredictRequest(Struct, forbid_unknown_fields=True):
    """What to predict: exactly one of texts, rows and dense."""

    texts: Annotated[str | list[str] | None, Meta(description="One text or several.")] = None
    rows: Annotated[list[SparseRow] | None, Meta(description="Sparse rows, for a model trained on numbers.")] = None
    dense: Annotated[list[list[float]] | None, Meta(description="Dense rows, a number for every feature.")] = None
    top_k: Annotated[Positive, Meta(description="How many labels per row.")] = 5
    threshold: Annotated[
        float | None,
        Meta(description="Leave out labels with a lower probability (or score, if the model has no probabilities)."),
    ] = None
    allow: Annotated[list[str | int] | None, Meta(description="Only these labels, ranked by score.")] = None
    deny: Annotated[list[str | int] | None, Meta(description="Not these labels.")] = None
    explain: Annotated[bool, Meta(description="Add the features behind each score.")] = False
    details: Annotated[bool, Meta(description="Add facts from the model's card: titles and frequency bands.")] = False
    format: Annotated[Literal["longtail", "annif"], Meta(description="The form of the answer.")] = "longtail"


class Share(Struct):
    """The contribution of a feature to a score. `spans` are the positions of the feature in the text, in characters."""

    feature: str
    value: float
    weight: float
    contribution: float
    spans: list[tuple[int, int]]


class Explained(Struct):
    """The explanation of the score of a row for a label."""

    label: str | int | float | bool
    score: float
    bias: float
    contributions: list[Share]
    probability: float | None = None


class RowPrediction(Struct, omit_defaults=True):
    """The best labels of one row, best first."""

    labels: list[Any]
    scores: list[float]
    probabilities: list[float] | None = None
    titles: list[str] | None = None
    bands: list[str] | None = None
    explanations: list[Explained] | None = None


class PredictResponse(Struct):
    """One prediction per row, by the model of this version."""

    model: str
    version: str
    predictions: list[RowPrediction]


class ExplainRequest(Struct, forbid_unknown_fields=True):
    """One text or row, and the label to explain. Without a label, the best label is explained."""

    text: str | None = None
    row: SparseRow | None = None
    dense: list[float] | None = None
    label: Annotated[str | int | None, Meta(description="Name of the label.")] = None
    top: Annotated[Positive, Meta(description="How many features.")] = 20


class ExplainResponse(Struct):
    """The explanation, and the strongest features of the label in general."""

    model: str
    version: str
    explanation: Explained
    strongest: list[tuple[str, float]]


class StreamLine(Struct, forbid_unknown_fields=True):
    """A line of a stream; `id` is sent back."""

    text: str | None = None
    indices: list[int] | None = None
    values: list[float] | None = None
    id: str | int | None = None


class Decoder:
    """Decodes JSON to one of the classes above. An invalid body raises an HttpError that names the field."""

    def __init__(self, form: Any) -> None:
        self._decode = msgspec.json.Decoder(form).decode

    def __call__(self, body: bytes) -> Any:
        try:
            return self._decode(body)
        except msgspec.ValidationError as error:
            message, _, field = str(error).partition(" - at `")
            raise HttpError(400, "bad_request", message, field=field.rstrip("`") or None) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HttpError(400, "bad_json", f"the body is not JSON: {error}") from None
        except RecursionError:
            raise HttpError(400, "bad_json", "the body is not JSON that can be read: it is nested too deeply") from None


decode_predict = Decoder(PredictRequest)
decode_explain = Decoder(ExplainRequest)
decode_line = Decoder(StreamLine)


def json_body(request: Request) -> bytes:
    """Return the body if its content type is JSON. Otherwise raise HttpError."""
    refuse_compressed(request)
    if request.media_type != b"application/json":
        raise HttpError(415, "not_json", "send JSON, with the header Content-Type: application/json")
    return request.body


def refuse_compressed(request: Request) -> None:
    if request.headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise HttpError(415, "compressed", "compressed bodies are not accepted; send the body as it is")
