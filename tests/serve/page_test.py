"""The page in a real headless Chromium: mouse, keyboard, accessibility tree, phone and colours."""

import contextlib
import os
import re
import shutil

import pytest
from served import serving
from support.finished_run import write_finished_run
from support.tiny_corpus import tiny_config

from realm_jax.serve.live_run import LiveRun

pytest.importorskip("fastapi", reason="needs the extra [serve]")
pytest.importorskip("fastapi_offline", reason="needs the extra [serve]")
pytest.importorskip("uvicorn", reason="needs the extra [serve]")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: extra [dev]")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
if not CHROMIUM:
    pytest.skip(
        "no Chromium on this machine: apt-get install chromium, as .ci/run does where it is root",
        allow_module_level=True,
    )

expect = playwright.expect
expect.set_options(timeout=60_000)  # the first answer of each kind is compiled
QUESTION = "what is the Café?"
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, api):
    """A new tab without changed passages; fails on console errors and on requests elsewhere."""
    api("DELETE", "/api/edits")
    tab = browser.new_page(viewport=DESK)
    messages, urls = [], []
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("request", lambda request: urls.append(request.url))
    tab.goto(api.url)
    expect(tab.locator("#about")).to_contain_text("passages")
    yield tab
    assert [text for text in messages if "status of 400" not in text] == []
    assert {url.startswith(api.url) or url.startswith("data:") for url in urls} == {True}
    tab.close()


def ask(page, text):
    page.fill("#question", text)
    page.press("#question", "Enter")
    expect(page.locator("#status")).to_have_text(re.compile("^Answer"))


def test_clicking_an_example_answers_it(page, api):
    examples = api("GET", "/api/examples").json()["examples"]
    assert examples
    buttons = page.locator("#examples button")
    expect(buttons).to_have_text(examples)
    buttons.last.click()
    expect(page.locator("#status")).to_have_text(re.compile("^Answer"))
    assert page.input_value("#question") == examples[-1]
    assert page.inner_text("#answer")


def test_entering_a_question_shows_the_answer_and_highlights_it_in_the_passages(page, api):
    ask(page, QUESTION)
    report = api("POST", "/api/ask", {"question": QUESTION}).json()
    assert page.inner_text("#answer") == report["answer"]
    assert page.inner_text("#closed-book-answer") == report["closed_book"]["answer"]
    assert page.locator("#passages li").count() == len(report["passages"])
    best = sorted(report["passages"], key=lambda passage: -passage["p_z"])
    marked = [p["text"][slice(*p["span"])] for p in best if p["span"]]
    assert page.locator("#passages mark").all_text_contents() == marked
    texts = page.locator("#passages .text").all_text_contents()
    assert texts == [p["text"] for p in best]
    share = page.locator(".bar").first.evaluate("bar => parseFloat(bar.style.width)")
    assert share == pytest.approx(100 * best[0]["p_z"], abs=0.01)
    assert f"step {report['index_step']}" in page.get_attribute("#read", "title")
    assert "?q=" in page.url


def test_a_blank_is_filled_with_and_without_passages(page, api):
    page.fill("#question", "the river in ")
    page.click("#blank")
    page.press("#question", "Enter")
    expect(page.locator("#status")).to_have_text(re.compile("^Answer"))
    report = api("POST", "/api/fill", {"text": "the river in [MASK]"}).json()
    assert page.text_content("#answer") == report["answer"]
    assert page.text_content("#closed-book-answer") == report["answer_without_retrieval"]
    null = page.locator("#passages li", has_text="No passage")
    assert null.locator("button").count() == 0


def test_other_forms_of_a_blank_are_filled_too(page):
    page.fill("#question", "the river in <mask>")
    with page.expect_response("**/api/*") as replied:
        page.press("#question", "Enter")
    assert replied.value.url.endswith("/api/fill") and replied.value.ok


def test_fields_without_a_value_are_not_shown(page):
    page.fill("#question", "a b c d e f g h i j k l m n o p q r s")  # no room for a [MASK]
    page.press("#question", "Enter")
    expect(page.locator("#status")).to_have_text(re.compile("^Answer"))
    assert not page.locator("#closed-book").is_visible()
    empty = page.evaluate(
        """() => [...document.querySelectorAll('main p, main dd, main h2, main h3, main li')]
          .filter(node => node.offsetHeight && !node.textContent.trim() && !node.role)
          .map(node => node.outerHTML)"""
    )
    assert empty == []


@pytest.mark.parametrize("tuned", [True, False])
def test_a_run_that_reads_many_passages_answers(browser, accents, tmp_path, tuned):
    config = tiny_config(accents.folder, stages__qa__reader_passages=50)
    write_finished_run(tmp_path / "run", accents, config, tuned=tuned)
    live = LiveRun.open(str(tmp_path / "run"))
    with serving(live) as api, contextlib.closing(browser.new_page()) as tab:
        tab.goto(api.url)
        expect(tab.locator("#k")).to_have_value("50")
        ask(tab, QUESTION if tuned else "the river in [MASK].")
        assert tab.locator("#k").is_visible() == tab.locator("#k").is_enabled() == tuned
        if tuned:
            tab.fill("#k", "51")
            assert tab.locator("#k:invalid").count() == 1
            assert api("POST", "/api/ask", {"question": QUESTION, "k": 50}).status == 200
            api("POST", "/api/ask", {"question": QUESTION, "k": 51}).refused(400, "50", "51")


@pytest.fixture
def late(page):
    """Asks QUESTION, whose first reply arrives when the returned function is called."""
    held = []

    def hold(route):
        is_first = not held and route.request.post_data_json["question"] == QUESTION
        held.append(route) if is_first else route.continue_()

    def reply():
        report = held[0].fetch()
        held[0].fulfill(response=report, json={**report.json(), "answer": "a late reply"})
        page.evaluate("() => fetch('/api/health').then((reply) => reply.json())")

    page.route("**/api/ask", hold)
    page.fill("#question", QUESTION)
    with page.expect_request("**/api/ask"):
        page.press("#question", "Enter")
    return reply


def test_a_late_reply_is_not_shown_under_a_later_question(page, late):
    ask(page, "what is the river?")
    shown = page.inner_text("#answer"), page.inner_text("#status"), page.url
    late()
    assert (page.inner_text("#answer"), page.inner_text("#status"), page.url) == shown


def test_a_question_without_a_reply_yet_is_asked_again_after_a_change(page, late):
    page.click("#add")
    page.fill("#text", "The Café is in Ani.")
    page.click("#save")
    expect(page.locator("#edits li")).to_have_count(1)
    expect(page.locator("#read")).to_contain_text("Changes so far")
    late()
    assert page.inner_text("#answer") != "a late reply"


def test_html_in_passages_is_shown_as_text_and_spans_count_code_points(page, api):
    evil = {"title": "<b>b</b>", "text": "𝔘𝔘 <img src=x onerror=alert(1)>"}
    page.on("dialog", lambda dialog: pytest.fail(f"script ran: {dialog.message}"))
    for i in range(6):
        assert api("PUT", "/api/passages", {"id": i, **evil}).status == 200
    ask(page, QUESTION)
    report = api("POST", "/api/ask", {"question": QUESTION}).json()
    assert page.locator("#passages img, #passages b, #edits img").count() == 0
    best = sorted(report["passages"], key=lambda passage: -passage["p_z"])
    assert page.locator("#passages .text").first.text_content() == best[0]["text"]
    marked = [p["text"][slice(*p["span"])] for p in best if p["span"]]
    assert marked
    assert page.locator("#passages mark").all_text_contents() == marked


def test_passages_are_changed_by_keyboard_and_the_answer_is_updated(page, api):
    ask(page, QUESTION)
    page.focus("#add")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_be_focused()
    page.keyboard.type("Café")
    page.keyboard.press("Tab")
    page.keyboard.type("The Café is in Ani.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#edits li")
    assert not page.locator("#editor").is_visible()
    assert page.locator("#edits .badge").all_text_contents() == ["added"]
    assert re.search(r"Changes so far: \d+", page.inner_text("#read"))
    page.locator("#passages .edit").first.press("Enter")
    page.keyboard.press("Escape")
    assert not page.locator("#editor").is_visible()
    page.locator("#passages li:not(:has(.badge)) .remove").first.press("Enter")
    expect(page.locator("#edits .badge")).to_have_text(["added", "removed"])
    expect(page.locator("#answer-title")).to_be_focused()  # not lost with the button
    page.locator("#undo-all").press("Enter")
    expect(page.locator("#edits li")).to_have_count(0)
    assert api("GET", "/api/passages").json()["passages"] == []


def test_saving_twice_adds_one_passage_and_the_focus_is_not_lost(page, api):
    ask(page, QUESTION)
    page.click("#add")
    page.fill("#text", "The Café is in Ani.")
    page.evaluate("() => { for (const _ of [1, 2]) document.getElementById('save').click() }")
    page.wait_for_selector("#edits li")
    assert len(api("GET", "/api/passages").json()["passages"]) == 1
    page.locator("#passages .edit").first.press("Enter")
    page.fill("#text", "The Café is in Ora.")
    page.click("#save")
    expect(page.locator("#editor")).to_be_hidden()
    expect(page.locator("#status")).to_have_text(re.compile("^Answer"))
    # The focus is set when the list of changes has been read too, after the answer.
    expect(page.locator("#answer-title")).to_be_focused()
    page.click("#add")
    assert page.locator("#save").is_enabled()


def test_passages_without_an_answer_are_shown_as_such(page):
    """As a run that has no reader for questions replies."""

    def without_answer(route):
        reply = route.fetch()
        content = {**reply.json(), "answer": "", "probability": 0.0, "closed_book": None}
        route.fulfill(response=reply, json=content)

    page.route("**/api/ask", without_answer)
    page.fill("#question", QUESTION)
    page.press("#question", "Enter")
    expect(page.locator("#answer")).to_contain_text("no reader for questions")
    assert page.inner_text("#probability") == "" and page.locator("#closed-book").is_hidden()
    assert page.locator("#passages li").count() > 0
    expect(page.locator("#status")).to_contain_text("no reader")
    page.click("#add")
    page.fill("#text", "The Café is in Ani.")
    page.click("#save")
    expect(page.locator("#edits li")).to_have_count(1)  # read after the answer
    assert page.locator("#before").is_hidden()


def test_an_error_is_shown_next_to_the_form_that_caused_it(page):
    page.fill("#question", "a river " * 30)
    page.click("#ask button[type=submit]")
    expect(page.locator("#problem")).to_contain_text("too long")
    page.click("#add")
    page.fill("#text", "a river " * 90)
    page.click("#edit button[type=submit]")
    expect(page.locator("#editor-problem")).to_contain_text("too long")
    assert page.locator("#editor").is_visible()


def test_every_control_has_a_name_and_answers_are_announced_to_screen_readers(page):
    ask(page, QUESTION)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea')].filter(control =>
          !control.textContent.trim() && !control.getAttribute('aria-label') &&
          !control.labels?.length).map(control => control.outerHTML)"""
    )
    assert nameless == []
    assert page.get_attribute("#status", "role") == "status"
    assert page.get_attribute("#problem", "role") == "alert"
    assert page.get_attribute("html", "lang") == "en"
    tree = page.locator("body").aria_snapshot()
    for name in ('textbox "A question', 'button "Answer"', 'heading "Passages that were read"'):
        assert name in tree, tree


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_a_phone_and_has_enough_contrast_in_both_colour_schemes(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(PHONE)
    ask(page, QUESTION)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    small = page.evaluate(
        """() => [...document.querySelectorAll('button')].filter(button => button.offsetParent &&
          button.getBoundingClientRect().height < 44).length"""
    )
    assert small == 0
    for selector in (
        "#answer",
        "#closed-book-answer",
        "#about",
        ".number",
        "#ask .main",
        "#add",
        "mark",
    ):
        if page.locator(selector).count():
            assert contrast(page, selector) >= 4.5, selector


def contrast(page, selector):
    """Contrast of a text with its background, as WCAG 2 defines it."""
    ink, ground = page.locator(selector).first.evaluate(
        """node => {
          let behind = node;
          while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)')
            behind = behind.parentElement;
          const parts = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
          return [parts(getComputedStyle(node).color),
                  parts(getComputedStyle(behind).backgroundColor)];
        }"""
    )
    low, high = sorted([_luminance(ink), _luminance(ground)])
    return (high + 0.05) / (low + 0.05)


def _luminance(colour):
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (part / 255 for part in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
