"""The screenshots of docs/guides/serving.md, from two models of ICD-10-CM texts and Chromium.

    python benchmarks/screenshots.py MODEL OTHER [--output docs/guides/serving]

MODEL should be calibrated, so that the page shows probabilities and the reliability diagram.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve import service

TEXT = "Type 2 diabetes mellitus with diabetic retinopathy of the left eye, and iron deficiency anemia"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SIZES = {"wide": (1280, 860), "phone": (360, 740)}


def explained(page: Any) -> None:
    page.fill("#text", TEXT)
    page.wait_for_function("() => document.querySelectorAll('.result').length > 3")
    page.wait_for_timeout(500)
    page.locator(".result").first.click()
    page.wait_for_selector(".why")


def compared(page: Any) -> None:
    page.fill("#text", TEXT)
    page.select_option("#compare", "smaller")
    page.wait_for_function("() => document.querySelectorAll('.results').length === 2")
    page.wait_for_timeout(800)


def browsed(page: Any) -> None:
    page.fill("#label-search", "diabet")
    page.wait_for_timeout(500)
    page.locator("button.row").nth(1).click()
    page.wait_for_selector(".detail .words")


def predicted(page: Any) -> None:
    from longtail.data import icd10

    texts = "".join(f'{i},"{text.replace(chr(34), "")}"\n' for i, (text, _) in enumerate(icd10.load().test[:400]))
    content = {"name": "diagnoses.csv", "mimeType": "text/csv", "buffer": f"id,text\n{texts}".encode()}
    page.set_input_files("#file", content)
    page.wait_for_selector("text=400 texts")
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("text=400 predictions")


def asked(page: Any) -> None:
    page.wait_for_selector("details[open]")
    page.locator("details[open] .primary").click()
    page.wait_for_selector("text=/200 in \\d+ ms/")


def shown(page: Any) -> None:
    page.wait_for_selector("svg.chart")


VIEWS: dict[str, tuple[str, str, str, Callable[[Any], None]]] = {  # name: place, size, scheme, what to do there
    "try": ("#try", "wide", "light", explained),
    "try-dark": ("#try", "wide", "dark", explained),
    "compare": ("#try", "wide", "light", compared),
    "labels": ("#labels", "wide", "light", browsed),
    "files-done": ("#files", "wide", "light", predicted),
    "model": ("#model", "wide", "light", shown),
    "docs": ("docs", "wide", "light", asked),
    "phone-try": ("#try", "phone", "light", explained),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("other")
    parser.add_argument("--output", type=Path, default=Path("docs/guides/serving"))
    parser.add_argument("--only", nargs="*", choices=VIEWS, default=list(VIEWS))
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    words = (f"demo={options.model}", f"smaller={options.other}", "--workers", "1")
    with service(*words) as (port, _, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name in options.only:
            place, size, scheme, act = VIEWS[name]
            width, height = SIZES[size]
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.set_default_timeout(60_000)
            page.goto(f"http://127.0.0.1:{port}/{place}")
            act(page)
            page.wait_for_timeout(500)
            page.screenshot(path=options.output / f"{name}.png", full_page=name == "model")
            page.close()
            print(name, flush=True)
        browser.close()


if __name__ == "__main__":
    main()
