"""Requests that nobody should send, each with its exact answer. After every one the service answers as before."""

from __future__ import annotations

import json
import socket
import struct
import time

import pytest

from tests.serve.service import post

PREDICT = "/v1/models/texts/predict"
GOOD = b'{"texts": "cough", "top_k": 1}'
UPGRADE = b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
STREAM = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n"
MANY_KEYS = b'{"texts": "a", ' + b", ".join(b'"k%d": 1' % i for i in range(1500)) + b"}"
TOO_MANY = b'{"texts": [' + b'"a",' * 10 + b'"a"]}'
LUNG = {"labels": ["lung"], "scores": [0.5]}


@pytest.fixture(autouse=True)
def _still_well(strict):
    yield
    assert strict.ask("/live").status == 200
    assert strict.predict("cough", top_k=1)["predictions"] == [LUNG]


def refusal(answer) -> tuple[int, str]:
    return answer.status, answer.error["code"]


# --- framing ---------------------------------------------------------------------------------------------------------


def sent(strict, raw: bytes):
    with strict.wire() as wire:
        wire.send(raw)
        return wire.answer()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"nonsense\r\n\r\n", (400, "bad_http")),
        (b"GET /live\r\n\r\n", (400, "bad_http")),
        (b"GET /live HTTP/9.9\r\nHost: localhost\r\n\r\n", (400, "bad_http")),
        (b"GET /live HTTP/1.1\r\n\r\n", (400, "bad_header")),
        (b"GET /live HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", (400, "bad_header")),
        (b"GET /live HTTP/1.1\r\nHost: localhost\r\nBad Name: x\r\n\r\n", (400, "bad_http")),
        (b"GET /live HTTP/1.1\r\nHost: evil.example\r\n\r\n", (421, "wrong_host")),
        (b"GET /live HTTP/1.1\r\nHost: \r\n\r\n", (421, "wrong_host")),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (414, "url_too_long")),
        (b"GET /live HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000 + b"\r\n\r\n", (431, "headers_too_large")),
        (b"GET /live HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 3000, (431, "headers_too_large")),
        (b"GET /live HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 30000, (431, "headers_too_large")),
        (b"CONNECT evil:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, "no_upgrade")),
        (b"GET /%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, "bad_url")),
        (b"PUT /live HTTP/1.1\r\nHost: localhost\r\n\r\n", (405, "wrong_method")),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", (404, "no_route")),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", (405, "wrong_method")),
        (post(PREDICT, GOOD, length="-5"), (400, "bad_http")),
        (post(PREDICT, GOOD, length="ten"), (400, "bad_http")),
        (post(PREDICT, GOOD, length=str(2**31)), (413, "body_too_large")),
        (post(PREDICT, GOOD, length=str(2**63)), (413, "body_too_large")),
        (post(PREDICT, GOOD, length=str(2**64)), (400, "bad_http")),
        (post(PREDICT, GOOD, "Content-Length: 3"), (400, "bad_http")),
        (post(PREDICT, GOOD, "Transfer-Encoding: chunked"), (400, "bad_http")),
        (post(PREDICT, GOOD, "Transfer-Encoding: gzip, chunked"), (400, "bad_http")),
        (UPGRADE, (400, "no_upgrade")),
    ],
    ids=lambda value: value[:60].decode("latin-1") if isinstance(value, bytes) else value[1],
)  # fmt: skip
def test_bad_framing(strict, raw, expected):
    assert refusal(sent(strict, raw)) == expected


def test_a_post_without_length_has_no_body(strict):
    answer = sent(
        strict, f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n".encode()
    )
    assert refusal(answer) == (400, "bad_json")


def test_a_length_that_is_too_long_is_waited_for_and_given_up(strict):
    begin = time.monotonic()
    answer = sent(strict, post(PREDICT, GOOD, length="500"))
    assert refusal(answer) == (408, "too_slow")
    assert 0.9 < time.monotonic() - begin < 4


def test_a_length_that_is_too_short_makes_the_rest_a_bad_request(strict):
    with strict.wire() as wire:
        wire.send(post(PREDICT, GOOD + b"GARBAGE", length=str(len(GOOD))))
        assert wire.answer().json["predictions"] == [LUNG]
        assert refusal(wire.answer()) == (400, "bad_http")
        assert wire.closed()


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    return head.encode() + b"\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + end


def test_chunks_are_put_together(strict):
    assert sent(strict, chunked(GOOD[:5], GOOD[5:])).json["predictions"] == [LUNG]


def test_chunks_without_end(strict):
    assert refusal(sent(strict, chunked(GOOD, end=b""))) == (408, "too_slow")


def test_chunks_beyond_the_limit(strict):
    assert refusal(sent(strict, chunked(*[b" " * 1000] * 30, end=b""))) == (413, "body_too_large")


def test_a_chunk_of_a_wrong_size(strict):
    assert refusal(sent(strict, chunked(end=b"zz\r\n"))) == (400, "bad_http")


@pytest.mark.parametrize(("size", "status"), [(19_999, 200), (20_000, 200), (20_001, 413)])
def test_the_limit_of_the_body_is_exact(strict, size, status):
    body = GOOD[:-1] + b" " * (size - len(GOOD)) + b"}"
    assert sent(strict, post(PREDICT, body)).status == status


def test_a_large_body_is_refused_before_it_is_read(strict):
    begin = time.monotonic()
    with strict.wire() as wire:
        wire.send(post(PREDICT, b"", length="100000000"))  # not one byte of it is sent
        assert refusal(wire.answer()) == (413, "body_too_large")
        assert wire.closed()
    assert time.monotonic() - begin < 3


def test_expect_100_continue(strict):
    with strict.wire() as wire:
        wire.send(post(PREDICT, b"", "Expect: 100-continue", length=str(len(GOOD))))
        assert wire.answer().status == 100
        wire.send(GOOD)
        assert wire.answer().json["predictions"] == [LUNG]
    with strict.wire() as wire:
        wire.send(post("/v1/models/nobody/predict", b"", "Expect: 100-continue", length=str(len(GOOD))))
        assert refusal(wire.answer()) == (404, "no_model")


def test_pipelined_requests_are_answered_in_order(strict):
    bodies = [b'{"texts": "%s", "top_k": 1}' % word for word in (b"rash", b"cough", b"rib", b"pressure")] * 20
    with strict.wire() as wire:
        wire.send(b"".join(post(PREDICT, body) for body in bodies))
        found = [wire.answer().json["predictions"][0]["labels"][0] for _ in bodies]
    assert found == ["skin", "lung", "bone", "heart"] * 20


def test_a_half_closed_connection_gets_its_answer(strict):
    with strict.wire() as wire:
        wire.send(post(PREDICT, GOOD))
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.answer().json["predictions"] == [LUNG]
        assert wire.closed()


def test_http_1_0_and_connection_close(strict):
    assert sent(strict, b"GET /live HTTP/1.0\r\n\r\n").status in (200, 421)
    with strict.wire() as wire:
        wire.send(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert wire.closed()


def test_head_has_no_body(strict):
    with strict.wire() as wire:
        wire.send(b"HEAD /live HTTP/1.1\r\nHost: localhost\r\n\r\nGET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert wire.file.readline().startswith(b"HTTP/1.1 200")
        while wire.file.readline() != b"\r\n":
            pass
        assert wire.answer().json == {"live": True}


# --- time ------------------------------------------------------------------------------------------------------------


def test_slow_headers(strict):
    with strict.wire() as wire:
        begin = time.monotonic()
        for byte in b"GET /live HTTP/1.1\r\nHost: local":
            try:
                wire.send(bytes([byte]))
            except OSError:
                break
            time.sleep(0.06)
        assert refusal(wire.answer()) == (408, "too_slow")
        assert time.monotonic() - begin < 5


def test_slow_body(strict):
    with strict.wire() as wire:
        wire.send(post(PREDICT, b"", length=str(len(GOOD))))
        for byte in GOOD:
            try:
                wire.send(bytes([byte]))
            except OSError:
                break
            time.sleep(0.06)
        assert refusal(wire.answer()) == (408, "too_slow")


def test_an_idle_connection_is_closed(strict):
    with strict.wire() as wire:
        assert wire.closed(4)
    with strict.wire() as wire:
        wire.send(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert wire.answer().status == 200
        assert wire.closed(4)


def test_a_stream_that_stops_is_ended(strict):
    with strict.wire() as wire:
        wire.send(STREAM % (PREDICT.encode(), 999) + b'{"text": "cough"}\n')
        lines = [json.loads(line) for line in wire.answer().body.splitlines()]
    assert lines[0]["labels"][0] == "lung"
    assert lines[1]["error"]["code"] == "too_slow"


def test_a_client_that_does_not_read_is_given_up(strict):
    """Its answers may not pile up: the stream is not read on, and ends after the time-out."""
    block = b'{"text": "cough"}\n' * 5000
    with strict.wire() as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.send(STREAM % (PREDICT.encode() + b"?top_k=4", len(block) * 1000))
        wire.socket.settimeout(30)
        sent_before = [0]

        def send_for_ever():
            while True:
                wire.socket.sendall(block)
                sent_before[0] += len(block)

        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            send_for_ever()
        assert sent_before[0] < 60e6


def test_a_connection_that_is_reset_within_the_answer(strict):
    for _ in range(5):
        with strict.wire() as wire:
            wire.send(post(PREDICT, GOOD))
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_many_idle_sockets_do_not_keep_others_out(strict):
    idle = [socket.create_connection(("127.0.0.1", strict.port)) for _ in range(100)]
    try:
        begin = time.monotonic()
        assert strict.ask("/live").status == 200
        assert time.monotonic() - begin < 1
    finally:
        for each in idle:
            each.close()


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message", "field"),
    [
        (b"", "the body is not JSON: Input data was truncated", None),
        (b"\xff\xfe", "the body is not JSON: ", None),
        (b'{"texts": "\xff"}', "the body is not JSON: ", None),
        (b"[" * 100_0, "Expected `object`, got `array`", None),
        (b'{"texts": ' + b"[" * 9000, "Expected `str`, got `array`", "$.texts[0]"),
        (b'{"unknown": ' + b"[" * 9000, "Object contains unknown field `unknown`", None),
        (MANY_KEYS, "Object contains unknown field `k0`", None),
        (b'{"texts": NaN}', "the body is not JSON: ", None),
        (b'{"texts": "a", "threshold": Infinity}', "the body is not JSON: ", None),
        (b'{"texts": "a", "threshold": 1e999}', "Number out of range", "$.threshold"),
        (b'{"texts": "a", "threshold": ' + b"9" * 10000 + b"}", "Number out of range", "$.threshold"),
        (b'{"texts": "a", "top_k": ' + b"9" * 10000 + b"}", "", None),
        (b'{"texts": "\\ud800"}', "the body is not JSON: ", None),
        (b'{"texts": ["a", "b"}', "the body is not JSON: ", None),
        (b'{"texts": "a"} x', "the body is not JSON: ", None),
        (b"{}", "send exactly one of texts, rows and dense", None),
        (b'{"texts": "a", "rows": []}', "send exactly one of texts, rows and dense", None),
        (b'{"texts": []}', "there is no row; send at least one", None),
        (b'{"texts": 5}', "Expected `str | array | null`, got `int`", "$.texts"),
        (b'{"texts": ["a", 5]}', "Expected `str`, got `int`", "$.texts[1]"),
        (b'{"texts": {"a": 1}}', "Expected `str | array | null`, got `object`", "$.texts"),
        (b'{"texts": "a", "top_k": 0}', "Expected `int` >= 1", "$.top_k"),
        (b'{"texts": "a", "top_k": -1}', "Expected `int` >= 1", "$.top_k"),
        (b'{"texts": "a", "top_k": 1000000000000000000}', "top_k 1000000000000000000 is more than 50", "$.top_k"),
        (b'{"texts": "a", "top_k": "5"}', "Expected `int`, got `str`", "$.top_k"),
        (b'{"texts": "a", "top_k": true}', "Expected `int`, got `bool`", "$.top_k"),
        (b'{"texts": "a", "top_k": 2.5}', "Expected `int`, got `float`", "$.top_k"),
        (b'{"texts": "a", "top_k": null}', "Expected `int`, got `null`", "$.top_k"),
        (b'{"texts": "a", "threshold": "x"}', "Expected `float | null`, got `str`", "$.threshold"),
        (b'{"texts": "a", "allow": "skin"}', "Expected `array | null`, got `str`", "$.allow"),
        (b'{"texts": "a", "allow": ["none"]}', "the model texts has no label 'none'", "$.allow[0]"),
        (b'{"texts": "a", "deny": ["skin", 3]}', "the model texts has no label '3'", "$.deny[1]"),
        (b'{"texts": "a", "deny": ["skin", "skin", "skin", "skin"]}', "4 labels are more than 3", "$.deny"),
        (b'{"texts": "a", "explain": 1}', "Expected `bool`, got `int`", "$.explain"),
        (b'{"texts": "a", "format": "xml"}', "Invalid enum value 'xml'", "$.format"),
        (b'{"texts": "' + b"a" * 1001 + b'"}', "the text has 1,001 characters, more than 1,000", "$.texts[0]"),
        (TOO_MANY, "11 rows are more than 10; send several requests, or a stream", None),
        (b'{"rows": [{"indices": [0], "values": [1]}]}', "index 0", None),
        (b"null", "Expected `object`, got `null`", None),
        (b'"text"', "Expected `object`, got `str`", None),
    ],
    ids=lambda value: value[:50].decode("latin-1") if isinstance(value, bytes) else "",
)  # fmt: skip
def test_bad_bodies(strict, body, message, field):
    answer = strict.ask(PREDICT, body)
    if message == "index 0":  # a model of texts takes rows of its own features, too
        assert answer.status == 200
        return
    assert answer.status == 400
    assert answer.error["message"].startswith(message)
    assert answer.error.get("field") == field or field is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"indices": [4], "values": [1]}, "index 4 is not between 0 and 3"),
        ({"indices": [-1], "values": [1]}, "index -1 is not between 0 and 3"),
        ({"indices": [2**31], "values": [1]}, "index 2147483648 is not between 0 and 3"),
        ({"indices": [2**63 - 1], "values": [1]}, "index 9223372036854775807 is not between 0 and 3"),
        ({"indices": [10**30], "values": [1]}, ""),
        ({"indices": [1, 1], "values": [1, 2]}, "index 1 occurs twice in a row"),
        ({"indices": [0, 1], "values": [1]}, "2 indices have 1 values"),
        ({"indices": [0.5], "values": [1]}, "Expected `int`, got `float`"),
        ({"indices": ["0"], "values": [1]}, "Expected `int`, got `str`"),
        ({"indices": [0], "values": ["1"]}, "Expected `float`, got `str`"),
        ({"indices": [0], "values": [1e39]}, "a value is too large, or no number"),
        ({"indices": [0], "values": [-1e300]}, "a value is too large, or no number"),
        ({"indices": [0] * 6, "values": [1] * 6}, "6 features are more than 5"),
        ({"indices": [0]}, "Object missing required field `values`"),
        ([0, 1], "Expected `object`, got `array`"),
    ],
)
def test_bad_rows(strict, row, message):
    answer = strict.ask("/v1/models/vectors/predict", {"rows": [row]})
    assert answer.status == 400
    assert answer.error["message"].startswith(message)


@pytest.mark.parametrize(
    ("dense", "message"),
    [
        ([[1, 2, 3]], "a row has 3 values; the model has 4 features"),
        ([[]], "a row has 0 values; the model has 4 features"),
        ([], "there is no row; send at least one"),
        ([[1, 2, 3, 1e39]], "a value is too large, or no number"),
        ([[1, 2, 3, None]], "Expected `float`, got `null`"),
    ],
)
def test_bad_dense_rows(strict, dense, message):
    answer = strict.ask("/v1/models/vectors/predict", {"dense": dense})
    assert (answer.status, answer.error["message"]) == (400, message)


def test_an_empty_row_has_an_answer(strict):
    answer = strict.ask("/v1/models/vectors/predict", {"rows": [{"indices": [], "values": []}]})
    assert answer.json["predictions"] == [{"labels": [0, 1, 2], "scores": [0.0, 0.0, 0.0]}]


def test_unsorted_rows_tiny_values_and_odd_texts_have_answers(strict):
    answer = strict.ask("/v1/models/vectors/predict", {"rows": [{"indices": [3, 0], "values": [1e-50, -0.0]}]})
    assert answer.status == 200
    for text in ("\x00", "a\x00b", "🦴" * 100, "\u202e", "i̇İ", " " * 1000, "<script>alert(1)</script>"):
        assert strict.ask(PREDICT, {"texts": text}).status == 200


def test_of_equal_keys_the_last_counts(strict):
    answer = strict.ask(PREDICT, b'{"texts": "rash", "top_k": 4, "top_k": 1, "texts": "cough"}')
    assert answer.json["predictions"] == [LUNG]


def test_texts_for_a_model_of_numbers(strict):
    answer = strict.ask("/v1/models/vectors/predict", {"texts": "a"})
    assert (
        answer.error["message"] == "the model vectors was trained on rows of numbers and cannot read texts; send rows"
    )


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content-Type": "text/plain"}, "not_json"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "not_json"),
        ({"Content-Encoding": "gzip"}, "compressed"),
        ({"Content-Encoding": "br"}, "compressed"),
    ],
)
def test_other_media_types(strict, headers, code):
    assert refusal(strict.ask(PREDICT, GOOD, headers=headers)) == (415, code)


def test_too_many_bytes_at_once(strict):
    """Bodies that are being read take memory: no more than max_queue_bytes together."""
    with strict.wire() as first, strict.wire() as second, strict.wire() as third:
        for wire in (first, second):
            wire.send(post(PREDICT, b"", length="20000"))
        time.sleep(0.3)
        third.send(post(PREDICT, GOOD))
        answer = third.answer()
        assert (refusal(answer), answer.headers["retry-after"]) == ((503, "overloaded"), "1")
    time.sleep(0.3)
    assert strict.ask(PREDICT, GOOD).status == 200


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../texts", "no_route"),
        ("%2e%2e%2ftexts", "no_route"),
        ("..%5ctexts", "no_model"),
        ("..", "no_model"),
        ("%2Fetc%2Fpasswd", "no_route"),
        ("texts%00", "no_model"),
        ("%00", "no_model"),
        ("texts ", "no_model"),
        ("Texts", "no_model"),
        ("t%D0%B5xts", "no_model"),
        ("%7Bname%7D", "no_model"),
        ("", "no_model"),
        ("a" * 4000, "no_model"),
    ],
)
def test_names_are_looked_up_in_a_table(strict, name, code):
    raw = f"POST /v1/models/{name.replace(' ', '%20')}/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    assert refusal(sent(strict, raw.encode())) == (404, code)
    v2 = sent(strict, raw.replace("/v1/", "/v2/").replace("/predict", "/infer").encode())
    assert v2.status == 404
    assert isinstance(v2.json["error"], str)


@pytest.mark.parametrize(
    "path", ["/static/../page.py", "/static/%2e%2e/page.py", "/static/", "/static", "/static/app.css/", "//", "/docs/x"]
)
def test_only_known_files_are_served(strict, path):
    assert sent(strict, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).status == 404


@pytest.mark.parametrize(
    "query",
    ["limit=-1", "limit=201", "limit=x", "limit=1e3", "offset=99999999999", "band=none", "sort=none", "x=1", "q=%ff",
     "label=none", "limit=²"],
)  # fmt: skip
def test_bad_queries(strict, query):
    raw = f"GET /v1/models/texts/labels?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    assert sent(strict, raw).status == 400
