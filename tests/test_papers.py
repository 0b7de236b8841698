"""The scripts of benchmarks/papers: a quick run of each, rows that are kept, and pages that are up to date."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

import longtail as lt
from benchmarks.papers import common, memoir_bounds, one_vs_all_figures, tree_bounds
from benchmarks.papers.common import Bench, Experiment, Paper
from tests.methods.one_vs_all import reference
from tests.methods.one_vs_all.problems import random_problem

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(
    path.stem
    for path in (ROOT / "benchmarks" / "papers").glob("*.py")
    if "main(PAPER)" in path.read_text(encoding="utf-8")
)
PAGES = ROOT / "docs" / "papers"


def paper_of(script: str) -> Paper:
    return importlib.import_module(f"benchmarks.papers.{script}").PAPER


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_quick_run_writes_every_table_and_figure(script, tmp_path, capsys):
    paper = paper_of(script)
    common.main(paper, ["--quick", "--output", str(tmp_path)])
    page = (tmp_path / f"{script}.md").read_text(encoding="utf-8")
    for experiment in paper.experiments:
        kept = json.loads(experiment.file(tmp_path / script).read_text())
        assert kept["finished"]
        assert kept["rows"]
        assert (f"## {experiment.title}\n" in page) is (experiment.show is not None)
    assert "Not measured yet" not in page
    for figure in (tmp_path / script).glob("*.svg"):
        assert f"]({script}/{figure.name})" in page
    assert page.count("| --- |") >= len(paper.experiments) // 2
    capsys.readouterr()
    common.main(paper, ["--quick", "--output", str(tmp_path)])
    assert capsys.readouterr().err == ""  # nothing is measured twice
    assert (tmp_path / f"{script}.md").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_page_in_the_documentation_is_that_of_the_kept_rows(script, tmp_path):
    """Who changes a sentence or measures a row again also writes the page: run the script."""
    shown = (PAGES / f"{script}.md").read_text(encoding="utf-8")
    for file in (PAGES / script).glob("*.json"):
        (tmp_path / script).mkdir(exist_ok=True)
        (tmp_path / script / file.name).write_bytes(file.read_bytes())
    assert common.page(paper_of(script), tmp_path) == shown
    for figure in (tmp_path / script).glob("*.svg"):
        assert (PAGES / script / figure.name).exists()
    assert not json.loads(file.read_text())["quick"]


def test_make_papers_runs_every_script():
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("PAPERS")]
    assert set(SCRIPTS) <= set(line.split(":=")[1].split())


# --- what the scripts share ------------------------------------------------------------------------------------------


def toy(measured: list[str], stop: str = "") -> Paper:
    def measure(bench: Bench) -> None:
        for key in ("a", "b"):
            if key == stop:
                raise KeyboardInterrupt
            bench.row(key, lambda key=key: measured.append(key) or {"value": np.float64(1.5)})

    def show(rows: common.Rows, folder: Path) -> str:
        return common.table(["key", "value"], [[key, row["value"]] for key, row in rows.items()])

    experiments = (Experiment("table-1", "Table 1", measure, show), Experiment("figure-2", "Figure 2", measure, show))
    return Paper("toy", "A toy", "About it.", experiments)


def test_a_run_goes_on_after_its_last_row_and_skips_what_is_finished(tmp_path):
    measured: list[str] = []
    words = ["--quick", "--output", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        common.main(toy(measured, stop="b"), words)
    assert measured == ["a"]
    common.main(toy(measured), [*words, "--tables", "1"])
    assert measured == ["a", "b"]
    page = (tmp_path / "toy.md").read_text()
    assert "## Table 1\n\n| key | value |\n| --- | --- |\n| a | 1.5 |\n| b | 1.5 |\n" in page
    assert page.endswith("\n\n## Not measured yet\n\n- Figure 2\n")
    common.main(toy(measured), [*words, "--tables", "1,figure-2"])
    assert measured == ["a", "b", "a", "b"]
    common.main(toy(measured), [*words, "--tables", "figure-2", "--force"])
    assert measured == ["a", "b"] * 3
    with pytest.raises(SystemExit, match="table-9 is unknown"):
        common.main(toy(measured), [*words, "--tables", "9"])


def test_rows_of_an_experiment_that_is_not_finished_are_counted_not_shown(tmp_path):
    words = ["--quick", "--output", str(tmp_path), "--tables", "1"]
    with pytest.raises(KeyboardInterrupt):
        common.main(toy([], stop="b"), words)
    assert not list(tmp_path.glob("toy/*.part"))
    assert common.page(toy([]), tmp_path).endswith(
        "\n\n## Not measured yet\n\n- Table 1 (1 rows are kept)\n- Figure 2\n"
    )


def test_cheap_experiments_come_first_and_the_page_is_written_after_each(tmp_path):
    pages: list[str] = []
    page = tmp_path / "toy.md"

    def measure(bench: Bench) -> None:
        pages.append(page.read_text() if page.exists() else "")
        bench.row("a", dict)

    experiments = [
        Experiment(f"table-{number}", f"Table {number}", measure, lambda rows, folder: "shown", minutes=minutes)
        for number, minutes in ((1, 30.0), (2, 0.5), (3, 5.0))
    ]
    common.main(Paper("toy", "A toy", "About it.", experiments), ["--quick", "--output", str(tmp_path)])
    assert [text.count("shown") for text in pages] == [0, 1, 2]
    assert "## Table 2" in pages[1]
    assert "- Table 1" in pages[2]
    assert page.read_text().index("## Table 1") < page.read_text().index("## Table 2")  # in the order of the paper


def test_a_sample_of_labels_is_measured_again_with_full(tmp_path):
    asked: list[int | None] = []

    def measure(bench: Bench) -> None:
        bench.row("whole", lambda: asked.append(-1) or {})
        bench.row("part", lambda: asked.append(bench.sample(5)) or {"sampled": bench.sample(5) is not None})

    paper = Paper("toy", "A toy", "About it.", (Experiment("table-1", "Table 1", measure, lambda rows, folder: ""),))
    words = ["--output", str(tmp_path)]
    for more in ([], [], ["--full"], ["--full"], []):
        common.main(paper, [*words, *more])
    assert asked == [-1, 5, None]
    assert list(common.rows_in(tmp_path / "toy" / "table-1.json")) == ["whole", "part"]


def test_real_data_must_be_named(tmp_path, monkeypatch):
    monkeypatch.delenv("LONGTAIL_DATA", raising=False)
    with pytest.raises(SystemExit, match="pass --data FOLDER, or set the environment variable LONGTAIL_DATA"):
        Bench(tmp_path / "table-1.json", None, quick=False).data("bibtex")


def test_several_seeds_become_a_mean_and_a_range():
    assert common.spread([41.0, 42.0, 41.8]) == "41.6 (41.0 to 42.0)"
    assert common.spread([41.0]) == "41.0"
    assert common.of_seeds([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]) == {"a": [1, 2], "b": "x"}


def test_tables_on_several_data_sets_are_gathered_when_they_are_finished(tmp_path):
    for name, finished in (("table-1", True), ("table-1-more", True), ("table-1-half", False), ("table-2", True)):
        Bench(tmp_path / f"{name}.json", None, quick=True).row(name, lambda name=name: {"of": name})
        bench = Bench(tmp_path / f"{name}.json", None, quick=True)
        bench.keep(finished=finished)
    assert common.gathered(tmp_path, "table-1") == {name: {"of": name} for name in ("table-1-more", "table-1")}


# --- the bounds of OvA-Primal++ --------------------------------------------------------------------------------------


def test_the_bounds_of_ova_primal_plus_plus_by_hand():
    assert tree_bounds.lemma_3_1(np.array([3]), 0.5, 2.0, np.array([1.5])) == pytest.approx(
        4 * 3 * 0.5 * 2 * (1 + 3) * 3
    )
    mean, bound = tree_bounds.theorem_3_2(np.array([1.0, 4.0]), 0.5)
    assert mean == pytest.approx((math.log(2) + math.log(8)) / 2)
    assert mean <= bound == pytest.approx(math.log(2.5 / 0.5))
    assert tree_bounds.theorem_3_3(np.array([2, 0, 3]), 5) == 5 + (4 + 9) / 2


def test_lemma_3_1_holds_for_exact_solutions():
    """With the solutions of any two labels, B as it is, and the constants of tree_bounds.py."""
    X, Y = random_problem(3, n=40, d=15)
    solved = lt.OneVsAll(solver="newton", tol=1e-8, prune=0.0).fit(X, Y).model_.W.toarray()
    A = reference.augmented(X, 1.0)
    R = np.linalg.norm(A, axis=1).max()
    signs = np.where(Y.toarray() > 0, 1.0, -1.0)
    for p in range(7):
        for q in range(7):
            at = [reference.objective("squared_hinge", A, signs[:, q], 1.0, solved[each]) for each in (p, q)]
            B = np.linalg.norm(solved[[p, q]], axis=1).max()
            hamming = np.count_nonzero(signs[:, p] != signs[:, q])
            assert at[0] - at[1] <= tree_bounds.lemma_3_1(np.array(hamming), 1.0, R, np.array(B)) + 1e-4


def test_the_error_of_the_quadratic_model():
    """Figure 2 of DiSMEC++: exact while the margin stays below 1, too high beyond it, and blind to it from above."""
    delta = np.array([-1.0, 0.0, 0.5, 1.0, 2.0])
    np.testing.assert_allclose(one_vs_all_figures.model_error(0.0, delta), [0, 0, 0, 0, 1])
    np.testing.assert_allclose(one_vs_all_figures.model_error(1.0, delta), [0, 0, 0.25, 1, 4])
    np.testing.assert_allclose(one_vs_all_figures.model_error(1.5, delta), [-0.25, 0, 0, 0, 0])


# --- the bounds of MEMOIR --------------------------------------------------------------------------------------------


def test_the_bounds_of_memoir_by_hand():
    margins = np.array([2.0, 0.5, -1.0])
    assert memoir_bounds.hinge_risk(margins, 1.0) == pytest.approx((0 + 0.5 + 2) / 3)
    found = memoir_bounds.theorem_1(margins, 1.0, 1.0, C=5, R=2.0, omega=3.0, delta=0.1)
    risk = (0 + 0.75 + 1.5) / 3  # with rho (1 + epsilon) = 2
    assert found == pytest.approx(risk + 20 * 6 / math.sqrt(3) + 3 * math.sqrt(math.log(40) / 6))
    gap = memoir_bounds.theorem_2(0.25, 100, 0.1, 0.2, 0.05)
    noise = 0.8 * 0.1 * 0.5 + 0.2 + math.sqrt(math.log(20) / 100)
    assert gap == pytest.approx((0.5 + 2 + 0.1) * (1 + math.log(100)) / 50 + 2 * noise)
    assert memoir_bounds.theorem_3(np.array([0.5, 0.25]), 2.0, 3.0, 0.1) == pytest.approx(
        [4 / (2 * 2 * 0.25), 4.5 * 0.75, 6 * 2 * 0.1 * 0.75]
    )
    assert memoir_bounds.lsh_exponent(0.5, 0.5) == pytest.approx(
        math.log(1 - 1 / 3) / math.log(1 - math.acos(0.25) / math.pi)
    )
    assert memoir_bounds.n_tables(0.5, 3, 0.1) == pytest.approx(math.log(0.1) / math.log(7 / 8))


def test_the_inequality_in_the_proof_of_theorem_1_fails_and_its_correction_holds():
    """m' is too large by epsilon rho: R_rho(m) <= R_{rho (1 + epsilon)}(m') is wrong at m' = 0."""
    rng = np.random.default_rng(0)
    for epsilon in (0.1, 0.5, 2.0):
        inexact = rng.normal(size=200)
        exact = inexact - epsilon * rng.random(200)
        assert memoir_bounds.hinge_risk(exact, 1.0) <= memoir_bounds.corrected_risk(inexact, 1.0, epsilon)
    assert memoir_bounds.hinge_risk(np.array([-0.5]), 1.0) > memoir_bounds.hinge_risk(np.array([0.0]), 1.5)
