"""The judged collections: where they are, and the reference values of the libraries alone."""

import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from realm_jax.errors import InputError


@dataclass(frozen=True)
class Collection:
    """Sizes, and nDCG@10 of bm25s and sentence-transformers (None: not run).

    Attributes:
      documents: number of documents.
      queries: number of queries with a relevant document.
      bm25: Lucene form, k1 0.9, b 0.4, English stemmer and stop words, title and text.
      minilm: all-MiniLM-L6-v2, 256 word pieces.
      about: what the documents are.
    """

    documents: int
    queries: int
    bm25: float
    minilm: float | None
    about: str


COLLECTIONS = {
    "adi": Collection(82, 35, 0.477, 0.487, "information science"),
    "medline": Collection(1_033, 30, 0.671, 0.788, "medical abstracts"),
    "cisi": Collection(1_460, 76, 0.372, 0.421, "information science abstracts"),
    "cranfield": Collection(1_398, 225, 0.343, 0.374, "aerodynamics abstracts"),
    "techqa-answers": Collection(564, 608, 0.524, 0.576, "IBM support answers"),
    "financebench-pages": Collection(168, 150, 0.421, 0.724, "pages of annual reports"),
    "trecqa": Collection(7_053, 167, 0.570, 0.638, "sentences that answer a question"),
    "covidqa": Collection(2_172, 1_380, 0.646, None, "passages of medical articles"),
    "cosqa": Collection(6_267, 500, 0.320, None, "Python functions"),
    "techsupport": Collection(2_463, 2_199, 0.491, 0.691, "Unix and Ubuntu answers"),
    "npl": Collection(11_429, 93, 0.445, 0.436, "abstracts of electronics, lower case"),
}


def unpack(data: Path, name: str, home: Path) -> Path:
    """The folder of a collection: `data/NAME`, or that of `data/NAME.tar.xz` unpacked in `home`.

    Raises:
      InputError: `data` has neither.
    """
    if (data / name / "queries.jsonl").is_file():
        return data / name
    folder, archive = home / "collections" / name, data / f"{name}.tar.xz"
    if folder.is_dir():
        return folder
    if not archive.is_file():
        raise InputError(
            "the collection is not there",
            where=data,
            expected=f"the folder {name} or the archive {archive.name}",
            fix="--data=FOLDER; docs/evidence.md names the sources",
        )
    partial = folder.with_name(f"{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of an interrupted call
    with tarfile.open(archive) as opened:
        opened.extractall(partial, filter="data")
    (partial / name).rename(folder)  # the folder is complete if it exists
    partial.rmdir()
    return folder
