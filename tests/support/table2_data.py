"""Small versions of the data files that `experiments/table2.py` reads."""

import io
import json
import lzma
import tarfile
from itertools import product
from pathlib import Path

from table2_small import all_questions, corpora, encyclopedia, questions

from realm_jax.corpus.documents import Document
from realm_jax.text.vocabulary import write_vocabulary
from support import tiny_corpus

COUNTRIES = ("Ora", "Ube", "Ilo", "Aru", "Eta", "Osk", "Ani", "Ulm")
CITIES = [f"What is the capital of {country}?" for country in COUNTRIES]


def tiny_vocabulary() -> list[str]:
    """The vocabulary of `tiny_corpus`, in which a country is also one piece, as rare as its name.

    Single characters are in every passage, so titles spelt with them would be no rare pieces.
    """
    return [*tiny_corpus.vocabulary(), *(country.lower() for country in COUNTRIES)]


def documents() -> list[Document]:
    """Articles longer than one passage, whose first sentences name no other country."""
    return [_article(number, country) for number, country in enumerate(COUNTRIES)]


def _article(number: int, country: str) -> Document:
    year = 1500 + number
    sentences = [
        f"The capital of {country} is City{number} since {year}.",
        f"The river in {country} is Rio{number} since {year}.",
    ] * 3  # more than fits into a passage of Z
    rivers = product(COUNTRIES, COUNTRIES, ("is", "was"))
    sentences += [
        f"The river in {a} {verb} {b} of {country} since {year}."
        for a, b, verb in list(rivers)[4 * number :]  # each article has another length
    ]
    return Document(country, " ".join(sentences), "made up")


def write_data(folder: Path, tagged: str) -> None:
    """Writes every data file that the small Table 2 experiment names.

    Args:
      folder: an existing folder.
      tagged: sentences with entity tags in CoNLL format.
    """
    write_vocabulary(folder / corpora.VOCABULARY, tiny_vocabulary())
    (folder / corpora.TAGGED).write_bytes(lzma.compress(tagged.encode()))
    articles = "".join(
        f'<doc id="{row}" url="https://x?curid={row}" title="{one.title}">\n'
        f"{one.title}\n\n{one.body}\n</doc>\n"
        for row, one in enumerate(documents())
    )
    _write_archive(folder / corpora.SAMPLE, "AA/wiki_00", articles)
    stories = "".join(
        f"<REUTERS>\n<TITLE>{one.title}</TITLE>\n<BODY>{one.body}</BODY>\n</REUTERS>\n"
        for one in documents()
    )
    _write_archive(folder / corpora.NEWS, "reut2-000.sgm", stories)
    write_articles(folder / encyclopedia.ARTICLES)
    write_questions(folder)


def write_articles(path: Path) -> None:
    """Another encyclopedia: a long article of each country, and three short ones."""
    lines = []
    for number, country in enumerate(COUNTRIES):
        first = f"The capital of {country} is City{number} since {1500 + number}."
        text = " ".join([first, f"The river in {country} is Rio{number}."] + [first] * 40)
        lines.append({"title": f"{country} (country)", "text": text})
        lines += [{"title": f"{country} {n}", "text": "It is short."} for n in range(3)]
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, lines)).encode()))


def _write_archive(path: Path, name: str, text: str) -> None:
    with tarfile.open(path, "w:xz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(text.encode())
        archive.addfile(entry, io.BytesIO(text.encode()))


def write_questions(folder: Path) -> None:
    """Writes the question files.

    Besides ordinary questions, the training set has one whose answer is in every passage, one whose
    answer is in none, one that is also in the dev set, and one that names no country.
    """
    pairs = [(CITIES[n], [f"City{n}"]) for n in range(4)]
    pairs += [("What is everywhere?", ["the capital"]), ("What is nowhere?", ["zebra"])]
    pairs += [("What is twice in Ulm?", ["City7"]), ("What is it?", ["City6"])]
    lines = [json.dumps({"question": q, "answer": a}) for q, a in pairs]
    (folder / questions.SOURCES["nq_train"][0]).write_bytes(
        lzma.compress("\n".join(lines).encode())
    )
    (folder / questions.SOURCES["nq_dev"][0]).write_text(
        f"What is twice in Ulm?\t['City7']\n{CITIES[5]}\t['City5']\n"
    )
    trivia = {"question": CITIES[3], "answers": ["City3", "city 3"]}
    (folder / all_questions.JUDGED["triviaqa_dev"][0]).write_bytes(
        lzma.compress(json.dumps(trivia).encode())
    )
    entries = [{"qText": CITIES[6], "answers": ["City6"]}]
    (folder / "webquestions.val.json").write_text(json.dumps(entries))
    trec = f"1\tX\t{CITIES[1]}\tCity1\n2\tX\tWhere?\tzebra|lion\n"
    (folder / questions.SOURCES["trec"][0]).write_text(trec)
    qas = [{"id": "1", "question": CITIES[2], "answers": [{"text": "City2"}]}]
    squad = {"data": [{"paragraphs": [{"qas": qas}]}]}
    (folder / questions.SOURCES["squad"][0]).write_bytes(lzma.compress(json.dumps(squad).encode()))
