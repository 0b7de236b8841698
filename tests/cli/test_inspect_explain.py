"""inspect and explain: what is in a model, and why it says what it says."""

from __future__ import annotations

import json

import numpy as np
import pytest

import longtail as lt


def test_inspect_json(good, models):
    about = json.loads(good("inspect", models / "texts", "--json"))
    model = lt.load(models / "texts").model_
    assert (about["method"], about["parameters"]["C"]) == ("one-vs-all", 10.0)
    assert (about["labels"], about["features"], about["weights"]) == (6, model.n_features, model.W.nnz)
    assert about["weights_per_label"]["100"] == np.diff(model.W.indptr).max()
    assert about["text_pipeline"]["analyzer"] == "word"
    assert about["label_names"][0] == "APPLE"
    assert about["bytes"] == sum(path.stat().st_size for path in (models / "texts").iterdir() if path.is_file())


def test_inspect_for_people(good, models):
    out = good("inspect", models / "vectors")
    for words in ("one-vs-all", "C=10.0", "none; rows of numbers", "0, 1, 2, 3, 4, 5"):
        assert words in out


def test_inspect_label_shows_its_strongest_weights_first(good, models):
    out = good("inspect", models / "texts", "--label", "CAT", "--top", "3")
    assert out.splitlines()[4].split()[1] == "cat"
    about = json.loads(good("inspect", models / "texts", "--label", "CAT", "--top", "3", "--json"))
    weights = [abs(each["weight"]) for each in about["strongest"]]
    assert about["label"] == "CAT"
    assert len(weights) == 3
    assert weights == sorted(weights, reverse=True)


def test_inspect_label_by_number_where_labels_have_no_names(good, models):
    about = json.loads(good("inspect", models / "vectors", "--label", "2", "--json"))
    assert about["label"] == 2
    assert about["strongest"][0]["feature"] == "feature 2"


def test_explain_adds_up_to_the_score_of_the_best_label(good, models):
    about = json.loads(good("explain", models / "texts", "--text", "cat two", "--json"))
    assert about["label"] == "CAT"
    assert about["contributions"][0]["feature"] == "cat"
    total = about["bias"] + sum(part["contribution"] for part in about["contributions"])
    assert total == pytest.approx(about["score"], abs=1e-5)


def test_explain_for_people_sums_up_what_it_does_not_show(good, models):
    lines = good("explain", models / "texts", "--text", "cat drum two", "--label", "DRUM", "--top", "1").splitlines()
    assert lines[0].startswith("Label DRUM has the score +")
    assert lines[4].split()[-1] == "drum"
    assert "more features)" in lines[5]
    assert lines[6].endswith("(bias)")
    shares = [float(line.split()[0]) for line in lines[4:]]
    assert sum(shares) == pytest.approx(float(lines[0].split()[-1]), abs=2e-3)


def test_explain_a_row_of_a_file(good, files, models):
    about = json.loads(good("explain", models / "vectors", "--data", files / "test.txt", "--row", "1", "--json"))
    assert about["contributions"][0]["feature"] == f"feature {about['label']}"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "Error: explain needs either --text or --data; see longtail explain --help\n"),
        (
            ["--text", "x", "--label", "CATS"],
            1,
            "Error: there is no label 'CATS' among the 6 of the model; did you mean 'CAT'?\n",
        ),
    ],
)
def test_wrong_explain(run, models, words, code, message):
    result = run("explain", models / "texts", *words)
    assert (result.exit_code, result.stderr) == (code, message)


def test_a_row_or_label_that_is_not_there(run, files, models):
    data = files / "test.txt"
    result = run("explain", models / "vectors", "--data", data, "--row", "99")
    assert (result.exit_code, result.stderr) == (1, f"Error: {data} has the rows 0 to 17, but row 99 was asked for\n")
    result = run("inspect", models / "vectors", "--label", "sixty")
    assert result.stderr == "Error: there is no label 'sixty'; the 6 labels of the model are numbers\n"


def test_names_cannot_steer_the_terminal(good, tmp_path):
    name = "\x1b[31m[bold]evil[/bold]"
    data = tmp_path / "odd.jsonl"
    data.write_text("".join(json.dumps({"text": f"w{i} evil", "labels": [name, str(i)]}) + "\n" for i in range(3)))
    good("train", data, tmp_path / "model")
    for words in (["inspect"], ["inspect", "--label", name], ["explain", "--text", "evil", "--label", name]):
        out = good(words[0], tmp_path / "model", *words[1:])
        assert "\x1b" not in out
        assert "[31m[bold]evil[/bold]" in out


def test_explain_takes_whole_number_names_as_names(good, tmp_path):
    """Classes 1, 2, 3 are in the columns 0, 1, 2: a column must not be taken for a name on the way."""
    lt.OneVsAll(C=10).fit(np.eye(3), [1, 2, 3]).save(tmp_path / "m")
    (tmp_path / "q.txt").write_text("1 3 3\n0 1:1\n")  # the row of class 2
    for words in ([], ["--label", "2"]):
        told = json.loads(good("explain", tmp_path / "m", "--data", tmp_path / "q.txt", *words, "--json"))
        assert told["label"] == 2
        assert told["score"] > 0


def test_evaluate_with_fewer_labels_than_five(good, tmp_path):
    lt.OneVsAll(C=10).fit(np.eye(3), [0, 1, 2]).save(tmp_path / "m")
    (tmp_path / "q.txt").write_text("1 3 3\n1 1:1\n")
    overall = json.loads(good("evaluate", tmp_path / "m", tmp_path / "q.txt", "--json"))["overall"]
    assert overall["P@1"] == 1.0
    assert "P@5" not in overall


def test_inspect_shows_what_the_oracle_of_memoir_was_seen_to_find(good, files, tmp_path):
    words = ["--method", "memoir", "--oracle", "simple-lsh", "--n-groups", "1", "--max-iter", "3"]
    good("train", files / "train.txt", tmp_path / "model", *words)
    about = json.loads(good("inspect", tmp_path / "model", "--json"))
    record = about["training"]
    assert (about["method"], record["status"]) == ("memoir", {"completed": 1})
    assert record["recall"] == lt.load(tmp_path / "model").training_.recall.tolist()
    out = good("inspect", tmp_path / "model")
    for part in ("1 model completed all passes", "recall", "epsilon", "oracle=simple-lsh"):
        assert part in out
    for verb in ("predict", "evaluate"):
        good(verb, tmp_path / "model", files / "test.txt")
    assert "has the score +" in good("explain", tmp_path / "model", "--data", files / "test.txt", "--row", "1")
