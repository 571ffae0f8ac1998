"""Small inputs of every format, for the commands of docs/how_to/bring_a_corpus.md."""

import bz2
import gzip
import importlib.util
import io
import json
import tarfile
import zipfile
from pathlib import Path

from support.pdf import make_pdf
from support.tfds_wikipedia import Wikipedia

TOWNS = {
    "Oslo": "Oslo is the capital of Norway. It was founded in 1040.",
    "Lima": "Lima is the capital of Peru. It was founded in 1535.",
    "Rome": "Rome is the capital of Italy. It is very old.",
}


def write_sample_inputs(folder: Path) -> None:
    """Writes one input for each format, named as the documents name them."""
    (folder / "simplewiki-latest-pages-articles.xml.bz2").write_bytes(bz2.compress(_dump()))
    (folder / "psgs_w100.tsv.gz").write_bytes(gzip.compress(_table("\t").encode()))
    (folder / "towns.csv").write_text(_table(";").replace("text;title", "body;name"))
    (folder / "towns.tsv").write_text(_table("\t"))
    (folder / "articles.jsonl.gz").write_bytes(gzip.compress(_lines("id")))
    changes = {"t0": "Oslo is in Norway.", "t3": "Lima is old."}
    lines = (json.dumps({"id": id, "text": text}) for id, text in changes.items())
    (folder / "changes.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "scifact.zip").write_bytes(
        _zip({"scifact/corpus.jsonl": _lines("_id"), "scifact/queries.jsonl": b"{}\n"})
    )
    pages = {f"site/{town}.html": _page(town).encode("cp1252") for town in TOWNS}
    (folder / "site.zip").write_bytes(_zip({**pages, "site/style.css": b"p {}"}))
    with tarfile.open(folder / "reuters21578.tar.gz", "w:gz") as archive:
        content = "".join(_story(i, town) for i, town in enumerate(TOWNS)).encode()
        member = tarfile.TarInfo("reut2-000.sgm")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    write_documents(folder)
    write_tfds(folder / "tensorflow_datasets")
    (folder / "wikimedia_wikipedia").mkdir(exist_ok=True)
    (folder / "wikimedia_wikipedia" / "train-00000-of-00001.parquet").write_bytes(_parquet())


def write_documents(folder: Path) -> None:
    """Writes PDF and Word files; without the extra `documents`, only PDF files."""
    for name in ("papers", "letters"):
        (folder / name).mkdir()
    for town, text in TOWNS.items():
        (folder / "papers" / f"{town}.pdf").write_bytes(make_pdf(text))
    if importlib.util.find_spec("docx") is not None:
        import docx

        for town, text in TOWNS.items():
            file = docx.Document()
            file.add_paragraph(text)
            file.save(str(folder / "letters" / f"{town}.docx"))


def write_tfds(folder: Path) -> None:
    """Prepares the data set as ArrayRecord files."""
    builder = Wikipedia(TOWNS.items(), data_dir=str(folder), file_format="array_record")
    builder.download_and_prepare()


def _story(i: int, town: str) -> str:
    body = f"<TITLE>{town.upper()}</TITLE><BODY>{TOWNS[town]}\n Reuter\n&#3;</BODY>"
    return f'<REUTERS NEWID="{i}">\n<TEXT>{body}</TEXT>\n</REUTERS>\n'


def _dump() -> bytes:
    pages = [(town, 0, "", f"'''{town}''' {text[5:]}") for town, text in TOWNS.items()]
    pages += [("Kristiania", 0, '<redirect title="Oslo" />', "#REDIRECT [[Oslo]]")]
    pages += [("Talk:Oslo", 1, "", "Hello.")]
    body = "".join(
        f"<page><title>{title}</title><ns>{ns}</ns><id>{i}</id>{more}<revision>"
        f"<model>wikitext</model><text>{text}</text></revision></page>"
        for i, (title, ns, more, text) in enumerate(pages, 1)
    )
    space = "http://www.mediawiki.org/xml/export-0.11/"
    return f'<mediawiki xmlns="{space}">{body}</mediawiki>'.encode()


def _table(delimiter: str) -> str:
    rows = [("id", "text", "title"), *((i, TOWNS[t], t) for i, t in enumerate(TOWNS, 1))]
    return "".join(delimiter.join(map(str, row)) + "\n" for row in rows)


def _lines(id: str) -> bytes:
    rows = [{id: f"t{i}", "title": town, "text": TOWNS[town]} for i, town in enumerate(TOWNS)]
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _page(town: str) -> str:
    body = f"<nav>Home</nav><h1>{town}</h1><p>{TOWNS[town]} Près de là, la forêt.</p>"
    return f"<html><title>{town}</title><body>{body}</body></html>"


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _parquet() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    ids = [str(i) for i in range(len(TOWNS))]
    buffer = io.BytesIO()
    columns = {"id": ids, "url": ids, "title": list(TOWNS), "text": list(TOWNS.values())}
    parquet.write_table(pa.table(columns), buffer)
    return buffer.getvalue()
