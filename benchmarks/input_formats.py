"""Time and memory of building a corpus from the same articles in three formats.

Command:  python benchmarks/input_formats.py --data=FOLDER [--quick] [--dump=FILE]
Data:     FOLDER holds enwiki-2018-sample.wikiextractor.tar.xz (WikiExtractor files) and
          bert-base-uncased-vocab.txt; FILE is a dump such as enwiki-…-pages-articles.xml.bz2
Output:   for `wikiextractor`, `parquet`, `mediawiki` (plain XML) and `mediawiki_bz2`: input size,
          passages, CPU seconds and peak memory of `realm corpus build` in a new process, and both
          as multiples of those of `wikiextractor`. Without --dump, the markup of the dump is made:
          links, bold names and a cited reference after each sentence, which doubles the text as in
          real dumps
Time:     --quick (an eighth of the sample) two minutes on two cores; else eight times that
"""

import bz2
import html
import re
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from command_line import make_parser, write_report
from corpus_build import timed_build
from pyarrow import parquet

from realm_jax.corpus.documents import Document
from realm_jax.corpus.readers import read
from realm_jax.corpus.tally import Skipped

SAMPLE, VOCABULARY = "enwiki-2018-sample.wikiextractor.tar.xz", "bert-base-uncased-vocab.txt"
ARTICLES = 7570
ROWS = 1000  # of a row group, as in Hugging Face's files
REFERENCE = (
    "<ref>{{{{cite book|last=Smith|first=J. {n}|title=A short history|publisher=Press|"
    "year=19{n:02}}}}}</ref>"
)


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__, quick=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dump", type=Path, help="a real dump, instead of made markup")
    arguments = parser.parse_args()
    count = ARTICLES // 8 if arguments.quick else ARTICLES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.dump:
            articles = list(islice(read("mediawiki", str(arguments.dump), Skipped()), count))
        else:
            sample = read("wikiextractor", str(arguments.data / SAMPLE), Skipped())
            articles = list(islice(sample, count))
        inputs = write_inputs(folder, articles)
        report: dict[str, Any] = {"articles": len(articles)}
        for form, path in inputs.items():
            format = form.partition("_")[0]
            report[form] = measure(format, path, folder / form, arguments.data / VOCABULARY)
    for form in ("parquet", "mediawiki", "mediawiki_bz2"):
        base, found = report["wikiextractor"], report[form]
        for key in ("cpu_seconds", "peak_memory_bytes"):
            found[f"{key}_ratio"] = found[key] / base[key]
    write_report(report, arguments)


def write_inputs(folder: Path, articles: list[Document]) -> dict[str, Path]:
    """Writes the articles in each form."""
    paths = {
        "wikiextractor": folder / "wiki_00",
        "parquet": folder / "a.parquet",
        "mediawiki": folder / "a.xml",
        "mediawiki_bz2": folder / "a.xml.bz2",
    }
    with paths["wikiextractor"].open("w", encoding="utf-8") as file:
        for i, one in enumerate(articles):
            title, text = html.escape(one.title), html.escape(one.text, quote=False)
            file.write(f'<doc id="{i}" url="u" title="{title}">\n{title}\n\n{text}\n</doc>\n')
    columns = {
        "id": [str(i) for i in range(len(articles))],
        "title": [one.title for one in articles],
        "text": [one.text for one in articles],
    }
    parquet.write_table(pa.table(columns), paths["parquet"], row_group_size=ROWS)
    with paths["mediawiki"].open("w", encoding="utf-8") as file:
        file.write('<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">\n')
        file.writelines(_page(i, one) for i, one in enumerate(articles))
        file.write("</mediawiki>\n")
    paths["mediawiki_bz2"].write_bytes(bz2.compress(paths["mediawiki"].read_bytes()))
    return paths


def _page(number: int, article: Document) -> str:
    source = article.body if article.markup else "".join(_marked(article.body))
    return (
        f"<page>\n<title>{html.escape(article.title)}</title>\n<ns>0</ns>\n<id>{number}</id>\n"
        f"<revision>\n<id>{number}</id>\n<model>wikitext</model>\n<format>text/x-wiki</format>\n"
        f'<text xml:space="preserve">{html.escape(source)}</text>\n</revision>\n</page>\n'
    )


def _marked(text: str) -> Iterator[str]:
    """Wikitext for a plain text: links, bold names and references."""
    for number, sentence in enumerate(re.split(r"(?<=\.)(?=\s)", text)):
        yield re.sub(r"\b([A-Z]\w+ [A-Z]\w+)\b", r"'''[[\1 (article)|\1]]'''", sentence)
        yield REFERENCE.format(n=number % 100)


def measure(form: str, input: Path, out: Path, vocabulary: Path) -> dict[str, Any]:
    """Runs `realm corpus build` with one worker; CPU time, because machines are busy."""
    report = timed_build(format=form, input=input, out=out, vocab=vocabulary)
    kept = ("documents", "passages", "pieces", "seconds", "cpu_seconds", "peak_memory_bytes")
    return {"input_bytes": input.stat().st_size, **{key: report[key] for key in kept}}


if __name__ == "__main__":
    main()
