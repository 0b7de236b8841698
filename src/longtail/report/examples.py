"""Example predictions: the predicted and the true labels of a text, and the words behind the best score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longtail.report.page import clean, safe

SIGNS = {"hit": "✓", "false": "✗", "missed": "○"}
MEANING = {"hit": "predicted and true", "false": "predicted, not true", "missed": "true, not predicted"}


@dataclass(frozen=True)
class Label:
    """A label in an example: its name, its title, and its score if it was predicted."""

    name: str
    title: str = ""
    score: float | None = None


def _score(label: Label) -> str:
    return "" if label.score is None else f"{label.score:.2f}"


@dataclass(frozen=True)
class Example:
    """A text, its true labels, its predicted labels (best first), and the words behind the best one."""

    text: str
    true: Sequence[Label]
    predicted: Sequence[Label]
    words: Sequence[tuple[str, float]] = ()

    def _marked(self) -> list[tuple[str, Label]]:
        """Return the labels to show. Each has one of the keys of `SIGNS`."""
        true, predicted = {label.name for label in self.true}, {label.name for label in self.predicted}
        shown = [("hit" if label.name in true else "false", label) for label in self.predicted]
        return shown + [("missed", label) for label in self.true if label.name not in predicted]

    def __str__(self) -> str:
        width = max((len(clean(label.name)) for _, label in self._marked()), default=0)
        lines = [f"“{clean(self.text)}”"]
        for fate, label in self._marked():
            lines.append(
                f"  {SIGNS[fate]} {_score(label):>6}  {clean(label.name):<{width}}  {clean(label.title)}".rstrip()
            )
        if self.words:
            lines.append("  because of " + ", ".join(f"{clean(word)} {share:+.2f}" for word, share in self.words))
        return "\n".join(lines)

    def html(self) -> str:
        rows = "".join(
            f'<li class="{fate}"><span class="sign" title="{MEANING[fate]}">{SIGNS[fate]}</span>'
            f"<code>{safe(label.name)}</code><span>{safe(label.title)}</span>"
            f'<span class="score">{_score(label)}</span></li>'
            for fate, label in self._marked()
        )
        text = f"<blockquote>{safe(self.text)}</blockquote>"
        return f'<article>{text}<ul class="labels">{rows}</ul>{self._why()}</article>'

    def _why(self) -> str:
        if not self.words:
            return ""
        largest = max(abs(share) for _, share in self.words) or 1.0
        rows = "".join(
            f'<li class="{"for" if share >= 0 else "against"}"><span>{safe(word)}</span>'
            f'<i style="width:{100 * abs(share) / largest:.1f}%"></i><span class="score">{share:+.2f}</span></li>'
            for word, share in self.words
        )
        first = f"<code>{safe(self.predicted[0].name)}</code>" if self.predicted else "the first label"
        return f'<div class="why"><h3>Words that speak for or against {first}</h3><ul>{rows}</ul></div>'


@dataclass(frozen=True)
class Examples:
    """Predictions for some texts, and a key of the signs."""

    examples: Sequence[Example]

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.examples), self._key()])

    def _key(self) -> str:
        return ", ".join(f"{sign} {MEANING[fate]}" for fate, sign in SIGNS.items())

    def html(self) -> str:
        articles = "\n".join(example.html() for example in self.examples)
        return f'<div class="examples">{articles}</div><p class="note">{self._key()}</p>'
