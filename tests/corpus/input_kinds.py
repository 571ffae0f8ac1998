"""Every kind of file that people bring as text, with its right documents and counts.

Each row of `KINDS` has files, and gives the documents (title, body, id) and what is counted.
"""

import bz2
import gzip
import io
import lzma
import sys
import tarfile
import zipfile

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

OSLO = ("Oslo", "Oslo is new.", "7")
LINE = b'{"_id": "7", "title": "Oslo", "text": "Oslo is new."}\n'
PAGE = """<html><head><title>Oslo &amp; more</title><style>p {}</style></head><body>
<nav>Home</nav><h1>Oslo</h1><p>Oslo is <b>n</b>ew.
It is a city.</p>Loose.<script>var x = 1</script><ul><li>One</li><li>Two</li></ul></body></html>"""


def dump(*pages, namespaces=""):
    body = "".join(
        f"<page><title>{title}</title><ns>{ns}</ns><id>{id}</id>{more}<revision><id>99</id>"
        f'<model>{model}</model><text xml:space="preserve">{text}</text></revision></page>'
        for title, ns, id, more, model, text in pages
    )
    space = "http://www.mediawiki.org/xml/export-0.11/"
    site = f"<siteinfo><namespaces>{namespaces}</namespaces></siteinfo>"
    return f'<mediawiki xmlns="{space}">{site}{body}</mediawiki>'.encode()


DUMP = dump(
    ("Oslo", 0, 7, "", "wikitext", "'''Oslo''' is [[new town|new]].{{cn}}"),
    ("Kristiania", 0, 8, '<redirect title="Oslo" />', "wikitext", "#REDIRECT [[Oslo]]"),
    ("Talk:Oslo", 1, 9, "", "wikitext", "Hello."),
    ("Map", 0, 10, "", "json", "{}"),
    ("List of towns", 0, 11, "", "wikitext", "* Oslo"),
    ("Mercury", 0, 12, "", "wikitext", "* A planet\n{{Disambiguation|x}}"),
)
DUMP_SKIPPED = {
    "redirect": 1,
    "not_article": 1,
    "not_wikitext": 1,
    "list_page": 1,
    "disambiguation_page": 1,
}

GERMAN_DUMP = dump(
    (
        "Oslo",
        0,
        7,
        "",
        "wikitext",
        "Oslo is new. [[Datei:Oslo.jpg|mini|Hafen]][[Kategorie:Ort]]\n[[Kategorie:Stadt|Oslo]]",
    ),
    ("B", 0, 8, "", "wikitext", "See [[:Kategorie:Ort]] and [[Portal:Ort|towns]]."),
    namespaces='<namespace key="0" /><namespace key="6">Datei</namespace>'
    '<namespace key="14">Kategorie</namespace><namespace key="100">Portal</namespace>',
)


def wiki(title, body, more="", end="\n</doc>\n"):
    return f'<doc id="7" url="u" title="{title}"{more}>\n{body}{end}'


def tar(members, mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "a.txt"
        archive.addfile(link)
    return buffer.getvalue()


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def parquet(columns):
    import pyarrow as pa
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer, row_group_size=1)
    return buffer.getvalue()


HF = parquet(
    {"id": ["7", "8"], "url": ["u", "v"], "title": ["Oslo", None], "text": ["Oslo is new.", "B."]}
)
MEMBERS = {
    "./a.txt": b"A.",
    "._a.txt": b"\0\5",
    "__MACOSX/b.txt": b"\0",
    ".git/c.txt": b"No.",
    "d.rst": b"No.",
}
# name: (format, {file: content}, documents, counts)
KINDS = {
    "untitled": (
        "jsonl",
        {"a": b'{"title": "", "text": "B."}\n{"text": "C.", "id": 3}'},
        [("", "B.", ""), ("", "C.", "3")],
        {},
    ),
    "beir": (
        "beir",
        {"x/corpus.jsonl": LINE, "x/queries.jsonl": b"{}", "qrels/test.tsv": b"q\td\t1"},
        [OSLO],
        {"other_extension": 2},
    ),
    "beir in capitals, zipped": (
        "beir",
        {"a.zip": zipped({"x/Corpus.JSONL": LINE, "x/queries.jsonl": b"{}"})},
        [OSLO],
        {"other_extension": 1},
    ),
    "parquet": (
        "parquet",
        {"train-00000-of-00001.parquet": HF, "README.md": b"#"},
        [OSLO, ("", "B.", "8")],
        {"other_extension": 1},
    ),
    "parquet of numbers as ids": (
        "parquet",
        {"a.parquet": parquet({"id": [7], "title": ["Oslo"], "text": ["Oslo is new."]})},
        [OSLO],
        {},
    ),
    "parquet in a tar": (
        "parquet",
        {"a.tar": tar({"x/a.PARQUET": HF})},
        [OSLO, ("", "B.", "8")],
        {"link_in_archive": 1},
    ),
    "dump": ("mediawiki", {"pages-articles.xml.bz2": bz2.compress(DUMP)}, [OSLO], DUMP_SKIPPED),
    "dump in another language": (
        "mediawiki",
        {"pages-articles.xml": GERMAN_DUMP},
        [OSLO, ("B", "See Kategorie:Ort and towns.", "8")],
        {},
    ),
    "multistream dump": (
        "mediawiki",
        {
            "multistream.xml.bz2": bz2.compress(DUMP[:300]) + bz2.compress(DUMP[300:]),
            "multistream-index.txt.bz2": bz2.compress(b"1:7:Oslo"),
        },
        [OSLO],
        DUMP_SKIPPED | {"other_extension": 1},
    ),
    "dpr": (
        "dpr",
        {"psgs_w100.tsv": b'id\ttext\ttitle\n7\t"Oslo is ""new""."\tOslo\n8\tB\tOslo\n'},
        [("Oslo", 'Oslo is "new".', "7"), ("Oslo", "B", "8")],
        {},
    ),
    "csv": (
        "csv",
        {"a.CSV": 'id,title,text\r\n7,Oslo,"Oslo\nis, new."\r\n'.encode("utf-8-sig")},
        [("Oslo", "Oslo\nis, new.", "7")],
        {},
    ),
    "csv with semicolons": (
        "csv",
        {"a.csv": b"title;text\nOslo;Oslo, new.\n"},
        [("Oslo", "Oslo, new.", "")],
        {},
    ),
    "csv with a broken row": (
        "csv",
        {"a.csv": "text\nOne.\nca\xe9\nTwo.\nThr\xc3\xa9.\nLa \xc3\xa9.\n".encode("latin-1")},
        [("", "One.", ""), ("", "Two.", ""), ("", "Thré.", ""), ("", "La é.", "")],
        {"not_unicode": 1},
    ),
    "html": (
        "html",
        {"a/p.HTML": PAGE.encode(), "b.htm": b"<p>No title.</p>", "c.css": b"p {}"},
        [
            ("Oslo & more", "Oslo\nOslo is new. It is a city.\nLoose.\nOne\nTwo", ""),
            ("b", "No title.", ""),
        ],
        {"other_extension": 1},
    ),
    "zip": (
        "text",
        {"a.ZIP": zipped(MEMBERS)},
        [("a", "A.", "")],
        {"hidden": 3, "other_extension": 1},
    ),
    "tar with hidden files and a link": (
        "text",
        {"a.tar.xz": tar(MEMBERS, "w:xz")},
        [("a", "A.", "")],
        {"hidden": 3, "other_extension": 1, "link_in_archive": 1},
    ),
    "zst": (
        "jsonl",
        {"a.jsonl.zst": zstd.compress(LINE[:20]) + zstd.compress(LINE[20:])},
        [OSLO],
        {},
    ),
    "tar.zst": (
        "text",
        {"a.tar.zst": zstd.compress(tar({"a.txt": b"A."}))},
        [("a", "A.", "")],
        {"link_in_archive": 1},
    ),
    "compressed without its suffix": (
        "jsonl",
        {"a.jsonl": gzip.compress(LINE), "b": lzma.compress(LINE)},
        [OSLO, OSLO],
        {},
    ),
    "compressed member": (
        "jsonl",
        {"a.tar": tar({"AA/a.jsonl.gz": gzip.compress(LINE)})},
        [OSLO],
        {"link_in_archive": 1},
    ),
    "capitals": (
        "text",
        {"A.TXT": b"A.", "B.Md": b"B.", "C.TXT.GZ": gzip.compress(b"C.")},
        [("A", "A.", ""), ("B", "B.", ""), ("C", "C.", "")],
        {},
    ),
    "hidden files": (
        "text",
        {"a.txt": b"A.", ".b.txt": b"B.", ".d/e.txt": b"E."},
        [("a", "A.", "")],
        {"hidden": 2},
    ),
    "cp1252": (
        "text",
        {"a.txt": "Les élèves étudient à l’école près de la forêt.".encode("cp1252")},
        [("a", "Les élèves étudient à l’école près de la forêt.", "")],
        {},
    ),
    "utf-16": ("jsonl", {"a.jsonl": LINE.decode().encode("utf-16")}, [OSLO], {}),
    "utf-16 without a mark": (
        "csv",
        {"a.csv": "text,id\nŁódź é.,7\n".encode("utf-16-le")},
        [("", "Łódź é.", "7")],
        {},
    ),
    "one damaged line in UTF-8": (
        "jsonl",
        {"a": '{"text": "Øl é."}\n'.encode() + b'{"text": "\xe9"}\n' + '{"text": "ß"}\n'.encode()},
        [("", "Øl é.", ""), ("", "ß", "")],
        {"not_utf8": 1},
    ),
    "containers among text": (
        "jsonl",
        {
            "a.jsonl": LINE,
            "b.7z": b"7z\xbc\xaf\x27\x1c\0\4",
            "c.parquet": HF,
            "d.bin": bytes(range(256)),
        },
        [OSLO],
        {"not_text": 3},
    ),
    "text that begins like a container": (
        "text",
        {"a.txt": b"GIF8 ORC BZh PK", "b.txt": b"BZhang lives."},
        [("a", "GIF8 ORC BZh PK", ""), ("b", "BZhang lives.", "")],
        {},
    ),
    "wikiextractor with more attributes": (
        "wikiextractor",
        {"w": wiki('The "B" side', "Body.", ' language="en" revision="77"').encode()},
        [('The "B" side', "Body.", "7")],
        {},
    ),
    "wikiextractor with its end on the last line": (
        "wikiextractor",
        {"w": (wiki("A", "Body.", end="</doc>\n") + wiki("B", "C.")).encode()},
        [("A", "Body.", "7"), ("B", "C.", "7")],
        {},
    ),
    "wikiextractor with two tags on a line": (
        "wikiextractor",
        {"w": (wiki("A", "Body.", end="\n</doc>") + wiki("B", "C.")).encode()},
        [("A", "Body.", "7"), ("B", "C.", "7")],
        {},
    ),
    "wikiextractor without an end": (
        "wikiextractor",
        {"w": (wiki("A", "Lost.", end="\n") + wiki("B", "C.")).encode()},
        [("B", "C.", "7")],
        {"broken_article": 1},
    ),
    "wikiextractor with an end inside": (
        "wikiextractor",
        {"w": (wiki("A", "Lost.\n</doc>\nmore") + wiki("B", "C.")).encode()},
        [("B", "C.", "7")],
        {"broken_article": 1},
    ),
    "wikiextractor cut short": (
        "wikiextractor",
        {"w": (wiki("B", "C.") + wiki("A", "Lost.", end="")).encode()},
        [("B", "C.", "7")],
        {"broken_article": 1},
    ),
    "wikiextractor with a broken header": (
        "wikiextractor",
        {"w": ("<doc nothing>\nLost.\n</doc>\n" + wiki("B", "C.")).encode()},
        [("B", "C.", "7")],
        {"broken_article": 1},
    ),
    "wikiextractor's JSON with a broken line": (
        "wikiextractor",
        {"w": LINE + b'{"title": \n' + LINE},
        [OSLO, OSLO],
        {"broken_article": 1},
    ),
}
