"""The page and its plain blocks: sections, paragraphs, facts and tables."""

from __future__ import annotations

import html
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from longtail.errors import InputError
from longtail.metrics.evaluation import Evaluation
from longtail.metrics.table import Cell, align, numeric_columns, show
from longtail.report.style import CSS

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """The text on one line. Control characters, which could control a terminal or break a page, become U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", " ".join(text.split()))


def safe(cell: Cell) -> str:
    """A cell as text that is safe inside an element or a quoted attribute of the page."""
    return html.escape(clean(show(cell)))


# --- the page --------------------------------------------------------------------------------------------------------


class Content(Protocol):
    """A piece of a report: `str(content)` for the terminal, `content.html()` for the page."""

    def html(self) -> str: ...


class Section:
    """A heading and the blocks below it."""

    def __init__(self, heading: str, *blocks: Content) -> None:
        self.heading, self.blocks = heading, blocks

    def __str__(self) -> str:
        heading = clean(self.heading)
        return "\n\n".join([f"{heading}\n{'═' * len(heading)}", *map(str, self.blocks)])

    def html(self) -> str:
        body = "\n".join(block.html() for block in self.blocks)
        return f"<section>\n<h2>{safe(self.heading)}</h2>\n{body}\n</section>"


@dataclass(frozen=True)
class Report:
    """A title, one line below it, and sections."""

    title: str
    subtitle: str
    sections: Sequence[Section]

    def __str__(self) -> str:
        return "\n\n\n".join([f"{clean(self.title)}\n{clean(self.subtitle)}", *map(str, self.sections)])

    def html(self) -> str:
        title, body = safe(self.title), "\n".join(section.html() for section in self.sections)
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>{title}</title>
<style>{CSS}</style>
</head>
<body>
<header><h1>{title}</h1><p>{safe(self.subtitle)}</p></header>
<main>
{body}
</main>
</body>
</html>
"""

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page in one step, so that a reader sees either the old file or the complete new one."""
        target = Path(path)
        temporary = target.with_name(f".tmp-{secrets.token_hex(8)}")
        try:
            try:
                with open(temporary, "xb") as file:
                    file.write(self.html().encode())
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise InputError(
                f"cannot write the report to {target}: {error.strerror or error}; choose another file"
            ) from error


# --- text and tables -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paragraph:
    text: str

    def __str__(self) -> str:
        return clean(self.text)

    def html(self) -> str:
        return f"<p>{safe(self.text)}</p>"


@dataclass(frozen=True)
class Facts:
    """Names and values, such as sizes and timings."""

    items: Mapping[str, Cell]

    def __str__(self) -> str:
        lines = [(clean(name), clean(show(value))) for name, value in self.items.items()]
        width = max((len(name) for name, _ in lines), default=0)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)

    def html(self) -> str:
        cards = "".join(f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in self.items.items())
        return f'<dl class="facts">{cards}</dl>'


@dataclass(frozen=True)
class Table:
    """Rows below a header; numbers are aligned to the right. `Table.of(evaluation)` shows all metrics."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    @classmethod
    def of(cls, evaluation: Evaluation) -> Table:
        return cls(*evaluation.table(), note=evaluation.note)

    def __str__(self) -> str:
        rows = [[clean(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows]
        table = align([clean(name) for name in self.header], rows)
        return f"{table}\n\n{clean(self.note)}" if self.note else table

    def html(self) -> str:
        numeric = numeric_columns(self.rows) or [False] * len(self.header)
        right = [' class="number"' if is_number else "" for is_number in numeric]
        head = "".join(f"<th{side}>{safe(name)}</th>" for name, side in zip(self.header, right, strict=True))
        body = "\n".join(
            "<tr>" + "".join(f"<td{side}>{safe(cell)}</td>" for cell, side in zip(row, right, strict=True)) + "</tr>"
            for row in self.rows
        )
        note = f'<p class="note">{safe(self.note)}</p>' if self.note else ""
        return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>{note}'
