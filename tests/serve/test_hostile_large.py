"""Hostile requests that need the default limits: deep, wide and long JSON, on every route that takes a body."""

from __future__ import annotations

import time

import pytest

EXPLAIN = "/v1/models/texts/explain"
ROUTES = ("/v1/models/texts/predict", EXPLAIN, "/v2/models/texts/infer", "/v1/projects/texts/suggest-batch")
DEPTH = 100_000
OPENED = {
    "lists": b"[" * DEPTH,
    "closed lists": b"[" * DEPTH + b"]" * DEPTH,
    "objects": b'{"a":' * DEPTH,
    "lists in texts": b'{"texts": ' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "objects in parameters": b'{"inputs": [], "parameters": ' + b'{"a":' * DEPTH + b"1" + b"}" * DEPTH + b"}",
    "lists in data": b'{"inputs": [{"name": "texts", "shape": [1], "datatype": "BYTES", "data": '
    + b"[" * DEPTH + b"]" * DEPTH + b"}]}",
    "lists in an unknown field": b'{"nobody": ' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "documents": b'{"documents": ' + b"[" * DEPTH + b"]" * DEPTH + b"}",
}  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("body", OPENED.values(), ids=list(OPENED))
def test_deep_bodies(service, route, body):
    begin = time.monotonic()
    answer = service.ask(route, body)
    assert answer.status == 400, answer.body[:300]
    assert answer.json["error"]
    assert time.monotonic() - begin < 10
    assert service.ask("/live").status == 200


@pytest.mark.parametrize("route", ROUTES)
def test_a_million_keys(service, route):
    body = b"{" + b",".join(b'"a":1' for _ in range(1_000_000)) + b"}"
    assert service.ask(route, body).status == 400


@pytest.mark.parametrize("route", ROUTES)
def test_an_integer_of_a_hundred_thousand_digits(service, route):
    for field in (b"top_k", b"top", b"limit", b"id", b"texts", b"threshold"):
        answer = service.ask(route, b'{"%b": %b}' % (field, b"9" * 100_000))
        assert answer.status == 400, (route, field)


@pytest.mark.parametrize(
    ("body", "message", "field"),
    [
        (b"{}", "send exactly one of text, row and dense", None),
        (b'{"text": "a", "row": {"indices": [], "values": []}}', "send exactly one of text, row and dense", None),
        (b'{"text": 5}', "Expected `str | null`, got `int`", "$.text"),
        (b'{"text": ["a"]}', "Expected `str | null`, got `array`", "$.text"),
        (b'{"text": "a", "label": "none"}', "the model texts has no label 'none'", "$.label"),
        (b'{"text": "a", "label": {}}', "Expected `int | str | null`, got `object`", "$.label"),
        (b'{"text": "a", "top": 0}', "Expected `int` >= 1", "$.top"),
        (b'{"text": "a", "top": 100000}', "top 100000 is more than 1,000", "$.top"),
        (b'{"row": [1]}', "Expected `object | null`, got `array`", "$.row"),
        (b'{"dense": [1]}', "a row has 1 values; the model has 16 features", "$.dense[0]"),
        (b'{"text": "a", "more": 1}', "Object contains unknown field `more`", None),
    ],
)
def test_bad_explanations(service, body, message, field):
    answer = service.ask(EXPLAIN, body)
    assert (answer.status, answer.error["message"], answer.error.get("field")) == (400, message, field)


def test_more_labels_than_can_be_explained(service):
    answer = service.ask("/v1/models/texts/predict", {"texts": ["cough"] * 51, "top_k": 4, "explain": True})
    assert answer.error["message"] == "204 labels are more than the 200 that one request can explain"
