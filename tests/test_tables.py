"""Tables of the guides whose figures a script keeps beside them: the page has the table that the script makes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("figures", "table", "page"),
    [("calibration.json", "method_table", "probabilities.md"), ("tuning.json", "tuning_table", "tuning.md")],
)
def test_the_guide_has_the_table_of_the_figures_that_are_kept(figures, table, page, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("calibration")
    cells = script.kept(script.GUIDES / figures)
    lines = getattr(script, table)(cells)
    assert len(lines) == len(cells) + 2
    assert "\n".join(lines) in (script.GUIDES / page).read_text(encoding="utf-8")
