"""The two plots of a report, drawn as SVG.

They consist of a frame, a curve and some bars, which takes less code than the settings of a plotting library. The plots
follow the light or dark colours of the page, are sharp at any size, and need no optional package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from longtail.metrics.evaluation import BANDS, Evaluation, band_meanings, split_bands
from longtail.metrics.table import show
from longtail.report.page import safe

WIDTH = 560
# the frame that the axes span
LEFT = 56
RIGHT = 546
TOP = 18
BOTTOM = 268


def figure(title: str, drawing: Sequence[str], height: int, legend: Sequence[tuple[str, str]]) -> str:
    """A drawing and its legend of (band, text) lines; each band has its own colour."""
    items = "".join(f'<li><i class="{band}"></i><span><b>{band}</b> {safe(text)}</span></li>' for band, text in legend)
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{safe(title)}">{"".join(drawing)}</svg>'
    return f"<figure>{svg}<figcaption><h3>{safe(title)}</h3><ul>{items}</ul></figcaption></figure>"


def draw_text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{safe(text)}</text>'


def grid(y: float, text: str) -> list[str]:
    return [f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>', draw_text(LEFT - 8, y + 5, text, "end")]


def _short(number: int) -> str:
    for unit, sign in ((10**6, "M"), (10**3, "k")):
        if number >= unit:
            return f"{number // unit}{sign}"
    return str(number)


def _labels(number: float) -> str:
    return "1 label" if number == 1 else f"{number:,} labels"


@dataclass(frozen=True)
class FrequencyCurve:
    """The number of training rows of each label, from the most frequent to the rarest; both axes are logarithmic."""

    counts: np.ndarray
    edges: tuple[int, int] = BANDS

    def _legend(self) -> list[tuple[str, str]]:
        counts, meanings = np.asarray(self.counts), band_meanings(self.edges)
        total = max(int(counts.sum()), 1)
        lines = []
        for band, members in split_bands(counts, self.edges).items():
            share = f"{counts[members].sum() / total:.0%}"
            lines.append(
                (band, f"{_labels(int(np.count_nonzero(members)))}, {meanings[band]} rows each, {share} of all uses")
            )
        return lines

    def __str__(self) -> str:
        return "\n".join(f"{band:<5}  {text}" for band, text in self._legend())

    def html(self) -> str:
        falling = np.sort(np.asarray(self.counts))[::-1]
        falling = falling[falling > 0]  # labels without rows have no place on a logarithmic axis
        return figure("Training rows per label", self._drawing(falling), BOTTOM + 46, self._legend())

    def _drawing(self, falling: np.ndarray) -> list[str]:
        x_max = math.log10(max(falling.size, 10))
        y_max = math.log10(max(falling.max(initial=0), 10))
        to_x, to_y = (RIGHT - LEFT) / x_max, (BOTTOM - TOP) / y_max
        parts = []
        for decade in range(int(y_max) + 1):
            parts += grid(BOTTOM - decade * to_y, _short(10**decade))
        parts += [draw_text(LEFT + d * to_x, BOTTOM + 20, _short(10**d), "middle") for d in range(int(x_max) + 1)]
        parts.append(draw_text((LEFT + RIGHT) / 2, BOTTOM + 42, "label, by rank", "middle"))
        start = 0
        for band, members in split_bands(falling, self.edges).items():
            end = start + int(np.count_nonzero(members))
            if end > start:
                last = min(end, falling.size - 1)  # up to the first label of the next band, so that there is no gap
                at = np.unique(np.geomspace(start + 1, last + 1, 80).round().astype(np.int64)) - 1
                xs, ys = LEFT + np.log10(at + 1) * to_x, BOTTOM - np.log10(falling[at]) * to_y
                line = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))
                parts.append(f'<path class="area {band}" d="M{xs[0]:.1f} {BOTTOM}L{line}L{xs[-1]:.1f} {BOTTOM}Z"/>')
                parts.append(f'<path class="line {band}" d="M{line}"/>')
            start = end
        return parts


@dataclass(frozen=True)
class BandBars:
    """Some metrics of an evaluation side by side: overall, head, torso and tail."""

    evaluation: Evaluation
    metrics: Sequence[str] = ("P@1", "P@3", "P@5")
    title: str = "Score by label frequency"

    def _columns(self) -> dict[str, Mapping[str, float]]:
        return {"overall": self.evaluation.overall, **self.evaluation.bands}

    def __str__(self) -> str:
        lines = []
        for metric in self.metrics:
            for band, values in self._columns().items():
                value = values[metric]
                bar = "" if math.isnan(value) else "█" * round(40 * value)
                lines.append(f"{metric:<9} {band:<8} {show(100 * value):>6}  {bar}".rstrip())
        return "\n".join(lines)

    def html(self) -> str:
        parts = []
        for percent in range(0, 101, 20):
            parts += grid(BOTTOM - (BOTTOM - TOP) * percent / 100, f"{percent}%")
        columns = self._columns()
        group = (RIGHT - LEFT) / max(len(self.metrics), 1)
        width = min(0.82 * group / len(columns), 44)
        for g, metric in enumerate(self.metrics):
            middle = LEFT + (g + 0.5) * group
            parts.append(draw_text(middle, BOTTOM + 24, metric, "middle"))
            for b, (band, values) in enumerate(columns.items()):
                parts += _bar(band, metric, values[metric], middle + (b - len(columns) / 2) * width, width)
        meanings = {"overall": "all labels"} | {
            band: f"{_labels(self.evaluation.bands[band]['labels'])}, {meaning} rows each"
            for band, meaning in band_meanings(self.evaluation.edges).items()
        }
        return figure(self.title, parts, BOTTOM + 28, list(meanings.items()))


def _bar(band: str, metric: str, value: float, x: float, width: float) -> list[str]:
    """Draw one bar, with its value above it if there is enough space."""
    if math.isnan(value):
        return []
    height = value * (BOTTOM - TOP)
    y = BOTTOM - height
    tip = f"<title>{safe(metric)}, {band}: {100 * value:.2f}%</title>"
    size = f'x="{x + 1:.1f}" y="{y:.1f}" width="{width - 2:.1f}" height="{height:.1f}"'
    label = [draw_text(x + width / 2, y - 5, f"{100 * value:.1f}", "middle", "value")] if width >= 28 else []
    return [f'<rect class="{band}" {size} rx="2">{tip}</rect>', *label]
