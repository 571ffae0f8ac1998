"""report.html: complete, self-contained, and text from the corpus never becomes markup."""

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from realm_jax.data.question_checks import Question
from realm_jax.errors import InputError
from realm_jax.report.write import write_report
from realm_jax.retrieval.bm25 import Bm25
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir
from tests.report.conftest import HOSTILE

SECTIONS = [
    "Was training worth it?",
    "Did the model learn to retrieve?",
    "Curves",
    "Held-out examples with and without retrieval",
    "Time",
    "Config",
    "Versions",
]
CHARTS = [
    "Recall@5 before and after training",
    "Retrieval utility by rank",
    "Retrieval utility",
    "Recall@5 of held-out sentences",
    "REALM loss",
    "p(null)",
    "Staleness of the index in use",
]
LOADS = {"src", "href", "srcset", "data", "action", "poster", "xlink:href", "background"}
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Tags with attributes, and texts with their enclosing tags; fails on unbalanced tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._open = [], [], []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append((tuple(self._open), data))

    def inside(self, tag):
        return [text for around, text in self.texts if tag in around]


@pytest.fixture(scope="session")
def page(reported):
    return Page((reported.root / "report.html").read_text("utf-8"))


def test_page_has_all_sections_and_charts(page):
    assert page.inside("h2") == SECTIONS
    titles = [text for around, text in page.texts if around[-2:] == ("figcaption", "b")]
    assert titles == CHARTS
    assert len([tag for tag, _ in page.tags if tag == "svg"]) == len(CHARTS)
    assert page.inside("h1") == ["<b>bold run"]


def test_versions_and_devices_are_listed(page):
    cells = page.inside("td")
    for text in ("realm-jax", "jaxlib", "scann", "8 cpu"):
        assert text in cells


def test_page_loads_no_file_and_runs_no_script(page):
    for tag, attributes in page.tags:
        assert tag not in ("script", "iframe", "object", "embed", "link", "base", "form", "img")
        assert not LOADS & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
    [style] = page.inside("style")
    assert "url(" not in style and "@import" not in style
    [policy] = [a["content"] for t, a in page.tags if "http-equiv" in a]
    assert policy.startswith("default-src 'none'")


def test_html_in_titles_is_shown_as_text(page):
    titles = [text for text in page.inside("b") if "evil" in text]
    assert titles
    assert all(text.endswith(HOSTILE) for text in titles)


def test_examples_show_probabilities_with_and_without_retrieval(page):
    articles = page.inside("article")
    assert len([a for t, a in page.tags if t == "article"]) == 6
    assert articles.count("with retrieval") == articles.count("without retrieval") == 6
    assert articles.count("right") + articles.count("wrong") == 6
    assert "no passage" in articles


def test_swaps_are_marked_and_repeated_steps_are_drawn_once(reported):
    text = (reported.root / "report.html").read_text("utf-8")
    assert text.count('class="swap"') == 5  # one swap, in five charts
    assert "99" not in re.findall(
        r'class="label end">([^<]*)<', text
    )  # a loss that the resumed run replaced
    assert "<title>step 2: 0.25</title>" in text
    assert "<title>step 4: 0.75</title>" in text


def test_tiles_show_the_values_of_report_json(reported, page):
    measured = json.loads((reported.root / "report.json").read_text())
    assert measured["index_swaps"] == 1
    assert measured["staleness_steps"] == {"mean": 1.0, "max": 2.0}
    assert measured["retrieval_utility_curve"] == [[2, 0.25], [4, 0.75]]
    recalls = list(measured["recall_at_5"].values())
    assert len(recalls) == 2
    tiles = page.inside("b")
    assert f"{recalls[0]:.0%} → {recalls[1]:.0%}" in tiles
    assert "+0.75" in tiles


@pytest.mark.slow
def test_without_a_bm25_index_the_report_lacks_the_comparison_only(
    reported, tmp_path, monkeypatch, caplog
):
    def refuse(*_):
        raise InputError("the BM25 index cannot be written into the folder of the corpus")

    shutil.copytree(reported.workdir, tmp_path / "run")
    run = RunDir(tmp_path / "run")
    run.report.unlink()
    monkeypatch.setattr(Bm25, "open", refuse)
    write_report(str(run.workdir))
    page = Page((run.root / "report.html").read_text("utf-8"))
    assert page.inside("h2") == SECTIONS[1:]
    assert "recall_at_5" in json.loads(run.report.read_text())
    assert "no comparison with BM25" in caplog.text
    with pytest.raises(InputError):  # the comparison is what a report with questions is for
        write_report(str(run.workdir), [Question("Who?", ("me",))])
    monkeypatch.undo()
    write_report(str(run.workdir))
    page = Page((run.root / "report.html").read_text("utf-8"))
    assert page.inside("h2") == SECTIONS


def test_measured_values_are_not_measured_again(reported, tmp_path):
    shutil.copytree(reported.workdir, tmp_path / "run")
    run = RunDir(tmp_path / "run")
    measured = json.loads(run.report.read_text())
    measured["recall_at_5"] = {"untrained": 0.125, "realm": 0.375}
    run.report.write_text(json.dumps(measured))
    write_report(str(run.workdir))
    assert "12% → 38%" in Page((run.root / "report.html").read_text("utf-8")).inside("b")


def test_values_that_only_the_demo_measures_are_kept_when_there_are_questions(reported, tmp_path):
    shutil.copytree(reported.workdir, tmp_path / "run")
    run = RunDir(tmp_path / "run")
    measured = json.loads(run.report.read_text()) | {"exact_match": 0.75}
    run.report.write_text(json.dumps(measured))
    write_report(str(run.workdir), [Question("Who?", ("me",))])
    found = json.loads(run.report.read_text())
    assert found["exact_match"] == 0.75 and "questions" in found["baselines"]


def test_a_run_without_an_export_gets_a_page_with_curves_only(reported, tmp_path):
    run = RunDir(tmp_path / "run")
    files.write_bytes(run.config, reported.config.read_bytes())
    shutil.copytree(reported.logs, run.logs)
    write_report(str(run.workdir))
    page = Page((run.root / "report.html").read_text("utf-8"))
    assert page.inside("h2") == ["Curves", "Time", "Config", "Versions"]
    assert not run.report.exists() and not run.export.exists()


def test_a_folder_without_a_run_is_refused_and_stays_empty(tmp_path):
    with pytest.raises(InputError, match="no run here"):
        write_report(str(tmp_path))
    assert not list(tmp_path.iterdir())
