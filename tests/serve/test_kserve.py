"""The Open Inference Protocol, by NVIDIA's client and by hand."""

from __future__ import annotations

import numpy as np
import pytest

import longtail as lt

TEXTS = ["dry cough", "broken rib", "Ärger mit dem Herz"]


@pytest.fixture(scope="module")
def client(service):
    triton = pytest.importorskip("tritonclient.http")
    connected = triton.InferenceServerClient(f"127.0.0.1:{service.port}")
    yield connected
    connected.close()


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("texts")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    about = client.get_model_metadata("texts")
    assert about["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert [each["name"] for each in about["outputs"]] == ["labels", "columns", "scores"]


@pytest.mark.parametrize("binary", [True, False])
def test_texts(client, folders, binary):
    from tritonclient.http import InferInput, InferRequestedOutput

    given = InferInput("text", [3], "BYTES")
    given.set_data_from_numpy(np.array([text.encode() for text in TEXTS], object), binary_data=binary)
    wanted = [InferRequestedOutput(name, binary_data=binary) for name in ("labels", "scores", "columns")]
    said = client.infer("texts", [given], outputs=wanted, parameters={"top_k": 2}, request_id="seven")
    top = lt.load(folders / "texts").predict_topk(TEXTS, 2)
    assert said.get_response()["id"] == "seven"
    np.testing.assert_array_equal(said.as_numpy("columns"), top.labels)
    np.testing.assert_array_equal(said.as_numpy("scores"), top.scores)
    labels = [[name.decode() if isinstance(name, bytes) else name for name in row] for row in said.as_numpy("labels")]
    assert labels == lt.load(folders / "texts").classes_[top.labels].tolist()


def test_without_wanted_outputs_all_come(client):
    from tritonclient.http import InferInput

    given = InferInput("text", [1], "BYTES")
    given.set_data_from_numpy(np.array([b"cough"], object))
    said = client.infer("texts", [given])
    assert said.as_numpy("scores").shape == (1, 4)
    assert said.as_numpy("labels")[0, 0] == b"lung"


@pytest.mark.parametrize("binary", [True, False])
def test_sparse_and_dense_rows(client, binary):
    from tritonclient.http import InferInput

    def tensor(name, kind, array):
        made = InferInput(name, list(array.shape), kind)
        made.set_data_from_numpy(array, binary_data=binary)
        return made

    dense = np.array([[0, 1, 0, 2], [0, 0, 0, 0]], np.float32)
    sparse = [
        tensor("indptr", "INT64", np.array([0, 2, 2])),
        tensor("indices", "INT32", np.array([1, 3], np.int32)),
        tensor("values", "FP32", np.array([1, 2], np.float32)),
    ]
    first = client.infer("vectors", sparse)
    second = client.infer("vectors", [tensor("dense", "FP32", dense)])
    for name in ("columns", "scores"):
        np.testing.assert_array_equal(first.as_numpy(name), second.as_numpy(name))
    assert first.as_numpy("columns")[0].tolist() == [1, 0, 2]


TEXT = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["cough"]}
CSR = [
    {"name": "indptr", "datatype": "INT64", "shape": [2], "data": [0, 1]},
    {"name": "indices", "datatype": "INT32", "shape": [1], "data": [0]},
    {"name": "values", "datatype": "FP32", "shape": [1], "data": [1.0]},
]


@pytest.mark.parametrize(
    ("model", "body", "message"),
    [
        ("texts", {}, "Object missing required field `inputs`"),
        ("texts", {"inputs": []}, "send the input text, or dense, or indptr, indices and values"),
        ("texts", {"inputs": [TEXT, TEXT]}, "the input 'text' occurs twice"),
        ("texts", {"inputs": [{**TEXT, "shape": [2]}]}, "the input 'text' has 1 values for the shape [2]"),
        ("texts", {"inputs": [{**TEXT, "shape": [-1]}]}, "the input 'text' must have one or two dimensions"),
        ("texts", {"inputs": [{**TEXT, "shape": [2**40, 2**40]}]}, "the input 'text' has 1 values for the shape"),
        ("texts", {"inputs": [{**TEXT, "data": [5]}]}, "the input 'text' must hold texts"),
        ("texts", {"inputs": [{**TEXT, "datatype": "FP16"}]}, "the input 'text' has type 'FP16'"),
        ("texts", {"inputs": [{**TEXT, "datatype": "INT32", "data": [5]}]}, "the input 'text' must have type BYTES"),
        ("texts", {"inputs": [TEXT], "parameters": {"top_k": 0}}, "the parameter top_k must be a whole number"),
        ("texts", {"inputs": [TEXT], "parameters": {"top_k": True}}, "the parameter top_k must be a whole number"),
        ("texts", {"inputs": [TEXT], "outputs": [{"name": "x"}]}, "there is no output 'x'"),
        ("texts", {"inputs": [{**TEXT, "parameters": {"binary_data_size": 5}}]}, "the input 'text' has a wrong binary"),
        ("vectors", {"inputs": [TEXT]}, "the model vectors was trained on rows of numbers"),
        ("vectors", {"inputs": [*CSR[:2], {**CSR[2], "data": [1e39]}]}, "a value is too large, or no number"),
        ("vectors", {"inputs": [CSR[0], {**CSR[1], "data": [4]}, CSR[2]]}, "index 4 is not between 0 and 3"),
        ("vectors", {"inputs": [CSR[0], {**CSR[1], "data": [2**31]}, CSR[2]]}, "the input 'indices' holds a number"),
        ("vectors", {"inputs": [{**CSR[0], "data": [0, 2]}, *CSR[1:]]}, "indptr does not span 1 rows and 1 entries"),
        ("vectors", {"inputs": [{**CSR[0], "data": [1, 1]}, *CSR[1:]]}, "indptr does not span 1 rows and 1 entries"),
        ("vectors", {"inputs": [{**CSR[0], "shape": [0], "data": []}, *CSR[1:]]}, "indptr does not span"),
        ("vectors", {"inputs": [{"name": "dense", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]},
         "the input 'dense' has shape [1, 2]; the model has 4 features"),
    ],
)  # fmt: skip
def test_bad_requests(service, model, body, message):
    answer = service.ask(f"/v2/models/{model}/infer", body)
    assert answer.status == 400
    assert answer.json["error"].startswith(message)


def test_bad_binary_tensors(service):
    for length, raw in (("9999", b"{}"), ("x", b"{}"), ("-1", b"{}")):
        answer = service.ask("/v2/models/texts/infer", raw, headers={"Inference-Header-Content-Length": length})
        assert answer.status == 400
        assert "Inference-Header-Content-Length" in answer.json["error"]
    head = b'{"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}}]}'
    for tail in (b"\xff\xff\xff\xffab", b"\x02\x00\x00\x00\xff\xfe", b"\x00\x00\x00\x00\x00\x00"):
        headers = {"Inference-Header-Content-Length": str(len(head))}
        assert service.ask("/v2/models/texts/infer", head + tail, headers=headers).status == 400
