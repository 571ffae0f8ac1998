"""Files that people bring: a valid one of each kind, with the function that reads it."""

import bz2
import io
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from etils import epath
from pyarrow import parquet
from support.pdf import PDF

from realm_jax import config as config_lib
from realm_jax.corpus import readers
from realm_jax.corpus.tally import Skipped
from realm_jax.data.question_files import READERS as QUESTIONS
from realm_jax.data.question_files import read_questions
from realm_jax.interop.block_records import convert_block_records
from realm_jax.interop.safetensors_file import read_safetensors
from realm_jax.interop.tensor_bundle import read_bundle
from realm_jax.interop.torch_file import read_torch
from realm_jax.storage.appendable import complete_lines
from realm_jax.storage.logs import read_log
from realm_jax.tagging.conll import read_conll, read_predictions
from realm_jax.text.wordpiece import WordPieces

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HERE = Path(__file__).parents[1]


def packed(name, content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def corpus_of(format):
    return lambda path: [one.text for one in readers.read(format, str(path), Skipped())]


def questions_of(format):
    return lambda path: read_questions(path, format)


JSON_LINE = b'{"title": "A", "text": "B c.", "question": "q?", "answers": ["a"], "answer": ["a"]}\n'
# format -> (file name, valid content, function from the format to its reader)
TEXTS = {
    "wikiextractor": ("a", b'<doc id="1" url="u" title="A">\nA\n\nB c.\n</doc>\n', corpus_of),
    "jsonl": ("a", JSON_LINE, corpus_of),
    "text": ("a.txt", "Gr\u00fc\u00dfe.".encode(), corpus_of),
    "cc_news": ("a", b'{"title": "A", "maintext": "B", "text": "B", "url": "u"}\n', corpus_of),
    "reuters": (
        "a.sgm",
        b'<REUTERS TOPICS="YES">\n<TEXT><TITLE>A</TITLE><BODY>B c.</BODY></TEXT>\n</REUTERS>\n',
        corpus_of,
    ),
    "own": ("q", JSON_LINE, questions_of),
    "nq": ("q", b"q?\t['a', 'b']\n", questions_of),
    "webquestions": ("q", b'[{"qText": "q?", "answers": ["a"]}]', questions_of),
    "trec": ("q", b"1\tx\tq?\tab?c\n", questions_of),
    "squad": (
        "q",
        b'{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "1", "question": "q?", '
        b'"answers": [{"text": "a", "answer_start": 0}]}]}]}]}',
        questions_of,
    ),
}
TEXTS["beir"] = ("corpus.jsonl", JSON_LINE, corpus_of)
TEXTS["dpr"] = TEXTS["tsv"] = ("p.tsv", b'id\ttext\ttitle\n7\t"B ""c""."\tA\n', corpus_of)
TEXTS["csv"] = ("p.csv", b'id;text;title\r\n7;"B\nc.";A\r\n', corpus_of)
TEXTS["html"] = ("p.html", b"<title>A</title><nav>x</nav><p>B <b>c</b>.<ul><li>D", corpus_of)
TEXTS["mediawiki"] = (
    "p.xml",
    b'<mediawiki xmlns="x"><page><title>A</title><ns>0</ns><id>7</id><revision><text>'
    b"'''B''' [[c|d]] {{e|{{f}}}} &lt;ref&gt;g&lt;/ref&gt;\n{|\n|x\n|}\n[[File:h.png|i]]</text>"
    b"</revision></page></mediawiki>",
    corpus_of,
)
BINARY = {"parquet", "pdf", "docx"}
assert {*readers.FILE_FORMATS, *QUESTIONS} - BINARY == TEXTS.keys()


def readings():
    """Yields (name, file name, valid content, reader)."""
    for format, (name, content, make) in TEXTS.items():
        yield format, name, content, make(format)
    yield "parquet", "a.parquet", parquet_of(), corpus_of("parquet")
    yield "zip", "a.zip", zip_of({"../b.txt": b"A text."}), corpus_of("text")
    yield "zst", "a.txt.zst", zstd.compress(b"A text."), corpus_of("text")
    yield "bz2 dump", "a.xml.bz2", bz2.compress(TEXTS["mediawiki"][1]), corpus_of("mediawiki")
    utf16 = JSON_LINE.decode().encode("utf-16")
    yield "utf-16", "a.jsonl", utf16, corpus_of("jsonl")
    for format, content in (("pdf", PDF), ("docx", docx_of())):
        yield format, f"a.{format}", content, corpus_of(format)
    yield "archive", "a.tar.gz", packed("../../b.txt", b"A text."), corpus_of("text")
    yield "gzip", "a.txt.gz", packed("b.txt", b"A text."), corpus_of("text")
    conll = b"Ora NNP B-NP B-LOC\nis VBZ B-VP O\n\nUbe NNP B-NP B-LOC\n"
    yield "conll", "c", conll, lambda path: read_conll(str(path), "LOC MISC ORG PER")
    yield "predictions", "p", conll, lambda path: list(read_predictions(str(path)))
    yield "config", "config.json", config_lib.to_json(config_lib.default()).encode(), config_at
    yield "vocabulary", "vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n", vocabulary_at
    yield "journal", "j", b'{"a": 1}\n{"b": 2}\n', complete_lines
    yield "log", "l.jsonl", b'{"step": 1}\n', lambda path: read_log(epath.Path(path))
    yield "safetensors", "model.safetensors", safetensors_of(), all_arrays(read_safetensors)
    yield "torch", "data.pkl", PICKLE, pickle_at
    archive = zip_of({"a/data.pkl": PICKLE, "a/data/0": bytes(16)})
    yield "torch archive", "pytorch_model.bin", archive, all_arrays(read_torch)
    google = HERE / "interop" / "google"
    [index] = sorted(google.rglob("*.index"))[:1]
    yield "tensor bundle", "model.ckpt.index", index.read_bytes(), bundle_at
    yield "block records", "block_records.npy", npy_of(), records_at


def parquet_of():
    buffer = io.BytesIO()
    columns = {"id": ["7", "8"], "title": ["A", None], "text": ["B c.", "D."]}
    parquet.write_table(pa.table(columns), buffer, row_group_size=1)
    return buffer.getvalue()


def zip_of(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def docx_of():
    """The parts that a Word file must have."""
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{word}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r" '
        f'Type="{office}" Target="word/document.xml"/></Relationships>',
        "word/document.xml": "<w:document xmlns:w="
        '"http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r>'
        "<w:t>A text.</w:t></w:r></w:p></w:body></w:document>",
    }
    return zip_of(parts)


def config_at(path):
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    config_lib.from_json(text, "config.json")


def vocabulary_at(path):
    WordPieces.load(path)


def bundle_at(path):
    [data] = sorted((HERE / "interop" / "google").rglob("*.data-*"))[:1]
    shutil.copyfile(data, path.with_suffix(f"{data.suffix}"))
    read_bundle(path.with_suffix(""))


def records_at(path):
    convert_block_records(path, path.with_name("out"))


def _text(content):
    return b"X" + len(content).to_bytes(4, "little") + content.encode()


# A state dict as torch pickles it: {"w": four float32 numbers, which are in storage 0}.
_STORAGE = (
    b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + b"K\x04tQ"
)
_ARGUMENTS = b"(" + _STORAGE + b"K\x00K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)Rt"
PICKLE = b"\x80\x02}(" + _text("w") + b"ctorch._utils\n_rebuild_tensor_v2\n" + _ARGUMENTS + b"Ru."


def all_arrays(read):
    return lambda path: [array.read() for array in read(path).values()]


def pickle_at(path):
    """Reads the pickle from an archive whose checksums are right."""
    archive = path.with_name("pytorch_model.bin")
    archive.write_bytes(zip_of({"a/data.pkl": path.read_bytes(), "a/data/0": bytes(16)}))
    all_arrays(read_torch)(archive)


def safetensors_of():
    from safetensors.numpy import save

    return save({"a": np.zeros(3, np.float32)})


def npy_of():
    buffer = io.BytesIO()
    np.save(buffer, np.array([b"a", b"b"], object), allow_pickle=True)
    return buffer.getvalue()


READINGS = {what: rest for what, *rest in readings()}
