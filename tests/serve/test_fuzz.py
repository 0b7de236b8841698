"""Random bodies and requests: whatever comes, the answer is never an error of the service."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serve.service import post

NAMES = ("texts", "rows", "dense", "top_k", "threshold", "allow", "deny", "explain", "details", "format", "x")
leaf = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(["lung", "annif", 0, 3])
)
tree = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["indices", "values", "a"]), inner, max_size=3),
    ),
    max_leaves=8,
)
bodies = st.dictionaries(st.sampled_from(NAMES), tree, max_size=5)
likely = st.fixed_dictionaries(
    {},
    optional={
        "texts": st.one_of(st.text(max_size=40), st.lists(st.text(max_size=20), max_size=5)),
        "rows": st.lists(
            st.fixed_dictionaries({"indices": st.lists(st.integers(-2, 20), max_size=4),
                                   "values": st.lists(st.floats(width=32), max_size=4)}), max_size=3),
        "top_k": st.integers(-1, 2000),
        "threshold": st.floats(),
        "allow": st.lists(st.sampled_from(["lung", "skin", "none", 1]), max_size=4),
        "deny": st.lists(st.sampled_from(["lung", "skin", "none", 1]), max_size=4),
        "explain": st.booleans(),
        "format": st.sampled_from(["longtail", "annif", "xml"]),
    },
)  # fmt: skip
ROUTES = ("/v1/models/{}/predict", "/v1/models/{}/explain", "/v2/models/{}/infer", "/v1/projects/{}/suggest-batch")


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(ROUTES), st.sampled_from(["texts", "vectors"]), st.one_of(bodies, likely)),
                min_size=10, max_size=10))  # fmt: skip
def test_json_of_any_form(service, asked):
    requests = [(route.format(model), json.dumps(body).encode()) for route, model, body in asked]
    for (path, body), answer in zip(requests, service.asking(requests), strict=True):
        assert answer.status in (200, 400), (path, body, answer.body)
        answer.json  # noqa: B018 - the answer is always JSON


def test_bytes_of_any_form(service):
    """Valid requests with some bytes changed, cut or doubled."""
    seed = 20_261_116
    chance = random.Random(seed)
    body = json.dumps({"texts": ["dry cough", "rash"], "top_k": 2}).encode()
    whole = post("/v1/models/texts/predict", body, "Accept: */*", "Connection: close")
    for number in range(300):
        raw = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(raw))
            match chance.randrange(3):
                case 0:
                    raw[at] = chance.randrange(256)
                case 1:
                    del raw[at : at + chance.randint(1, 9)]
                case 2:
                    raw[at:at] = raw[at : at + chance.randint(1, 20)]
            raw = raw or bytearray(b"x")
        with service.wire() as wire:
            wire.send(bytes(raw))
            wire.socket.shutdown(1)
            try:
                status = wire.answer().status
            except (EOFError, ConnectionResetError):
                continue  # an incomplete request has no answer
            assert status in (200, 400, 404, 405, 408, 413, 415, 421, 431), (seed, number, bytes(raw))


def test_the_openapi_document_holds(service):
    """schemathesis makes requests from the document and compares the answers with it."""
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis import checks as known

    document = service.ask("/openapi.json").json
    schema = schemathesis.openapi.from_dict(document)
    base = f"http://127.0.0.1:{service.port}"
    wanted = [known.not_a_server_error, known.status_code_conformance, known.response_schema_conformance]
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if "ndjson" in str(operation.body) and operation.method == "get":
            continue

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy())
        def run(case):
            case.call_and_validate(base_url=base, checks=wanted)

        run()
        tried += 1
    assert tried >= 13
