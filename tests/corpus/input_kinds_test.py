"""What people bring as text: every kind of file with its right documents and counts."""

import bz2
import gzip
import importlib
import os
from io import BytesIO
from pathlib import Path, PurePosixPath

import pytest
from input_kinds import DUMP, HF, KINDS, LINE, OSLO, parquet, tar, zipped, zstd
from support.pdf import PDF

from realm_jax.corpus.documents import Columns
from realm_jax.corpus.input_files import STANDARD_INPUT, file_id
from realm_jax.corpus.readers import read
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import InputError


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return str(folder)


def run(format, input, **how):
    skipped, found = Skipped(), []
    for one in read(format, input, skipped, **how):
        is_file = one.id == str(PurePosixPath(one.where))  # see the test of these ids
        found.append((one.title, one.text, "" if is_file else one.id))
    return found, skipped


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_gives_its_documents_and_counts_what_is_left_out(tmp_path, kind):
    format, files, documents, counts = KINDS[kind]
    found, skipped = run(format, write(tmp_path, files))
    assert found == documents
    assert skipped == counts
    for reason, count in counts.items():
        assert len(skipped.names[reason]) == min(count, 5)
        assert all(skipped.names[reason])


def test_the_id_of_a_document_that_is_a_file_is_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(
        Path(),
        {"notes/sub/a.txt": b"A.", "notes/p.html": b"<p>P.", "b.ZIP": zipped({"./m.txt": b"M."})},
    )

    def ids(format, input):
        return [document.id for document in read(format, input, Skipped())]

    assert ids("text", "notes") == ids("text", "./notes/**/*.txt") == ["notes/sub/a.txt"]
    assert ids("html", "notes/p.html") == ["notes/p.html"]
    assert ids("text", "b.ZIP") == ["b.ZIP!/m.txt"]
    write(Path(), {STANDARD_INPUT: b"A."})
    assert ids("text", STANDARD_INPUT) == [""]
    assert file_id(os.fsdecode(b"notes/\xff.txt")) == ""


def test_symbolic_links_are_followed_once(tmp_path):
    outside = tmp_path / "outside"
    write(tmp_path, {"outside/sub/b.txt": b"B.", "in/a.txt": b"A."})
    (tmp_path / "in" / "linked").symlink_to(outside)
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "0.txt").symlink_to(tmp_path / "in" / "a.txt")
    (tmp_path / "in" / "gone.txt").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "in" / "pipe.txt")
    found, skipped = run("text", str(tmp_path / "in"))
    assert [title for title, *_ in found] == ["a", "b"]
    assert skipped == {"repeated_link": 2, "broken_link": 1, "no_regular_file": 1}
    assert skipped.names["broken_link"] == [str(tmp_path / "in" / "gone.txt")]


def test_detected_encodings_are_counted_and_a_stated_one_is_used(tmp_path):
    text = "Привет мир, как дела у вас сегодня"
    write(tmp_path, {"a.txt": text.encode("cp1251"), "b.txt": text.encode()})
    found, skipped = run("text", str(tmp_path))
    assert [body for _, body, _ in found] == [text, text]
    assert skipped.decoded == {"cp1251": 1}
    assert skipped.decoded.names["cp1251"] == [str(tmp_path / "a.txt")]
    (tmp_path / "b.txt").unlink()
    assert run("text", str(tmp_path), encoding="koi8-r")[0][0][1] == text.encode("cp1251").decode(
        "koi8-r"
    )
    assert run("text", str(tmp_path), encoding="ascii")[1] == {"not_utf8": 1}


@pytest.mark.parametrize("suffix", ["zip", "tar", "tar.gz"])
def test_an_encoding_is_detected_alike_in_a_folder_and_in_archives(tmp_path, suffix):
    late = ("Plain words. " * 1000 + "Où est le café de la forêt, près du château ?").encode(
        "cp1252"
    )
    members = {"late.txt": late, "gz.txt": gzip.compress(late), "utf8.txt": "Où ?".encode()}
    archive = zipped(members) if suffix == "zip" else tar(members, "w:" + suffix[4:])
    folder = run("text", write(tmp_path / "folder", members))
    assert len(folder[0]) == 3 and folder[1].decoded == {"cp1252": 2}
    found, skipped = run("text", write(tmp_path / suffix, {f"a.{suffix}": archive}))
    assert sorted(found) == sorted(folder[0])
    assert skipped.decoded == folder[1].decoded
    assert skipped == ({} if suffix == "zip" else {"link_in_archive": 1})


def test_fields_of_other_names_are_stated(tmp_path):
    columns = Columns(title="name", text="body", id="key")
    write(tmp_path, {"a.csv": b"name,body,key\nOslo,Oslo is new.,7\n"})
    write(tmp_path, {"a.jsonl": b'{"name": "Oslo", "body": "Oslo is new.", "key": 7}'})
    write(
        tmp_path, {"a.parquet": parquet({"key": [7], "name": ["Oslo"], "body": ["Oslo is new."]})}
    )
    for format in ("csv", "jsonl", "parquet"):
        path = str(tmp_path / f"a.{format}")
        assert run(format, path, columns=columns)[0] == [OSLO]
        with pytest.raises(InputError, match="--columns=text=BODY"):
            run(format, path)


WORD = zipped({"[Content_Types].xml": b"<x/>", "word/document.xml": b"<x/>"})


@pytest.mark.parametrize(
    ("format", "content", "words"),
    [
        ("jsonl", b"7z\xbc\xaf\x27\x1c\0\4", ["7-Zip archive", "7z x"]),
        ("jsonl", b"Rar!\x1a\x07\0", ["RAR archive"]),
        ("text", HF, ["Parquet file", "--format=parquet"]),
        ("csv", b"%PDF-1.7\n", ["PDF file", "--format=pdf"]),
        ("text", WORD, ["Word file", "--format=docx"]),
        ("text", b"SQLite format 3\0", ["SQLite"]),
        ("text", bytes(range(256)), ["binary data"]),
        ("parquet", LINE, ["no Parquet file"]),
        ("parquet", HF[:-9], ["damaged"]),
        ("parquet", parquet({"text": [[1]]}), ["column is not text", "list"]),
        ("mediawiki", b"<html></html>", ["not a MediaWiki dump", "<html>"]),
        ("mediawiki", bz2.compress(b"1:7:Oslo\n"), ["not a MediaWiki dump", "dump itself"]),
        ("mediawiki", DUMP[:-30], ["damaged or cut short"]),
        ("mediawiki", bz2.compress(DUMP)[:-20], ["damaged or cut short"]),
        ("jsonl", zstd.compress(LINE)[:-3], ["damaged or cut short"]),
        ("csv", b"title,body\nA,b\n", ["no field 'text'", "title, body", "--columns"]),
        ("csv", b"title,text\nA\n", ["number of fields", ":2"]),
        ("csv", b'title,text\nA,"b\n', ["CSV", "line 2"]),
        ("tsv", b'title\ttext\nA\t"b" c\n', ["CSV", "line 2", "doubled"]),
        ("csv", b"id,text,text\n1,a,b\n", ["several columns", "'text'", "--columns"]),
        ("tsv", b"", ["no field 'text'"]),
        ("jsonl", b'{"title": "A", "body": "b"}', ["no field 'text'", "title, body\n"]),
    ],
)
def test_a_file_of_another_kind_is_named_as_what_it_is(tmp_path, format, content, words):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError) as error:
        run(format, str(tmp_path / "file"))
    for word in [*words, "file"]:
        assert word in str(error.value)


@pytest.mark.parametrize("algorithm", ["AES-128", "AES-256"])
def test_encrypted_pdf_files_are_skipped_if_nothing_decrypts_them(tmp_path, monkeypatch, algorithm):
    pytest.importorskip("cryptography")
    pypdf = pytest.importorskip("pypdf")
    file = pypdf.PdfWriter(BytesIO(PDF))
    file.encrypt("", "owner", algorithm=algorithm)  # to read it needs no password
    file.write(tmp_path / "Paper.pdf")
    found, _ = run("pdf", str(tmp_path))
    assert [body.strip() for _, body, _ in found] == ["Oslo is new."]
    without = importlib.import_module("pypdf._crypt_providers._fallback")
    for name in ("CryptAES", "aes_cbc_decrypt", "aes_cbc_encrypt", "aes_ecb_decrypt"):
        monkeypatch.setattr(f"pypdf._encryption.{name}", getattr(without, name))
    assert run("pdf", str(tmp_path)) == ([], {"encrypted": 1})


def test_pdf_and_word_files_are_read(tmp_path, caplog):
    docx = pytest.importorskip("docx")
    pypdf = pytest.importorskip("pypdf")
    file = docx.Document()
    file.add_heading("Oslo")
    file.add_paragraph("Oslo is new.")
    file.add_table(1, 2).rows[0].cells[1].text = "Cell."
    file.save(tmp_path / "Town.docx")
    assert run("docx", str(tmp_path))[0] == [("Town", "Oslo\nOslo is new.\n Cell.", "")]
    write(tmp_path, {"Paper.PDF": PDF, "broken.pdf": b"%PDF-1.4 nothing"})
    locked = pypdf.PdfWriter()
    locked.add_blank_page(100, 100)
    locked.encrypt("secret", algorithm="RC4-128")
    locked.write(tmp_path / "locked.pdf")
    found, skipped = run("pdf", str(tmp_path))
    assert [(title, body.strip()) for title, body, _ in found] == [("Paper", "Oslo is new.")]
    assert skipped == {"other_extension": 1, "damaged": 1, "encrypted": 1}
    assert not caplog.records  # pypdf's own warnings do not name the file
    (tmp_path / "Town.docx").write_bytes(WORD)
    assert run("docx", str(tmp_path / "Town.docx")) == ([], {"damaged": 1})
    file.save(tmp_path / "Oslo.docx")
    whole = (tmp_path / "Oslo.docx").read_bytes()
    write(tmp_path / "more", {"Good.docx": whole, "~$Good.docx": b"user", "Cut.docx": whole[:-900]})
    (tmp_path / "more" / "Other.docx").write_bytes(b"PK no archive")
    found, skipped = run("docx", str(tmp_path / "more"))
    assert [title for title, *_ in found] == ["Good"]
    assert skipped == {"hidden": 1, "damaged": 2}


def test_merged_and_nested_cells_of_a_word_table_are_read_once(tmp_path):
    docx = pytest.importorskip("docx")
    file = docx.Document()
    table = file.add_table(3, 3)
    table.cell(0, 0).merge(table.cell(0, 2)).text = "Report of Bergen"
    table.cell(1, 0).merge(table.cell(2, 0)).text = "Ships"
    table.cell(1, 1).text = "12"
    table.cell(2, 2).add_table(1, 1).cell(0, 0).text = "inside"
    file.save(tmp_path / "Town.docx")
    [(_, text, _)], _ = run("docx", str(tmp_path))
    assert text.split() == ["Report", "of", "Bergen", "Ships", "12", "inside"]


def test_a_folder_that_cannot_be_read_is_counted(tmp_path, monkeypatch):
    write(tmp_path, {"a.txt": b"Oslo is new.", "private/b.txt": b"Bergen is old."})
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "private":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root may read everything
    found, skipped = run("text", str(tmp_path))
    assert len(found) == 1 and skipped == {"unreadable_folder": 1}


def test_a_file_that_cannot_be_read_is_counted(tmp_path, monkeypatch):
    write(tmp_path, {"a.txt": b"Oslo is new.", "b.txt": b"Bergen is old."})
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "b.txt")  # as above
    found, skipped = run("text", str(tmp_path))
    assert len(found) == 1 and skipped == {"unreadable_file": 1}


def test_a_glob_that_python_refuses_is_refused_with_a_glob_that_works(tmp_path):
    write(tmp_path / "deep" / "er", {"Oslo.txt": b"Oslo is new."})
    for glob in ("**.txt", "**x/*.txt"):
        with pytest.raises(InputError, match=r"glob|no input file"):
            run("text", str(tmp_path / glob))
    assert len(run("text", str(tmp_path / "**" / "*.txt"))[0]) == 1


def test_names_of_all_kinds_are_formats():
    from realm_jax.corpus.readers import FORMATS

    used = {format for format, *_ in KINDS.values()} | {"pdf", "docx", "cc_news", "reuters"}
    assert used | {"tsv", "tfds"} == set(FORMATS)
