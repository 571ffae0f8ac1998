"""Visible text of HTML pages and Word files."""

import io

import pytest

from realm_jax.corpus.documents import Columns
from realm_jax.corpus.page_readers import read_html
from realm_jax.corpus.tally import Skipped


def html_text(page):
    [document] = read_html("a.html", io.BytesIO(page.encode()), Skipped(), Columns())
    return document.body


def test_cells_of_an_html_table_are_separate_words():
    rows = (
        "<tr><th>Country</th><th>Capital</th></tr>"
        "<tr><td>Nor<b>way</b></td><td>Oslo</td></tr>"
        "<tr><td>Peru</td><td><p>Lima</p><p>Cusco</p></td></tr>"
    )
    text = html_text(f"<table><caption>Towns</caption>{rows}</table>After.")
    assert text == "Towns\nCountry Capital\nNorway Oslo\nPeru\nLima\nCusco\nAfter."


@pytest.mark.parametrize(
    "page",
    [
        "<details><summary>One.</summary>Two.</details>Three.",
        "<fieldset><legend>One.</legend>Two.</fieldset><label>Three.</label>",
        "<label>One.</label><label>Two.</label>Three.",
        "<option>One.</option><option>Two.</option>Three.",
    ],
)
def test_block_elements_of_html_are_lines(page):
    assert html_text(page) == "One.\nTwo.\nThree."


def test_text_of_an_html_form_is_kept_without_its_controls():
    page = (
        "<body><p>Intro.</p><form><p>Every employee has 30 days of leave.</p><input value=No>"
        "<select><option>No</select><datalist><option>No</datalist><textarea>No</textarea>"
        "<button>Go</button></form></body>"
    )
    assert html_text(page) == "Intro.\nEvery employee has 30 days of leave."
