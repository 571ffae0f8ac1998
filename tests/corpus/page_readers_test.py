"""Visible text of HTML pages and Word files."""

import io

import pytest

from realm_jax.corpus.documents import Columns
from realm_jax.corpus.input_files import Stream
from realm_jax.corpus.page_readers import read_docx, read_html
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


def word_text(*blocks):
    """Text of a Word file with these XML elements as its body."""
    docx = pytest.importorskip("docx")
    file = docx.Document()
    space = docx.oxml.ns.nsdecls("w")
    content = docx.oxml.parse_xml(f"<w:body {space}>{''.join(blocks)}</w:body>")
    for at, block in enumerate(list(content)):
        file.element.body.insert(at, block)
    buffer = io.BytesIO()
    file.save(buffer)
    buffer.seek(0)
    [document] = read_docx(Stream("a.docx", buffer), Skipped(), Columns())
    return document.text


def word_run(text):
    return f'<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def word_control(content):
    return f"<w:sdt><w:sdtPr/><w:sdtContent>{content}</w:sdtContent></w:sdt>"


def word_cell(text, properties=""):
    return f"<w:tc><w:tcPr>{properties}</w:tcPr><w:p>{word_run(text)}</w:p></w:tc>"


def test_tracked_changes_of_a_word_file_are_read_as_accepted():
    removed = word_run("eight").replace("w:t", "w:delText")
    text = word_text(
        f"<w:p>{word_run('It costs ')}<w:ins>{word_run('nine')}</w:ins><w:del>{removed}</w:del>"
        f"{word_run(' crowns')}<w:moveFrom>{word_run(' today')}</w:moveFrom>{word_run('.')}</w:p>",
        f"<w:p><w:moveTo>{word_run('Today')}</w:moveTo><w:del>{word_run('No')}</w:del></w:p>",
    )
    assert text == "It costs nine crowns.\nToday"


def test_content_controls_of_a_word_file_are_read():
    row = f"<w:tr>{word_cell('Norway')}{word_control(word_cell('Oslo'))}</w:tr>"
    table = f"<w:tbl>{word_control(row)}</w:tbl>"
    paragraph = f"<w:p>{word_run('Bergen has rain.')}</w:p>"
    text = word_text(
        f"<w:p>{word_run('Name: ')}{word_control(word_run('Kari'))}</w:p>",
        word_control(paragraph + word_control(table)),
        f"<w:p>{word_run('End.')}</w:p>",
    )
    assert text == "Name: Kari\nBergen has rain.\nNorway Oslo\nEnd."


def test_signs_links_and_ruby_of_a_word_paragraph():
    tabs = '<w:pPr><w:tabs><w:tab w:val="left" w:pos="9"/></w:tabs></w:pPr>'
    base = f"<w:rubyBase>{word_run('B')}</w:rubyBase>"
    ruby = f"<w:r><w:ruby><w:rt>{word_run('x')}</w:rt>{base}</w:ruby></w:r>"
    text = word_text(
        f"<w:p>{tabs}{word_run('A')}<w:r><w:tab/><w:t>co</w:t><w:noBreakHyphen/><w:t>op</w:t>"
        f"<w:br/></w:r>{ruby}<w:hyperlink>{word_run('C')}</w:hyperlink></w:p>"
    )
    assert text == "A\tco-op\nBC"


def test_a_merged_cell_and_a_text_box_of_a_word_file_are_not_repeated():
    top, below = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    box = f"<w:r><w:pict><w:txbxContent><w:p>{word_run('Box')}</w:p></w:txbxContent></w:pict></w:r>"
    text = word_text(
        f"<w:tbl><w:tr>{word_cell('Ships', top)}{word_cell('12')}</w:tr>"
        f"<w:tr>{word_cell('Ships', below)}{word_cell('13')}</w:tr></w:tbl>",
        f"<w:p>{word_run('End.')}{box}</w:p>",
    )
    assert text == "Ships 12\n13\nEnd."
