"""The reliability diagram of a report: probabilities and observed shares of true labels, drawn as SVG."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.metrics.decisions import Reliability
from longtail.report.plots import BOTTOM, LEFT, RIGHT, TOP, draw_text, figure, grid


@dataclass(frozen=True)
class ReliabilityDiagram:
    """One point per bin: its mean probability and its share of hits. The points of perfectly calibrated probabilities
    lie on the diagonal."""

    found: Reliability

    def _legend(self) -> list[tuple[str, str]]:
        bins = f"{len(self.found.count)} bins of {int(self.found.count[0]):,} labels"
        return [("overall", f"{bins}; expected calibration error {self.found.error:.3f}")]

    def __str__(self) -> str:
        pairs = zip(self.found.probability, self.found.share, strict=True)
        lines = [f"{p:6.3f}  {share:6.3f}" for p, share in pairs]
        return "\n".join(["probability  share of hits", *lines, self._legend()[0][1]])

    def html(self) -> str:
        parts = []
        for percent in range(0, 101, 20):
            parts += grid(BOTTOM - (BOTTOM - TOP) * percent / 100, f"{percent}%")
            parts.append(draw_text(LEFT + (RIGHT - LEFT) * percent / 100, BOTTOM + 20, f"{percent}%", "middle"))
        parts.append(draw_text((LEFT + RIGHT) / 2, BOTTOM + 42, "probability; upwards: share of hits", "middle"))
        parts.append(f'<path class="grid" d="M{LEFT} {BOTTOM}L{RIGHT} {TOP}"/>')
        points = [
            (LEFT + (RIGHT - LEFT) * p, BOTTOM - (BOTTOM - TOP) * share)
            for p, share in zip(self.found.probability.tolist(), self.found.share.tolist(), strict=True)
        ]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path class="line overall" d="M{line}"/>')
        parts += [
            f'<rect class="overall" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" rx="3"/>' for x, y in points
        ]
        return figure("Probabilities and what happened", parts, BOTTOM + 46, self._legend())
