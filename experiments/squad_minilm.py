r"""A reader and span head that start from MiniLM and learn from SQuAD's training questions.

Data:     SQuAD v1.1 train (CC BY-SA 4.0), which has 442 articles: every tenth is held out
Command:  python experiments/squad_minilm.py --squad=train-v1.1.json --home=runs/squad \
              --start=sentence-transformers/all-MiniLM-L6-v2
          then, over any corpus built with the vocabulary of the weights, for example its own:
          realm run --config=as_is --config.model.start=runs/squad/weights \
              --config.corpus.knowledge=runs/squad/corpus --workdir=runs/mine_qa
Hours:    1.9 on two CPU cores that other programs shared (load 4 to 6): 10 minutes for the index,
          91 for 2,000 steps, 9 to judge 2,000 questions
Expect:   on 2,000 questions about held-out articles, over the 33,939 passages of all articles:
          exact match 32.5 %, F1 44.1 %; an answer is in the first passage for 61.0 %, in the first
          five for 80.8 %. One seed. The log is experiments/results/squad_minilm.jsonl

A question is answered from the passages of all articles, held-out ones too: the paragraph of the
question is not given.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.cli.scripts import (
    exit_with,
    parse_script,
    require_same_settings,
    run_realm,
    script_parser,
)
from realm_jax.corpus.input_files import Wanted, streams
from realm_jax.errors import InputError

HELD_OUT_EVERY = 10  # articles
QUESTIONS = 8_000  # training questions, at equal distances; each is used once


def get_config() -> ConfigDict:
    """The embedder as it comes; only stage `qa` trains."""
    config = config_lib.from_file("as_is")
    config.lengths.update(query=40, passage=128, joint=168, answer=10)
    config.stages.qa.update(steps=QUESTIONS // 4, batch=4, learning_rate=1e-4)
    config.stages.qa.update(reader_passages=3, retriever_passages=10)
    config.optimizer.b2 = 0.98
    config.checkpoint.every = 200
    config.report.update(every=50, max_passages=0)  # the report would embed the corpus again
    return config


def main() -> int:
    """Splits SQuAD, builds the corpus, trains, evaluates and exports; a rerun resumes."""
    parser = script_parser(__doc__)
    parser.add_argument("--squad", type=Path, required=True, help="SQuAD v1.1 train, JSON")
    parser.add_argument("--start", required=True, help="folder or ORG/NAME of an encoder")
    parser.add_argument("--home", type=Path, required=True, help="folder of all results")
    arguments, overrides = parse_script(parser)
    home, start = arguments.home, arguments.start
    prepare(arguments.squad, start, home)
    corpus, workdir, weights = home / "corpus", home / "run", home / "weights"
    if not (corpus / "spans" / "MANIFEST.json").exists():
        build = ["corpus", "build", "--format=beir", f"--input={home / 'corpus.jsonl'}"]
        run_realm(*build, f"--vocab={start}", f"--out={corpus}", "--passage-pieces=128")
    train = ["run", f"--config={__file__}", f"--workdir={workdir}", f"--config.model.start={start}"]
    train += [f"--config.corpus.knowledge={corpus}", "--config.corpus.questions_format=squad"]
    run_realm(*train, f"--config.corpus.questions={home / 'train.json'}", *overrides)
    held_out = ["eval", f"--workdir={workdir}", f"--questions={home / 'held_out.json'}"]
    run_realm(*held_out, "--format=squad", "--json", output=home / "scores.txt")
    shutil.rmtree(weights, ignore_errors=True)  # an earlier export may be incomplete
    run_realm("export", f"--workdir={workdir}", f"--to={weights}")
    sys.stdout.write((home / "scores.txt").read_text().splitlines()[-1] + "\n")
    return 0


def prepare(squad: Path, start: str, home: Path) -> None:
    """Writes the parts of SQuAD; what a folder has of another file or encoder is not used.

    Raises:
      InputError: not a SQuAD file, or the folder has results of another one or of another encoder.
    """
    articles = read_articles(squad)
    digest = hashlib.sha256(json.dumps(articles).encode()).hexdigest()[:16]
    require_same_settings(home, {"squad": digest, "start": start})
    write_parts(articles, home)


def read_articles(squad: Path) -> list[dict[str, Any]]:
    """The articles of a SQuAD file.

    Raises:
      InputError: not a SQuAD file.
    """
    if not squad.exists():
        raise InputError("no such file", where=f"--squad={squad}", fix="give the path of its file")
    try:
        opened = streams(str(squad), Wanted(text=False))
        articles = [article for one in opened for article in json.load(one.file)["data"]]
        if not list(documents(articles)) or not sample(articles, most=1):
            raise ValueError("no questions")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "not a SQuAD file", where=squad, expected='JSON {"data": [...]}', found=repr(error)
        ) from error
    return articles


def documents(articles: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """The paragraphs of all articles, as lines of corpus.jsonl."""
    for number, article in enumerate(articles):
        for place, paragraph in enumerate(article["paragraphs"]):
            title = article["title"].replace("_", " ")
            yield {"_id": f"{number}-{place}", "title": title, "text": paragraph["context"]}


def write_parts(articles: list[dict[str, Any]], home: Path) -> None:
    """Writes corpus.jsonl, train.json and held_out.json, split by article."""
    with (home / "corpus.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(document)}\n" for document in documents(articles))
    parts = {
        "train": [a for i, a in enumerate(articles) if i % HELD_OUT_EVERY],
        "held_out": articles[::HELD_OUT_EVERY],
    }
    for name, part in parts.items():
        most = QUESTIONS if name == "train" else QUESTIONS // 4
        content = {"data": sample(part, most)}
        (home / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def sample(articles: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most `most` questions, at equal distances, in articles with one paragraph."""
    pairs = [(a["title"], q) for a in articles for p in a["paragraphs"] for q in p["qas"]]
    chosen = [pairs[i * len(pairs) // most] for i in range(most)] if len(pairs) > most else pairs
    return [
        {"title": title, "paragraphs": [{"context": "", "qas": [question]}]}
        for title, question in chosen
    ]


if __name__ == "__main__":
    exit_with(main)
