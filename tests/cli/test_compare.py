"""compare: one table for several methods and settings."""

from __future__ import annotations

import json

import longtail as lt
from longtail.cli import compare


def test_methods_side_by_side(good, files, tmp_path):
    words = ("compare", files / "train.jsonl", "--test", files / "test.jsonl")
    methods = ("--methods", "one-vs-all,one-vs-all:C=10:normalize")
    found = json.loads(good(*words, *methods, "--json", "--report", tmp_path / "page.html"))
    assert list(found["methods"]) == ["one-vs-all", "one-vs-all:C=10:normalize"]
    train = lt.read(files / "train.jsonl")
    test = lt.read(files / "test.jsonl", like=train)
    clf = lt.OneVsAll(C=10, normalize=True).fit(train)
    figures = found["methods"]["one-vs-all:C=10:normalize"]
    assert figures["P@1"] == clf.score(test)
    assert {"PSP@5", "micro-F1", "macro-F1", "cpu_seconds", "peak_bytes", "model_bytes"} <= set(figures)
    assert "one-vs-all:C=10:normalize" in (tmp_path / "page.html").read_text()


def test_a_fifth_is_held_out_without_test_data(good, files):
    out = good("compare", files / "train.txt", "--methods", "one-vs-all")
    assert "Trained on 48 rows, measured on 12." in out
    assert out.startswith("method")


def test_mistakes(run, files):
    result = run("compare", files / "train.txt", "--methods", "one-vs-all,magic")
    assert (result.exit_code, result.stderr.startswith("Error: unknown method 'magic' in --methods; known")) == (
        2,
        True,
    )
    result = run("compare", files / "train.txt", "--methods", "one-vs-all:C=-1")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "Error: training with --method one-vs-all --C -1 failed: --C must be a number above 0"
    )


def test_the_settings_of_the_papers_for_one_method_or_for_all():
    one = compare._commands("one-vs-all,mach:paper:n_buckets=8")
    assert one == {
        "one-vs-all": ["--method", "one-vs-all"],
        "mach:paper:n_buckets=8": ["--method", "mach", "--paper", "--n-buckets", "8"],
    }
    every = compare._commands("one-vs-all,mach:n_buckets=8", paper=True)
    assert list(every.values()) == [
        ["--method", "one-vs-all", "--paper"],
        ["--method", "mach", "--paper", "--n-buckets", "8"],
    ]
