"""The Open Inference Protocol (KServe V2), with its extension for binary tensors.

Inputs: `text` (BYTES, [n]), or `dense` (FP32 or FP64, [n, features]), or a sparse matrix in CSR form as `indptr`
(INT64, [n + 1]), `indices` (INT32 or INT64, [entries]) and `values` (FP32 or FP64, [entries]). Outputs, all [n, k]:
`labels` (BYTES), `columns` (INT32), `scores` (FP32) and, if the model has them, `probabilities` (FP32). The parameter
`top_k` sets k.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from msgspec import Struct

import longtail
from longtail.matrix import pointer_fault
from longtail.serve import rows
from longtail.serve.messages import Request, Response, encode
from longtail.serve.predictor import Answer, ServedModel
from longtail.serve.schema import Decoder, refuse_compressed
from longtail.serve.service import Service

TYPES = {"FP32": "<f4", "FP64": "<f8", "INT32": "<i4", "INT64": "<i8"}
HEADER = b"inference-header-content-length"


class Tensor(Struct):
    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class Wanted(Struct):
    name: str
    parameters: dict[str, Any] | None = None


class InferRequest(Struct):
    inputs: list[Tensor]
    id: str | None = None
    outputs: list[Wanted] | None = None
    parameters: dict[str, Any] | None = None


decode_infer = Decoder(InferRequest)


# --- facts -----------------------------------------------------------------------------------------------------------


async def server(service: Service, request: Request) -> Response:
    return Response(encode({"name": "longtail", "version": longtail.__version__, "extensions": ["binary_tensor_data"]}))


async def live(service: Service, request: Request) -> Response:
    return Response(encode({"live": True}))


async def ready(service: Service, request: Request) -> Response:
    well = not service.draining and not service.board.faults()
    return Response(encode({"ready": well}), 200 if well else 503)


async def model_ready(service: Service, request: Request) -> Response:
    return Response(encode({"name": service.model(request).name, "ready": True}))


async def model(service: Service, request: Request) -> Response:
    found = service.model(request)
    inputs = (
        [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
        if found.takes_texts
        else [
            {"name": "indptr", "datatype": "INT64", "shape": [-1]},
            {"name": "indices", "datatype": "INT32", "shape": [-1]},
            {"name": "values", "datatype": "FP32", "shape": [-1]},
        ]
    )
    outputs = {"labels": "BYTES", "columns": "INT32", "scores": "FP32"}
    outputs |= {"probabilities": "FP32"} if found.has_probabilities else {}
    return Response(
        encode(
            {
                "name": found.name,
                "versions": [found.version],
                "platform": f"longtail-{found.method}",
                "inputs": inputs,
                "outputs": [{"name": name, "datatype": kind, "shape": [-1, -1]} for name, kind in outputs.items()],
            }
        )
    )


# --- inference -------------------------------------------------------------------------------------------------------


async def infer(service: Service, request: Request) -> Response:
    found = service.model(request)
    refuse_compressed(request)
    head, raw = _parts(request)
    body: InferRequest = decode_infer(head)
    tensors = _tensors(body.inputs, raw)
    given = _rows(tensors, found, service)
    parameters = body.parameters or {}
    top_k = parameters.get("top_k", 5)
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise rows.bad("the parameter top_k must be a whole number from 1")
    answer = await service.best(request, found, given, rows.check_top_k(top_k, service.limits))
    outputs = _outputs(found, answer)
    if body.outputs:
        for wanted in body.outputs:
            if wanted.name not in outputs:
                raise rows.bad(f"there is no output {wanted.name[:80]!r}; there are {', '.join(outputs)}")
    names = [wanted.name for wanted in body.outputs] if body.outputs else list(outputs)
    binary = {wanted.name for wanted in body.outputs or () if (wanted.parameters or {}).get("binary_data") is True}
    if parameters.get("binary_data_output") is True:
        binary |= set(names)
    return _response(found, body.id, {name: outputs[name] for name in names}, binary)


def _parts(request: Request) -> tuple[bytes, bytes]:
    """Return the JSON of the body, and the binary tensors that follow it."""
    length = request.headers.get(HEADER)
    if length is None:
        return request.body, b""
    if not length.isdigit() or len(length) > 12 or int(length) > len(request.body):
        raise rows.bad("the header Inference-Header-Content-Length is no length of this body")
    return request.body[: int(length)], request.body[int(length) :]


def _tensors(inputs: list[Tensor], raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tensor in inputs:
        if tensor.name in found:
            raise rows.bad(f"the input {tensor.name[:80]!r} occurs twice")
        size = (tensor.parameters or {}).get("binary_data_size")
        if size is not None:
            if not isinstance(size, int) or not 0 <= size <= len(raw):
                raise rows.bad(f"the input {tensor.name[:80]!r} has a wrong binary_data_size")
            found[tensor.name], raw = _from_bytes(tensor, raw[:size]), raw[size:]
        else:
            found[tensor.name] = _from_json(tensor)
    if raw:
        raise rows.bad(f"{len(raw):,} bytes belong to no input")
    return found


def _count(tensor: Tensor) -> int:
    if not 1 <= len(tensor.shape) <= 2 or any(n < 0 or n > 1 << 40 for n in tensor.shape):
        raise rows.bad(f"the input {tensor.name[:80]!r} must have one or two dimensions")
    return int(np.prod([int(n) for n in tensor.shape], dtype=object))


def _from_bytes(tensor: Tensor, raw: bytes) -> Any:
    count = _count(tensor)
    if tensor.datatype == "BYTES":
        texts, at = [], 0
        while at < len(raw):
            if at + 4 > len(raw):
                raise rows.bad(f"the input {tensor.name[:80]!r} is cut off")
            (length,) = struct.unpack_from("<I", raw, at)
            texts.append(_text(raw[at + 4 : at + 4 + length]))
            at += 4 + length
        if at != len(raw) or len(texts) != count:
            raise rows.bad(f"the input {tensor.name[:80]!r} does not hold {count} texts")
        return texts
    kind = np.dtype(_type(tensor))
    if count * kind.itemsize != len(raw):
        raise rows.bad(f"the input {tensor.name[:80]!r} does not hold {count} values")
    return np.frombuffer(raw, kind).reshape(tensor.shape)


def _from_json(tensor: Tensor) -> Any:
    count = _count(tensor)
    data = tensor.data or []
    if data and isinstance(data[0], list):
        data = [value for row in data if isinstance(row, list) for value in row]
    if len(data) != count:
        raise rows.bad(f"the input {tensor.name[:80]!r} has {len(data):,} values for the shape {tensor.shape}")
    if tensor.datatype == "BYTES":
        if not all(isinstance(text, str) for text in data):
            raise rows.bad(f"the input {tensor.name[:80]!r} must hold texts")
        return data
    kind = np.dtype(_type(tensor))
    allowed = (int,) if kind.kind == "i" else (int, float)
    if not all(type(value) in allowed for value in data):
        raise rows.bad(f"the input {tensor.name[:80]!r} must hold numbers of type {tensor.datatype}")
    try:
        return np.array(data, kind).reshape(tensor.shape)
    except OverflowError:
        raise rows.bad(f"the input {tensor.name[:80]!r} holds a number that {tensor.datatype} cannot hold") from None


def _type(tensor: Tensor) -> str:
    if tensor.datatype not in TYPES:
        known = ", ".join(["BYTES", *TYPES])
        raise rows.bad(f"the input {tensor.name[:80]!r} has type {tensor.datatype[:20]!r}; known are {known}")
    return TYPES[tensor.datatype]


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise rows.bad("a text is not UTF-8") from None


def _rows(tensors: dict[str, Any], model: ServedModel, service: Service) -> Any:
    names = set(tensors)
    if names == {"text"}:
        if not isinstance(tensors["text"], list):
            raise rows.bad("the input 'text' must have type BYTES")
        return rows.texts(tensors["text"], model, service.limits, "text")
    if any(isinstance(each, list) for each in tensors.values()):
        raise rows.bad("only the input 'text' has type BYTES")
    if names == {"dense"}:
        array = tensors["dense"]
        if array.ndim != 2 or array.shape[1] != model.n_features:
            raise rows.bad(
                f"the input 'dense' has shape {list(array.shape)}; the model has {model.n_features} features"
            )
        rows.check_count(len(array), service.limits)
        return rows.dense_array(array.astype(np.float64), model, "dense")
    if names != {"indptr", "indices", "values"}:
        raise rows.bad("send the input text, or dense, or indptr, indices and values")
    indptr, indices, values = (tensors[name].ravel() for name in ("indptr", "indices", "values"))
    fault = pointer_fault(indptr, len(indptr) - 1, len(indices)) if indices.dtype.kind == "i" else "indices are floats"
    if fault or len(indices) != len(values):
        raise rows.bad(fault or f"{len(indices):,} indices have {len(values):,} values")
    rows.check_count(len(indptr) - 1, service.limits)
    if np.diff(indptr).max(initial=0) > service.limits.max_features:
        raise rows.bad(f"a row has more than {service.limits.max_features:,} features")
    return rows.matrix(values.astype(np.float64), indices, indptr, model, "indices")


def _outputs(model: ServedModel, answer: Answer) -> dict[str, np.ndarray]:
    found = {"labels": model.labels[answer.labels], "columns": answer.labels, "scores": answer.scores}
    return found if answer.probabilities is None else {**found, "probabilities": answer.probabilities}


def _response(model: ServedModel, identifier: str | None, outputs: dict[str, np.ndarray], binary: set[str]) -> Response:
    told, raw = [], []
    for name, values in outputs.items():
        kind = {"labels": "BYTES", "columns": "INT32"}.get(name, "FP32")
        entry: dict[str, Any] = {"name": name, "datatype": kind, "shape": list(values.shape)}
        if name in binary:
            raw.append(_to_bytes(values, kind))
            entry["parameters"] = {"binary_data_size": len(raw[-1])}
        elif kind == "BYTES":
            entry["data"] = [str(value) for value in values.ravel().tolist()]
        else:
            entry["data"] = values.ravel().tolist()
        told.append(entry)
    body = {"model_name": model.name, "model_version": model.version, "outputs": told}
    head = encode({**body, "id": identifier} if identifier is not None else body)
    if not raw:
        return Response(head)
    size = str(len(head)).encode()
    headers = [(b"inference-header-content-length", size)]
    return Response(b"".join([head, *raw]), content_type=b"application/octet-stream", headers=headers)


def _to_bytes(values: np.ndarray, kind: str) -> bytes:
    if kind != "BYTES":
        return np.ascontiguousarray(values, TYPES[kind]).tobytes()
    encoded = [str(value).encode("utf-8", "surrogatepass") for value in values.ravel().tolist()]
    return b"".join(struct.pack("<I", len(each)) + each for each in encoded)
