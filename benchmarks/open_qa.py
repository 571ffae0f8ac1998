"""Question files and gold spans: seconds and peak memory of reading, and of finding answers.

  python benchmarks/open_qa.py --data=FOLDER > open_qa.json

FOLDER holds the files of `FILES` and a BERT vocab.txt. Each file is read in a process of its own,
so that its peak memory is its own. The passages searched are paragraphs of SQuAD, drawn at random
for each question: hardly any holds the answer. Of retrieved passages more do, and those cost more.
"""

import argparse
import json
import lzma
import multiprocessing
import random
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from realm_jax.data.answers import accepted
from realm_jax.data.published_splits import compared
from realm_jax.data.question_files import read_questions
from realm_jax.text.wordpiece import WordPieces

FILES = {
    "topics.dpr.nq.dev.txt": "nq",
    "NQ-open.train.partial55589.jsonl.xz": "nq",
    "webquestions.*.json": "webquestions",
    "curatedtrec.large2180-train.tsv": "trec",
    "squad-train-v1.1.json.xz": "squad",
}
VOCABULARY = "bert-base-uncased-vocab.txt"
QUESTIONS, PASSAGES, WIDEST = 1000, 100, 10


def _paragraphs(data: Path) -> list[str]:
    with lzma.open(data / "squad-train-v1.1.json.xz") as file:
        articles = json.load(file)["data"]
    return [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]


def _measure(data: Path, name: str, format: str) -> dict[str, Any]:
    before, began = _peak(), _clocks()
    questions = read_questions(str(data / name), format)
    reading = {
        "questions": len(questions),
        "published": compared(format, len(questions)),
        "read_seconds": _since(began),
        "read_peak_bytes": _peak(),
        "peak_bytes_before": before,
    }
    return reading | _spans(data, questions)


def _spans(data: Path, questions: list[Any]) -> dict[str, Any]:
    words, rng = WordPieces.load(data / VOCABULARY), random.Random(0)
    paragraphs = rng.sample(_paragraphs(data), 5000)
    offsets = [found for _, found in words.pieces(paragraphs)]
    asked = rng.sample(questions, min(QUESTIONS, len(questions)))
    spans = with_spans = 0
    began = _clocks()
    for question in asked:
        answers = accepted(question)
        for number in rng.sample(range(len(paragraphs)), PASSAGES):
            if answers.may_be_in(paragraphs[number]):
                found = answers.spans(paragraphs[number], offsets[number], WIDEST)
                spans, with_spans = spans + len(found), with_spans + bool(found)
    seconds = _since(began)
    return {
        "searched_passages": len(asked) * PASSAGES,
        "passages_with_an_answer": with_spans,
        "spans": spans,
        "search_seconds": seconds,
        "passages_per_cpu_second": round(len(asked) * PASSAGES / seconds["cpu"]),
        "search_peak_bytes": _peak(),
    }


def _clocks() -> dict[str, float]:
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


def _since(began: dict[str, float]) -> dict[str, float]:
    return {clock: round(now - began[clock], 2) for clock, now in _clocks().items()}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Prints one JSON object: a record for each file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the files")
    data = parser.parse_args().data
    report = {}
    for name, format in FILES.items():
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
            report[name] = fresh.submit(_measure, data, name, format).result()
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
