"""report: well-formed, escaped, self-contained, reproducible, and written in one step."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.errors import InputError
from longtail.metrics import evaluate
from longtail.report import (
    BandBars,
    Example,
    Examples,
    Facts,
    FrequencyCurve,
    Label,
    Paragraph,
    Report,
    Section,
    Table,
)
from longtail.report.page import clean

HOSTILE = "<script>alert('x')</script> \"&quot;\" \x00\x1b[31m\ud800 \u202etxet --> ]]> </style>"
MULTILINE = "a\nb\r\n\tc"
VOID = {"meta", "br"}


def make_report(text="E11 diabetes", counts=(500, 120, 60, 11, 10, 3, 0)):
    Y = sparse.csr_array([[1, 1, 0, 0, 0, 1, 0], [1, 0, 1, 0, 0, 0, 0]])
    train = sparse.csr_array((np.ones(4, int), ([0, 1, 1, 2], [0, 0, 1, 5])), shape=(20, 7))
    evaluation = evaluate(Y, [[0, 5, 2], [2, 1, 0]], train_Y=train, ks=(1, 3), bands=(0, 1))
    example = Example(
        text,
        true=[Label(text, text), Label("missed", text)],
        predicted=[Label(text, text, 1.25), Label("wrong", text, -0.5)],
        words=[(text, 0.75), ("against", -0.25)],
    )
    return Report(
        text,
        text,
        [
            Section(text, Paragraph(text), Facts({text: text, "rows": 12345, "seconds": 1.5, "unknown": None})),
            Section("Scores", BandBars(evaluation, ("P@1", "P@3")), Table.of(evaluation), Table(["a"], [])),
            Section("Labels", FrequencyCurve(np.array(counts)), Table([text, "n"], [[text, 1]], note=text)),
            Section("Predictions", Examples([example, Example(text, [], [])])),
        ],
    )


class Elements(HTMLParser):
    """Collects tags, attributes and text, and checks that every element is closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("text", ["E11 diabetes", HOSTILE, MULTILINE, "", "名前 ✓ 🎉"])
def test_page_is_well_formed_html_and_xml(text):
    page = make_report(text).html()
    assert Elements(page).open == []
    ET.fromstring(page)


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=40))
def test_any_text_is_shown_and_never_becomes_markup(text):
    page = make_report(text).html()
    plain, root = Elements(make_report("plain").html()), ET.fromstring(page)
    assert Elements(page).tags == plain.tags, "text adds no element"
    assert root.findtext(".//blockquote", "") == clean(text)
    page.encode()


def test_hostile_names_are_escaped_everywhere():
    page = make_report(HOSTILE).html()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 10
    assert page.count("</style>") == 1
    assert "\x1b" not in str(make_report(HOSTILE)), "a label name must not steer the terminal"
    assert not any(re.match("on|src|href", name) for name, _ in Elements(page).attributes)


def test_page_loads_nothing_from_anywhere():
    page = make_report().html()
    assert not re.search(r"https?:|//|url\(|@import|<(script|link|img|iframe|object|embed|base)", page)


def test_same_input_same_bytes(tmp_path):
    for name in ("a.html", "b.html"):
        make_report(HOSTILE).write_html(tmp_path / name)
    assert (
        (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes() == make_report(HOSTILE).html().encode()
    )


def test_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("old")

    def fail(handle):
        assert target.read_text() == "old", "the old page stays until the new one is complete"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(InputError, match=r"cannot write the report to .*report.html: No space left on device"):
        make_report().write_html(target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    monkeypatch.undo()
    make_report().write_html(target)
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_interruption_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupt(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_report().write_html(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_absent_folder_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.report\.html: No such file or directory; choose another file"):
        make_report().write_html(tmp_path / "nowhere" / "report.html")


def test_bars_have_the_height_of_their_values():
    figure = make_report().sections[1].blocks[0]
    root = ET.fromstring(figure.html())
    heights = {bar.findtext("title"): float(bar.get("height")) for bar in root.iter("rect")}
    overall = figure.evaluation.overall["P@3"]
    assert heights[f"P@3, overall: {100 * overall:.2f}%"] == pytest.approx(overall * 250, abs=0.1)
    assert len(heights) == 8, "two metrics for overall and three bands"


def test_a_band_without_rows_has_no_bar():
    evaluation = evaluate(sparse.csr_array([[1]]), [[0]], train_Y=sparse.csr_array([[1]]), ks=(1,))
    bars = BandBars(evaluation, ("P@1",))
    assert bars.html().count("<rect") == 2
    assert str(bars).splitlines()[1] == "P@1       head          -"


@pytest.mark.parametrize("counts", [[], [0, 0], [1], [7], [10**7, 1], np.ones(100_000, int), np.arange(3000)])
def test_frequency_curve_stays_in_its_frame_and_small(counts):
    drawing = FrequencyCurve(np.array(counts, int)).html()
    ET.fromstring(drawing)
    points = [float(number) for path in re.findall(r' d="([^"]*)"', drawing) for number in re.findall(r"[\d.]+", path)]
    assert all(0 <= point <= 560 for point in points)
    assert "nan" not in drawing
    assert len(drawing) < 20_000, "the number of labels does not swell the page"


def test_frequency_curve_tells_how_much_of_the_data_each_band_holds():
    assert str(FrequencyCurve(np.array([150, 30, 10, 10, 0]))).splitlines() == [
        "head   1 label, > 100 rows each, 75% of all uses",
        "torso  1 label, 11-100 rows each, 15% of all uses",
        "tail   3 labels, ≤ 10 rows each, 10% of all uses",
    ]


def test_examples_mark_hits_errors_and_misses():
    example = Example(
        "chest pain",
        true=[Label("R07", "Pain in throat and chest"), Label("R00-R99", "Symptoms")],
        predicted=[Label("R07", "Pain in throat and chest", 1.5), Label("I20", "Angina pectoris", -0.25)],
        words=[("chest", 0.75), ("pain", -0.5)],
    )
    assert str(Examples([example])).splitlines() == [
        "“chest pain”",
        "  ✓   1.50  R07      Pain in throat and chest",
        "  ✗  -0.25  I20      Angina pectoris",
        "  ○         R00-R99  Symptoms",
        "  because of chest +0.75, pain -0.50",
        "",
        "✓ predicted and true, ✗ predicted, not true, ○ true, not predicted",
    ]
    root = ET.fromstring(example.html())
    assert [item.get("class") for item in root.iterfind("ul/li")] == ["hit", "false", "missed"]
    assert [item.get("class") for item in root.iterfind("div/ul/li")] == ["for", "against"]
    assert [bar.get("style") for bar in root.iter("i")] == ["width:100.0%", "width:66.7%"]


def test_sections_facts_and_tables_print_as_plain_text():
    section = Section(
        "Data", Facts({"rows": 12345, "seconds": 1.5, "unknown": None}), Table(["a", "n"], [["x", 1]], "Note.")
    )
    assert str(section) == ("Data\n════\n\nrows     12,345\nseconds  1.50\nunknown  -\n\na  n\n─  ─\nx  1\n\nNote.")
    assert "\n\n\nScores\n══════\n\n" in str(make_report())


def test_numbers_are_aligned_to_the_right_and_text_to_the_left():
    root = ET.fromstring(f"<x>{Table(['name', 'n'], [['a', 1000], ['b', None]]).html()}</x>")
    assert [(cell.text, cell.get("class")) for cell in root.iter("td")] == [
        ("a", None),
        ("1,000", "number"),
        ("b", None),
        ("-", "number"),
    ]
