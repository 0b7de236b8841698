"""train: what it makes, what it says, and what it refuses before the work begins."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import longtail as lt
from longtail import sealed
from longtail.cli import train as verb


def test_saves_the_model_and_tells_its_size(good, files, tmp_path):
    out = good("train", files / "train.jsonl", tmp_path / "model")
    clf = lt.load(tmp_path / "model")
    facts = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (facts["rows"], facts["labels"], facts["features"]) == ("60", "6", str(clf.model_.n_features))
    assert clf.classes_.tolist() == ["APPLE", "BRIDGE", "CAT", "DRUM", "ENGINE", "FOREST"]
    assert facts["training"] == "6 labels reached the tolerance"
    assert str(tmp_path / "model") in facts["model"]


def test_json_has_every_figure(good, files, tmp_path):
    result = json.loads(good("train", files / "train.txt", tmp_path / "model", "--json"))
    assert (result["rows"], result["features"], result["labels"]) == (60, 13, 6)
    assert result["weights"] == lt.load(tmp_path / "model").model_.W.nnz
    on_disk = sum(path.stat().st_size for path in (tmp_path / "model").iterdir() if path.is_file())
    assert result["model_bytes"] == on_disk
    assert {"read_seconds", "train_seconds", "save_seconds"} <= set(result)
    assert result["training"]["status"] == {"converged": 6}


def test_gives_the_same_model_as_the_library(good, files, tmp_path):
    good("train", files / "train.jsonl", tmp_path / "model", "--C", "2.5", "--start", "zero", "--max-iter", "30")
    expected = lt.OneVsAll(C=2.5, start="zero", max_iter=30).fit(lt.read(files / "train.jsonl"))
    loaded = lt.load(tmp_path / "model")
    assert (loaded.C, loaded.start, loaded.max_iter) == (2.5, "zero", 30)
    assert np.array_equal(loaded.model_.W.toarray(), expected.model_.W.toarray())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.jsonl"], True),
        (["train.jsonl", "--calibrate", "off"], False),
        (["train.jsonl", "--calibrate", "held-out"], True),
        (["train.jsonl", "--loss", "logistic"], False),
        (["train.jsonl", "--paper"], False),
        (["train.jsonl", "--run", "run"], False),
        (["train.txt"], False),
    ],
)
def test_texts_are_calibrated_by_default_where_it_is_cheap(good, files, tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    good("train", files / words[0], "model", *words[1:])
    clf = lt.load("model")
    assert (clf.model_.calibrator is not None) == expected
    assert (clf.calibrate is not False) == expected


def test_text_options_reach_the_features(good, files, tmp_path):
    words = ["--text-analyzer", "char_wb", "--text-ngram-range", "2", "3", "--no-text-use-idf", "--text-min-df", "2"]
    good("train", files / "train.jsonl", tmp_path / "model", *words)
    features = lt.load(tmp_path / "model").model_.text_features
    assert (features.analyzer, tuple(features.ngram_range), features.use_idf, features.min_df) == (
        "char_wb",
        (2, 3),
        False,
        2,
    )


def test_reading_options_reach_the_reader(good, tmp_path):
    table = tmp_path / "notes.tsv"
    table.write_text("body\ttags\nred apple\tfruit;red\nred car\tred\ngreen apple\tfruit\n")
    options = ["--text-field", "body", "--labels-field", "tags", "--label-separator", ";"]
    good("train", table, tmp_path / "model", *options)
    assert lt.load(tmp_path / "model").classes_.tolist() == ["fruit", "red"]
    (tmp_path / "names").write_text("first\nsecond\n")
    (tmp_path / "x.data").write_text("0 1:1\n1 2:1\n")
    good("train", tmp_path / "x.data", tmp_path / "m2", "--one-based", "--label-names", tmp_path / "names")
    assert lt.load(tmp_path / "m2").classes_.tolist() == ["first", "second"]
    assert lt.load(tmp_path / "m2").model_.n_features == 2


def test_standard_input(good, files, tmp_path):
    text = (files / "train.jsonl").read_text()
    good("train", "-", tmp_path / "model", "--format", "jsonl", input=text)
    assert lt.load(tmp_path / "model").model_.n_labels == 6


def test_an_existing_model_stays_unless_forced(run, good, files, tmp_path):
    good("train", files / "train.txt", tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_bytes()
    refused = run("train", files / "train.txt", tmp_path / "model", "--C", "3")
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"Error: {tmp_path / 'model'}: holds a model already; add --force to replace it, or choose another folder\n"
    )
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    good("train", files / "train.txt", tmp_path / "model", "--C", "3", "--force")
    assert lt.load(tmp_path / "model").C == 3


def test_a_bad_target_is_refused_before_the_data_is_read(run, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("x")
    for target, reason in (
        ("file", "a model is saved as a folder, but a file of this name exists; choose another name"),
        ("full", "the folder is not empty and holds no model; choose a new or empty folder for the model"),
        ("file/model", "cannot be written: Not a directory"),
    ):
        result = run("train", tmp_path / "absent.txt", tmp_path / target)
        assert (result.exit_code, result.stderr) == (1, f"Error: {tmp_path / target}: {reason}\n")


def test_a_target_that_cannot_be_written_is_refused(run, files, tmp_path, monkeypatch):
    def refuse(dir: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(verb.tempfile, "TemporaryFile", refuse)
    result = run("train", files / "train.txt", tmp_path / "model")
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {tmp_path / 'model'}: cannot be written: Permission denied\n",
    )


def test_labels_that_stop_early_are_one_warning_and_a_figure(run, tmp_path):
    draw = random.Random(1)
    rows = (f"{i % 4} " + " ".join(f"{j}:{draw.random():.3f}" for j in range(10)) for i in range(80))
    (tmp_path / "noise.txt").write_text("\n".join(rows) + "\n")
    options = ["--max-iter", "1", "--tol", "1e-9", "--C", "100", "--json"]
    result = run("train", tmp_path / "noise.txt", tmp_path / "model", *options)
    assert result.exit_code == 0
    assert sum(json.loads(result.stdout)["training"]["status"].values()) == 4
    said = result.stderr.splitlines()
    assert said[0].startswith("Warning: 4 labels stopped at max_iter before reaching the tolerance; increase max_iter")
    assert len(said) == 1


@pytest.mark.parametrize("moment", [0, 2, 3])
def test_ctrl_c_while_saving_leaves_nothing(run, files, tmp_path, monkeypatch, moment):
    write, calls = sealed.write_atomically, iter(range(99))

    def interrupted(*words):
        if next(calls) == moment:
            raise KeyboardInterrupt
        return write(*words)

    monkeypatch.setattr(sealed, "write_atomically", interrupted)
    result = run("train", files / "train.txt", tmp_path / "new" / "model")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Interrupted.\n")
    assert not (tmp_path / "new" / "model").exists()


# --- files as people have them ---------------------------------------------------------------------------------------


def test_a_european_table_is_read_and_a_wrong_column_explained(run, tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"{i};{'rot' if i % 2 else 'grün'} {i};{'A|R' if i % 2 else 'A|G'}" for i in range(8)]
    path.write_bytes("\n".join(["Nr;Titel;Tags", *rows]).encode("cp1252"))
    result = run("train", path, tmp_path / "model")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f'Error: {path}, line 1: found the columns "Nr", "Titel", "Tags" (divided at ";"), expected a column "text"; '
        'name the column of the texts with text_field (--text-field), perhaps "Titel"'
    )
    result = run("train", path, tmp_path / "model", "--text-field", "Nr,Titel", "--labels-field", "Tags", "--json")
    assert (result.exit_code, json.loads(result.stdout)["labels"]) == (0, 3)
    assert result.stderr == (
        f"Warning: {path}, line 2: is not UTF-8; read as Windows-1252 (cp1252). If letters are wrong, set encoding "
        "(--encoding)\n"
    )


def test_training_without_labels_is_an_error(run, tmp_path):
    (tmp_path / "a.csv").write_text("text,tags\na b,x\nc d,y\n")
    result = run("train", tmp_path / "a.csv", tmp_path / "model")
    assert result.exit_code == 1
    assert 'perhaps "tags"' in result.stderr
    assert "has no labels: none of its 2 rows has one, so there is nothing to learn" in result.stderr
    assert not (tmp_path / "model").exists()


def test_names_that_fit_no_label_are_an_error_unless_asked_for(run, tmp_path):
    lines = [json.dumps({"text": f"word{i % 3} more", "labels": [i % 3, "x"]}) for i in range(12)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "names.txt").write_text("x\nother\n")
    words = ("train", tmp_path / "a.jsonl", tmp_path / "model", "--label-names", tmp_path / "names.txt")
    result = run(*words)
    assert result.exit_code == 1
    assert "12 of 24 label uses are not among the 2 label names: found '0', '1', '2'" in result.stderr
    assert run(*words, "--drop-unknown").exit_code == 0


def test_help_tells_the_defaults_of_reading(good):
    out = " ".join(good("train", "--help").split())
    for default in ("text", "labels", "|"):
        assert f"[default: {default}]" in out


def test_the_settings_of_the_paper_and_options_beside_them(good, files, tmp_path):
    words = ("--method", "mach", "--paper", "--n-buckets", "3", "--n-repetitions", "6")
    good("train", files / "train.jsonl", tmp_path / "model", *words)
    clf = lt.load(tmp_path / "model")
    paper = lt.Mach.paper(n_buckets=3, n_repetitions=6)
    assert (clf.n_buckets, clf.n_repetitions, clf.aggregate, clf.prune) == (3, 6, "mean", 0.0)
    train = lt.read(files / "train.jsonl")
    np.testing.assert_array_equal(clf.predict_topk(train.X, 2).scores, paper.fit(train).predict_topk(train.X, 2).scores)


def test_a_number_or_a_word_on_the_command_line(good, files, tmp_path):
    for size, kept in (("7", 7), ("root:factor=2", "root:factor=2")):
        words = ("--method", "memoir", "--batch-size", size, "--max-iter", "1", "--force")
        good("train", files / "train.jsonl", tmp_path / "model", *words)
        assert lt.load(tmp_path / "model").batch_size == kept


def test_weights_are_saved_in_the_form_that_is_asked_for(good, run, files, tmp_path):
    data, model = files / "train.jsonl", tmp_path / "model"
    good("train", data, model, "--save-weights", "8-bit")
    assert lt.load(model).model_.form == "8-bit"
    for words, form in (([], "8-bit"), (["--save-weights", "float32"], "float32")):
        good("update", model, data, *words)
        assert lt.load(model).model_.form == form
    for words in (("train", data, tmp_path / "new"), ("update", model, data)):
        result = run(*words, "--save-weights", "tiny")
        assert result.exit_code == 2
        assert "--save-weights takes float32, half, 8-bit, but got 'tiny'" in result.stderr
