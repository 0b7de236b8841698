"""Tables of the guides whose figures a script keeps beside them: the page has the table that the script makes."""

from __future__ import annotations

import importlib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_guide_has_the_table_of_the_figures_that_are_kept(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("calibration")
    cells = script.kept(script.GUIDES / "calibration.json")
    lines = script.method_table(cells)
    assert len(lines) == len(cells) + 2
    assert "\n".join(lines) in (ROOT / "docs" / "guides" / "probabilities.md").read_text(encoding="utf-8")
