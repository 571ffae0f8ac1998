"""Seconds and peak memory of reading question files, and of finding answer spans in passages.

Command:  python benchmarks/open_qa.py --data=FOLDER [--json]
Data:     FOLDER holds the files named in `FILES` and a BERT vocabulary
Output:   for each question file: reading and searching time, and peak memory
Time:     some minutes on two cores

Each file is read in a new process, so that peak memory is measured per file. The searched passages
are random SQuAD paragraphs, of which few contain the answer. Retrieved passages contain it more
often and take longer.
"""

import json
import lzma
import multiprocessing
import random
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from command_line import make_parser, write_report

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
QUESTIONS, PARAGRAPHS, PASSAGES, MAX_PIECES = 1000, 5000, 100, 10


def _paragraphs(data: Path) -> list[str]:
    with lzma.open(data / "squad-train-v1.1.json.xz") as file:
        articles = json.load(file)["data"]
    return [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]


def _measure(data: Path, name: str, format: str) -> dict[str, Any]:
    before, began = _peak_bytes(), _clocks()
    questions = read_questions(str(data / name), format)
    reading = {
        "questions": len(questions),
        "published": compared(format, len(questions)),
        "read_seconds": _since(began),
        "read_peak_bytes": _peak_bytes(),
        "peak_bytes_before": before,
    }
    return reading | _measure_spans(data, questions)


def _measure_spans(data: Path, questions: list[Any]) -> dict[str, Any]:
    tokenizer, rng = WordPieces.load(data / VOCABULARY), random.Random(0)
    paragraphs = _paragraphs(data)
    paragraphs = rng.sample(paragraphs, min(PARAGRAPHS, len(paragraphs)))
    offsets = [found for _, found in tokenizer.pieces(paragraphs)]
    chosen = rng.sample(questions, min(QUESTIONS, len(questions)))
    spans = with_spans = 0
    began = _clocks()
    for question in chosen:
        answers = accepted(question)
        for number in rng.sample(range(len(paragraphs)), PASSAGES):
            if answers.may_be_in(paragraphs[number]):
                found = answers.spans(paragraphs[number], offsets[number], MAX_PIECES)
                spans, with_spans = spans + len(found), with_spans + bool(found)
    seconds = _since(began)
    return {
        "searched_passages": len(chosen) * PASSAGES,
        "passages_with_an_answer": with_spans,
        "spans": spans,
        "search_seconds": seconds,
        "passages_per_cpu_second": round(len(chosen) * PASSAGES / seconds["cpu"]),
        "search_peak_bytes": _peak_bytes(),
    }


def _clocks() -> dict[str, float]:
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


def _since(began: dict[str, float]) -> dict[str, float]:
    return {clock: now - began[clock] for clock, now in _clocks().items()}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the files")
    arguments = parser.parse_args()
    report = {}
    for name, format in FILES.items():
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
            report[name] = fresh.submit(_measure, arguments.data, name, format).result()
    write_report(report, arguments)


if __name__ == "__main__":
    main()
