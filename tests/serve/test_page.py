"""The page in a real browser: what people click, type and drop; with the keyboard; on a phone; for screen readers."""

from __future__ import annotations

import json
import os
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDED = bool(os.environ.get("LONGTAIL_BROWSER"))  # set by .ci/run: there, a missing browser is a failure
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(CHROMIUM is None and not NEEDED, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api")
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def visit(browser, service):
    """Opens the page at a place; afterwards, nothing may have been complained about or loaded from elsewhere."""
    contexts, complaints, foreign = [], [], []
    home = f"http://127.0.0.1:{service.port}"

    def complaint(message):
        if message.type == "error" and "status of 400" not in message.text:  # a refusal that the page shows itself
            complaints.append(message.text)

    def opened(place="", *, width=1280, height=900, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaint(message))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda request: None if request.url.startswith((home, "blob:")) else foreign.append(request.url)
        )
        page.goto(f"{home}/{place}")
        page.set_default_timeout(15_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert foreign == []


def labels(page, panel=0):
    return page.locator(".results").nth(panel).locator(".result .name").all_inner_texts()


def test_labels_appear_while_typing(visit):
    page = visit()
    page.fill("#text", "")
    page.wait_for_selector("text=Labels appear here as you write.")
    page.type("#text", "itching ra")
    page.wait_for_function("() => document.querySelector('.result .name')?.textContent === 'skin'")
    page.type("#text", "sh")
    page.wait_for_function("() => document.querySelector('.result .title')?.textContent === 'Skin'")
    assert page.locator(".result").count() == 4
    page.get_by_role("button", name="Clear").click()
    page.wait_for_selector("text=Labels appear here as you write.")


def test_a_label_shows_its_words(visit):
    page = visit()
    page.fill("#text", "Dry cough 🦴 and CHEST pain")
    page.wait_for_function("() => document.querySelector('.result .name')?.textContent === 'lung'")
    page.locator(".result").first.click()
    page.wait_for_selector(".why")
    assert page.locator(".why .word").all_inner_texts()[:2] == ["CHEST".lower(), "cough"]
    assert page.locator(".mirror mark").all_text_contents() == ["cough", "CHEST"]
    assert page.locator(".why .strong span").all_inner_texts() == ["chest", "asthma", "breath", "cough"]
    assert page.locator(".result").first.get_attribute("aria-expanded") == "true"
    page.locator(".result").first.click()
    assert page.locator(".why").count() == 0
    assert page.locator(".mirror mark").count() == 0


def test_examples_and_dropped_files_fill_the_text(visit):
    page = visit()
    page.get_by_role("button", name="dry cough for three weeks").click()
    assert page.input_value("#text") == "dry cough for three weeks"
    page.wait_for_function("() => (document.querySelector('.result .name')?.textContent ?? 'bone') !== 'bone'")
    data = page.evaluate_handle(
        "() => { const d = new DataTransfer(); d.items.add(new File(['fracture of a rib'], 'a.txt')); return d; }"
    )
    page.dispatch_event(".editor", "drop", {"dataTransfer": data})
    page.wait_for_function("() => document.querySelector('#text').value === 'fracture of a rib'")
    page.wait_for_function("() => document.querySelector('.result .name')?.textContent === 'bone'")


def test_two_models_side_by_side(visit):
    page = visit()
    page.fill("#text", "itching arm")
    page.wait_for_function("() => document.querySelector('.result .name')?.textContent === 'skin'")
    page.select_option("#compare", "other")
    page.wait_for_function("() => document.querySelectorAll('.results').length === 2")
    page.wait_for_function("() => document.querySelectorAll('.both:not([hidden])').length === 8")
    assert labels(page, 0) == labels(page, 1)
    values = [page.locator(".results").nth(i).locator(".value").first.inner_text() for i in (0, 1)]
    assert float(values[1]) == pytest.approx(2 * float(values[0]), abs=0.02)
    page.select_option("#compare", "")
    page.wait_for_function("() => document.querySelectorAll('.results').length === 1")


def test_labels_can_be_searched_and_opened(visit):
    page = visit("#labels")
    page.wait_for_selector("button.row")
    assert page.locator("button.row .name").all_inner_texts() == ["bone", "heart", "lung", "skin"]
    page.fill("#label-search", "breathing")
    page.wait_for_function("() => document.querySelectorAll('button.row').length === 1")
    page.locator("button.row").click()
    page.wait_for_selector(".detail .words")
    assert page.locator(".detail .word").first.inner_text() == "chest"
    assert "70 %" in page.locator(".detail .figures").inner_text()
    page.fill("#label-search", "")
    page.get_by_role("button", name="rare 1").click()
    page.wait_for_function("() => document.querySelector('button.row .name')?.textContent === 'skin'")
    page.fill("#label-search", "zzz")
    page.wait_for_selector("text=No label has this in its name or title.")


def csv_of(page, name, content):
    page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": content.encode()})


@pytest.mark.parametrize("model", ["other", "vectors"])
def test_models_without_a_card_have_all_views(visit, model):
    page = visit("#labels")
    page.locator("select").first.select_option(model)
    page.locator("button.row").first.click()
    page.wait_for_selector(".detail .words")
    assert page.locator("#label-sort option").all_inner_texts() == ["By name"]
    assert page.locator("[data-band]").count() == 0
    page.goto(page.url.partition("#")[0] + "#model")
    page.wait_for_selector("text=Ask this model from a program")
    assert page.locator("h2", has_text="Parameters").count() == 0  # these models were made by hand


def test_a_file_becomes_predictions(visit, tmp_path):
    page = visit("#files")
    rows = "".join(f'{i},"rash, number {i}","=x"\n' for i in range(150))
    csv_of(page, "notes.csv", f"id,text,other\n{rows}")
    page.wait_for_selector("text=150 texts")
    assert page.input_value("#column") == "text"
    page.select_option("#top-k", "1")
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("text=150 predictions")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert download.value.suggested_filename == "notes-predictions.csv"
    lines = download.value.path().read_bytes().decode().split("\r\n")
    assert lines[0] == "text,label_1,score_1"
    assert lines[1].startswith('"rash, number 0",skin,')
    assert len(lines) == 152
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSON lines").click()
    said = [json.loads(line) for line in download.value.path().read_text(encoding="utf-8").splitlines()]
    assert len(said) == 150
    assert said[149]["text"] == "rash, number 149"
    assert said[149]["labels"] == ["skin"]


def test_json_lines_plain_texts_and_bad_files(visit):
    page = visit("#files")
    csv_of(page, "a.jsonl", '{"text": "cough", "id": 1}\n{"text": "rib"}\n')
    page.wait_for_selector("text=2 texts")
    csv_of(page, "a.txt", "one\ntwo\n\nthree\n")
    page.wait_for_selector("text=3 texts")
    csv_of(page, "a.jsonl", '{"text": "cough"}\n{oops}\n')
    page.wait_for_selector("text=Line 2 is not JSON: {oops}")
    csv_of(page, "a.csv", "")
    page.wait_for_selector("text=This file holds no texts.")


def test_the_model_card(visit):
    page = visit("#model")
    page.wait_for_selector("text=Quality on test rows")
    text = page.inner_text("main")
    for part in ("one-vs-all", "4", "90.0", "How often labels occur", "How far probabilities can be trusted", "curl "):
        assert part in text
    assert page.locator("svg.chart").count() == 4
    page.select_option("#model-picker", "vectors")
    page.wait_for_function("() => document.querySelector('h1')?.textContent === 'vectors'")
    assert page.locator("svg.chart").count() == 0
    assert "rows of numbers" in page.inner_text("main")
    page.goto(page.url.replace("#model", "#try"))
    page.wait_for_selector("text=it cannot read texts")


def test_the_documentation_runs_its_examples(visit):
    page = visit("docs")
    page.wait_for_selector("details[open]")
    page.locator("details[open] .primary").click()
    page.wait_for_selector("text=/200 in \\d+ ms/")
    assert '"predictions"' in page.locator("details[open] pre").last.inner_text()


def test_errors_are_shown(visit):
    page = visit()
    page.wait_for_selector(".result")
    page.route(
        "**/predict", lambda route: route.fulfill(status=400, json={"error": {"code": "x", "message": "No way."}})
    )
    page.fill("#text", "another text")
    page.wait_for_selector(".error >> text=No way.")
    page.unroute("**/predict")
    page.fill("#text", "cough")
    page.wait_for_function("() => document.querySelector('.result .name')?.textContent === 'lung'")


def test_strange_names_and_texts_stay_texts(visit):
    page = visit()
    page.fill("#text", "<img src=x onerror=alert(1)> cough")
    page.wait_for_function("() => document.querySelector('.result .name')?.textContent === 'lung'")
    page.locator(".result").first.click()
    page.wait_for_selector(".why")
    assert page.locator("img[src=x]").count() == 0


def test_with_the_keyboard_only(visit):
    page = visit()
    page.wait_for_selector(".result")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "text":
            break
    page.keyboard.press("Control+a")
    page.keyboard.type("itching rash")
    page.wait_for_function("() => document.querySelector('.result .name')?.textContent === 'skin'")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.label") == "skin":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector(".why")
    assert page.evaluate("document.activeElement.dataset.label") == "skin"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("place", ["#try", "#labels", "#files", "#model", "docs"])
def test_a_narrow_screen_needs_no_sideways_scrolling(visit, place):
    page = visit(place, width=360, height=740)
    page.wait_for_selector("main h1, main section")
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", ["#try", "#labels", "#files", "#model", "docs"])
def test_no_serious_fault_of_accessibility(visit, place, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(place, scheme=scheme)
    page.wait_for_selector("main h1, main section")
    if place == "#try":
        page.locator(".result").first.click()
        page.wait_for_selector(".why")
    page.wait_for_timeout(400)
    found = axe.Axe().run(page).response["violations"]
    serious = [
        (each["id"], [node["html"][:150] for node in each["nodes"]][:3])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_the_policy_of_the_page_is_strict(service):
    for path in ("/", "/docs", "/static/app.js"):
        policy = service.ask(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
    tag = service.ask("/").headers["etag"]
    answer = service.ask("/", headers={"If-None-Match": tag})
    assert (answer.status, answer.body) == (304, b"")
