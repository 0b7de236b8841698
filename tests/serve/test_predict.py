"""The service's own protocol, against the same model in this process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail import store

TEXTS = ["dry cough and itching", "fracture of the wrist", "", "chest pressure, blood and ankle"]


@pytest.fixture(scope="module")
def clf(folders):
    return lt.load(folders / "texts")


def test_predictions_are_those_of_the_model(service, clf, folders):
    said = service.predict(TEXTS, top_k=3)
    top = clf.predict_topk(TEXTS, 3)
    assert said["version"] == store.model_id(folders / "texts")
    assert [each["labels"] for each in said["predictions"]] == clf.classes_[top.labels].tolist()
    assert [each["scores"] for each in said["predictions"]] == top.scores.astype(float).round(6).tolist()


def test_one_text_need_not_be_in_a_list(service):
    assert service.predict("dry cough") == service.predict(["dry cough"])


def test_sparse_and_dense_rows_are_the_same(service):
    row = [0.5, 0, -1.0, 0.25]
    sparse = {"indices": [3, 0, 2], "values": [0.25, 0.5, -1.0]}  # in any order
    answers = [service.ask("/v1/models/vectors/predict", body).json for body in ({"dense": [row]}, {"rows": [sparse]})]
    assert answers[0] == answers[1]
    assert answers[0]["predictions"][0]["labels"] == [0, 1, 2]
    W = np.array([[1, 0, 0, 0.5], [0, 2, 0, 0], [0, 0, 3, -1]])
    assert answers[0]["predictions"][0]["scores"] == pytest.approx(W @ row)


def test_top_k_may_be_more_than_there_are_labels(service):
    assert len(service.predict("cough", top_k=1000)["predictions"][0]["labels"]) == 4


def test_threshold_leaves_out_lower_scores(service):
    everything = service.predict(TEXTS, top_k=4)["predictions"]
    some = service.predict(TEXTS, top_k=4, threshold=0.2)["predictions"]
    for whole, part in zip(everything, some, strict=True):
        assert part["scores"] == [score for score in whole["scores"] if score >= 0.2]
        assert part["labels"] == whole["labels"][: len(part["labels"])]


def test_allow_and_deny(service):
    everything = service.predict(TEXTS, top_k=4)["predictions"]
    for name, wanted in (("allow", {"skin", "heart"}), ("deny", {"lung", "bone"})):
        found = service.predict(TEXTS, top_k=2, **{name: sorted(wanted)})["predictions"]
        kept = wanted if name == "allow" else {"bone", "heart", "lung", "skin"} - wanted
        for whole, part in zip(everything, found, strict=True):
            expected = [pair for pair in zip(whole["labels"], whole["scores"], strict=True) if pair[0] in kept]
            assert list(zip(part["labels"], part["scores"], strict=True)) == expected
    both = service.predict(TEXTS, allow=["skin", "heart"], deny=["skin"])["predictions"]
    assert all(each["labels"] == ["heart"] for each in both)


def test_details_come_from_the_card(service):
    found = service.predict("cough", top_k=2, details=True)["predictions"][0]
    assert found["labels"][0] == "lung"
    assert found["titles"][0] == "Lung and breathing"
    assert found["bands"][0] == "torso"
    plain = service.predict("cough", "other", details=True)["predictions"][0]
    assert "titles" not in plain
    assert "bands" not in plain


def test_explanations_name_the_words_and_their_places(service, clf):
    text = "Ein Üben: COUGH, chest—cough"
    said = service.ask("/v1/models/texts/explain", {"text": text, "label": "lung"}).json
    truth = clf.explain(text, "lung")
    shares = said["explanation"]["contributions"]
    assert [each["feature"] for each in shares] == [each.feature for each in truth.contributions]
    assert [each["contribution"] for each in shares] == pytest.approx([c.contribution for c in truth.contributions])
    assert said["explanation"]["score"] == pytest.approx(truth.score, abs=1e-6)
    for share in shares:
        assert {text[start:end].lower() for start, end in share["spans"]} == {share["feature"]}
    assert sum(len(share["spans"]) for share in shares) == 3
    assert {word for word, _ in said["strongest"]} == {"cough", "breath", "asthma", "chest"}


def test_the_best_label_is_explained_if_none_is_named(service):
    assert service.ask("/v1/models/texts/explain", {"text": "rash"}).json["explanation"]["label"] == "skin"


def test_explain_within_predict(service):
    found = service.predict("chest pressure", top_k=2, explain=True)["predictions"][0]
    assert [each["label"] for each in found["explanations"]] == found["labels"]
    assert [each["score"] for each in found["explanations"]] == pytest.approx(found["scores"], abs=1e-5)


def test_models_are_described(service, folders):
    names = [each["name"] for each in service.ask("/v1/models").json["models"]]
    assert names == ["texts", "other", "vectors"]
    about = service.ask("/v1/models/texts").json
    assert (about["labels"], about["texts"], about["examples"][0]) == (4, True, "fracture of the left wrist")
    assert about["bands"] == {"head": 2, "torso": 1, "tail": 1}
    assert about["metrics"]["overall"]["P@1"] == 0.9
    assert service.ask("/v1/models/vectors").json["metrics"] is None


def test_labels_are_found_by_name_title_and_band(service):
    def found(query):
        return [each["label"] for each in service.ask(f"/v1/models/texts/labels?{query}").json["labels"]]

    assert found("") == ["bone", "heart", "lung", "skin"]
    assert found("q=AND") == ["bone", "heart", "lung"]
    assert found("q=circulation") == ["heart"]
    assert found("q=nothing") == []
    assert found("band=tail") == ["skin"]
    assert found("sort=name&offset=1&limit=2") == ["heart", "lung"]
    assert found("sort=quality")[-1] == "skin"
    one = service.ask("/v1/models/texts/labels?label=skin").json
    assert (one["frequency"], one["band"], one["quality"]) == (3, "tail", None)
    assert one["strongest"][0][0] == "arm"


def test_requests_that_arrive_together_are_scored_together(service):
    def value(name):
        time.sleep(0.6)  # workers write these counts several times a second
        lines = service.ask("/metrics").body.decode().splitlines()
        return float(next(line for line in lines if line.startswith(name)).split()[-1])

    before = value("longtail_batches_total"), value("longtail_batched_rows_total")
    answers: list[dict] = []

    def client(i):
        for j in range(20):
            text = f"{TEXTS[(i + j) % 4]} {'cough ' * (i % 3)}"
            answers.append((text, service.predict(text, top_k=4)["predictions"][0]))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 320
    alone = {text: service.predict(text, top_k=4)["predictions"][0] for text in {text for text, _ in answers}}
    for text, answer in answers:
        assert answer["labels"] == alone[text]["labels"]
        assert answer["scores"] == pytest.approx(alone[text]["scores"], abs=1e-6)
    batches, rows = value("longtail_batches_total") - before[0], value("longtail_batched_rows_total") - before[1]
    assert rows == 320 + len(alone)
    assert batches <= rows


def test_many_rows_in_one_request(service, clf):
    texts = [f"{word} number {i}" for i in range(60) for word in ("cough", "rash", "rib")] * 5
    said = service.predict(texts, top_k=2)
    assert [each["labels"] for each in said["predictions"]] == clf.classes_[clf.predict_topk(texts, 2).labels].tolist()


def test_a_stream_of_rows(service, clf):
    lines = [{"text": f"cough and rash {i}", "id": i} for i in range(1500)]
    lines[700] = {"text": 5}
    lines[701] = {"wrong": 1, "id": 701}
    raw = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n\n"
    answer = service.ask(
        "/v1/models/texts/predict?top_k=2&threshold=-9", raw, headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.headers["content-type"] == "application/x-ndjson"
    said = [json.loads(line) for line in answer.body.splitlines()]
    assert len(said) == 1500
    assert said[700] == {
        "error": {"code": "bad_request", "message": "Expected `str | null`, got `int`", "field": "$.text"}
    }
    assert said[701]["error"]["message"] == "Object contains unknown field `wrong`"
    top = clf.predict_topk([lines[i]["text"] for i in (0, 1499)], 2)
    assert [said[i] for i in (0, 1499)] == [
        {"id": i, "labels": clf.classes_[labels].tolist(), "scores": scores.astype(float).round(6).tolist()}
        for i, labels, scores in zip((0, 1499), top.labels, top.scores, strict=True)
    ]


def test_a_stream_of_sparse_rows(service):
    raw = b'{"indices": [1], "values": [1.0]}\n{"indices": [7], "values": [1.0]}'
    answer = service.ask("/v1/models/vectors/predict?top_k=1", raw, headers={"Content-Type": "application/x-ndjson"})
    said = [json.loads(line) for line in answer.body.splitlines()]
    assert said[0] == {"labels": [1], "scores": [2.0]}
    assert said[1]["error"]["message"] == "index 7 is not between 0 and 3"


def test_a_stream_is_answered_while_it_is_sent(service):
    with service.wire() as wire:
        wire.send(
            b"POST /v1/models/texts/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        line = b'{"text": "cough"}\n'
        for _ in range(3):
            wire.send(b"%x\r\n%b\r\n" % (len(line), line))
            if not wire.file.peek(1).startswith(b"HTTP"):
                size = int(wire.file.readline(), 16)
            else:
                while wire.file.readline() != b"\r\n":
                    pass
                size = int(wire.file.readline(), 16)
            assert json.loads(wire.file.read(size))["labels"][0] == "lung"
            wire.file.readline()
        wire.send(b"0\r\n\r\n")
        assert wire.file.readline() == b"0\r\n"


def test_every_example_of_the_documentation_runs(service):
    paths = service.ask("/openapi.json").json["paths"]
    ran = 0
    for path, methods in paths.items():
        for method, about in methods.items():
            for model in ("texts",) if "{name}" in path else ("",):
                address = path.replace("{name}", model)
                content = about.get("requestBody", {}).get("content", {})
                if not content:
                    assert service.ask(address).status == 200, address
                    ran += 1
                for media, body in content.items():
                    values = [each["value"] for each in body.get("examples", {}).values()] or [body["example"]]
                    for value in values:
                        raw = value.encode() if isinstance(value, str) else json.dumps(value).encode()
                        if media == "application/x-www-form-urlencoded":
                            raw = "&".join(f"{k}={v}".replace(" ", "+") for k, v in value.items()).encode()
                        answer = service.ask(address, raw, method=method.upper(), headers={"Content-Type": media})
                        assert answer.status == 200, (address, answer.body)
                        ran += 1
    assert ran >= 15


def test_metrics_count(service):
    before = service.ask("/metrics").body.decode()
    service.predict(TEXTS)
    service.ask("/v1/models/nobody")

    def value(text, name):
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    missing = 'longtail_requests_total{route="none",status="404"}'
    deadline = time.monotonic() + 10
    while True:  # a request is counted just after its answer was sent, and another worker may answer the next request
        after = service.ask("/metrics").body.decode()
        if value(after, missing) > value(before, missing) or time.monotonic() > deadline:
            break
    assert value(after, missing) > value(before, missing)
    assert value(after, 'longtail_rows_total{model="texts"}') - value(before, 'longtail_rows_total{model="texts"}') == 4
    assert value(after, "longtail_workers ") == 2
    assert value(after, "longtail_ready ") == 1
    assert 'longtail_model_info{method="one-vs-all",model="texts",version="' in after
    assert value(after, "longtail_worker_resident_bytes") > 1e7


def test_annif_form(service):
    answer = service.ask("/v1/models/texts/predict", {"texts": ["cough"], "top_k": 1, "format": "annif"}).json
    ((found,),) = [row["results"] for row in answer]
    assert found == {"uri": "lung", "label": "Lung and breathing", "notation": "lung", "score": found["score"]}
    assert 0 < found["score"] < 1


def test_annif_routes(service):
    assert [each["project_id"] for each in service.ask("/v1/projects").json["projects"]] == [
        "texts",
        "other",
        "vectors",
    ]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    said = service.ask("/v1/projects/texts/suggest", b"text=cough+breath+rash&limit=2", headers=form).json
    assert [each["uri"] for each in said["results"]] == ["lung", "skin"]
    documents = {"documents": [{"document_id": "a", "text": "rash"}, {"text": "rib"}]}
    said = service.ask("/v1/projects/texts/suggest-batch?limit=1", documents).json
    assert [(row["document_id"], row["results"][0]["uri"]) for row in said] == [("a", "skin"), (None, "bone")]
    assert service.ask("/v1/projects/texts/suggest", b"limit=2", headers=form).status == 400


def test_a_matrix_of_a_request_is_canonical(folders):
    from longtail.serve.predictor import ServedModel
    from longtail.serve.rows import matrix

    model = ServedModel.load("vectors", folders / "vectors")
    X = matrix(np.array([1.0, 2.0, 3.0]), np.array([3, 1, 0]), np.array([0, 2, 3]), model, "rows")
    assert sp.issparse(X)
    assert X.toarray().tolist() == [[0, 2, 0, 1], [3, 0, 0, 0]]
    assert X.indices.tolist() == [1, 3, 0]


USES_A_MODEL = """
import sys

import longtail.serve.master
from longtail.serve.predictor import ServedModel

for folder in sys.argv[1:]:
    ServedModel.load("model", folder)
print([name for name in ("sklearn", "pandas", "matplotlib", "scipy.stats", "rich") if name in sys.modules])
"""


def test_a_model_is_served_without_heavy_imports(folders):
    words = [sys.executable, "-c", USES_A_MODEL, str(folders / "texts"), str(folders / "vectors")]
    assert subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip() == "[]"
