"""Encodings are detected from the first bytes of a file."""

import pytest

from realm_jax.corpus.encodings import detect

META = '<html>\n<head>\n<meta charset="{}">\n</head>\n<body>\n<p>{}</p>\n</body>\n</html>\n'
HTTP = (
    "<html>\n<META HTTP-EQUIV='Content-Type' CONTENT='text/html; CHARSET={}'>\n<p>{}</p>\n</html>\n"
)
XML = '<?xml version="1.0" encoding="{}"?>\n<html>\n<p>{}</p>\n</html>\n'
PRAGUE = "Praha je hlavní město České republiky. Žije zde přes milion lidí."


@pytest.mark.parametrize("page", [META, HTTP, XML])
@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("koi8-r", "Река Волга впадает в Каспийское море."),
        ("windows-1250", PRAGUE),
        ("ISO-8859-9", "Ankara Türkiye'nin başkentidir."),
    ],
)
def test_a_declaration_on_a_line_of_its_own_is_used(page, encoding, text):
    page = page.format(encoding, text)
    sample = page.encode(encoding)
    assert sample.decode(detect(sample)) == page


@pytest.mark.parametrize("label", ["iso-8859-1", "ISO8859-1", "latin1"])
def test_a_page_that_declares_latin_1_may_have_characters_of_cp1252(label):
    page = META.format(label, "Voilà l’été, “cœur” et œuvre…")
    for text in (page, page.replace("\n", " ")):
        assert detect(text.encode("cp1252")) == "cp1252"


def test_a_wrong_declaration_is_not_used():
    assert detect(META.format("koi8-r", PRAGUE).encode()) == "utf-8"
    assert detect(META.format("utf-8", "Où est le café ?").encode("cp1252")) == "cp1252"
