"""Reports. The same blocks can be printed as plain text or written as one self-contained HTML page.

    data = Section("Data", Facts({"Training texts": 48_120}), FrequencyCurve(train_counts))
    print(data)
    Report("ICD-10-CM", "One-vs-all on diagnosis texts", [data, ...]).write_html("report.html")

Everything that comes from data is escaped, the page loads no other file, and equal input gives equal bytes.
"""

from longtail.report.examples import Example, Examples, Label
from longtail.report.page import Facts, Paragraph, Report, Section, Table
from longtail.report.plots import BandBars, FrequencyCurve
from longtail.report.reliability import ReliabilityDiagram

__all__ = [
    "BandBars",
    "Example",
    "Examples",
    "Facts",
    "FrequencyCurve",
    "Label",
    "Paragraph",
    "ReliabilityDiagram",
    "Report",
    "Section",
    "Table",
]
