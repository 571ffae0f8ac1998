"""What `experiments/table2.py` reads, a few lines each, named as the shared files are."""

import io
import json
import lzma
import tarfile
from itertools import product
from pathlib import Path

from table2_small import corpora, questions

from realm_jax.corpus.documents import Document
from realm_jax.text.vocabulary import write_vocabulary
from support import tiny_corpus

LANDS = ("Ora", "Ube", "Ilo", "Aru", "Eta", "Osk", "Ani", "Ulm")
CITIES = [f"What is the capital of {land}?" for land in LANDS]


def documents() -> list[Document]:
    """Articles that go on beyond their beginning, and say there again what the beginning says."""
    return [_article(number, land) for number, land in enumerate(LANDS)]


def _article(number: int, land: str) -> Document:
    year = 1500 + number
    sentences = [f"The capital of {land} is City{number} since {year}."]
    rivers = list(product(LANDS, LANDS, ("is", "was")))[4 * number :]  # lengths differ
    sentences += [f"The river in {a} {verb} {b} of {land} since {year}." for a, b, verb in rivers]
    return Document(land, " ".join(sentences), "made up")


def write_data(folder: Path, tagged: str) -> None:
    """All files of the shared data that the miniature names; `tagged` is text as CoNLL has it."""
    write_vocabulary(folder / corpora.VOCABULARY, tiny_corpus.vocabulary())
    (folder / corpora.TAGGED).write_bytes(lzma.compress(tagged.encode()))
    articles = "".join(
        f'<doc id="{row}" url="https://x?curid={row}" title="{one.title}">\n'
        f"{one.title}\n\n{one.body}\n</doc>\n"
        for row, one in enumerate(documents())
    )
    _pack(folder / corpora.SAMPLE, "AA/wiki_00", articles)
    stories = "".join(
        f"<REUTERS>\n<TITLE>{one.title}</TITLE>\n<BODY>{one.body}</BODY>\n</REUTERS>\n"
        for one in documents()
    )
    _pack(folder / corpora.NEWS, "reut2-000.sgm", stories)
    write_questions(folder)


def _pack(path: Path, name: str, text: str) -> None:
    with tarfile.open(path, "w:xz") as packed:
        entry = tarfile.TarInfo(name)
        entry.size = len(text.encode())
        packed.addfile(entry, io.BytesIO(text.encode()))


def write_questions(folder: Path) -> None:
    """The question files: also one that all passages answer, one none, one in dev, one unnamed."""
    asked = [(CITIES[n], [f"City{n}"]) for n in range(4)]
    asked += [("What is everywhere?", ["the capital"]), ("What is nowhere?", ["zebra"])]
    asked += [("What is twice in Ulm?", ["City7"]), ("What is it?", ["City6"])]
    lines = [json.dumps({"question": q, "answer": a}) for q, a in asked]
    (folder / questions.SOURCES["nq_train"][0]).write_bytes(
        lzma.compress("\n".join(lines).encode())
    )
    (folder / questions.SOURCES["nq_dev"][0]).write_text(
        f"What is twice in Ulm?\t['City7']\n{CITIES[5]}\t['City5']\n"
    )
    entries = [{"qText": CITIES[6], "answers": ["City6"]}]
    (folder / "webquestions.val.json").write_text(json.dumps(entries))
    trec = f"1\tX\t{CITIES[1]}\tCity1\n2\tX\tWhere?\tzebra|lion\n"
    (folder / questions.SOURCES["trec"][0]).write_text(trec)
    qas = [{"id": "1", "question": CITIES[2], "answers": [{"text": "City2"}]}]
    squad = {"data": [{"paragraphs": [{"qas": qas}]}]}
    (folder / questions.SOURCES["squad"][0]).write_bytes(lzma.compress(json.dumps(squad).encode()))
