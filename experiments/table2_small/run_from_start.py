"""One run of a row that starts from an encoder: pre-training, then answers over the whole Z.

A run has two folders. In `HOME/ROW_SEED` networks are pre-trained with the smaller Z, whose index
is built often. In its folder `answers`, the whole Z is indexed once, and the networks are
fine-tuned on questions and judged. Rows that combine two other rows have only the second folder.
"""

import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.cli.jobs import run_both
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.store import PassageStore
from realm_jax.inference.answerer import Answerer
from realm_jax.interop.start_config import make_like
from realm_jax.interop.warm_start import weights_folder
from realm_jax.interop.weights import open_weights, weights_of_run, write_weights
from realm_jax.models.modules import Parameters
from realm_jax.report.run_data import read_run
from realm_jax.storage.layout import CHECKPOINTS, VOCABULARY, RunDir
from realm_jax.tagging.mark_corpus import annotate_corpus
from realm_jax.tagging.marker import TaggerMarker
from realm_jax.tagging.small_tagger import start_tagger_config
from realm_jax.tagging.tagger import Tagger
from realm_jax.trainer.checkpoint import final_params
from table2_small import all_questions
from table2_small.corpora import trained_tagger
from table2_small.encyclopedia import ANSWER_PIECES, make_encyclopedia
from table2_small.measure import Sets, measure_questions, measure_text
from table2_small.questions import kept_file
from table2_small.rows import ROWS_FROM_START, row_config, run_folder
from table2_small.run_row import copy_parts, kept_metrics, warm_reader

SETS = Sets(tuple(all_questions.JUDGED), tuple(all_questions.JUDGED), most=None)
ANSWERS = "answers"  # folder of the second run
RULES = "rules"  # marks of `realm corpus build`, instead of those of a tagger
# Of a question with a passage: a long question cuts the ends of the longest passages. Rows are
# padded, so room for every question would make reading an eighth slower.
JOINT_PIECES = ANSWER_PIECES + 24


def prepare(home: Path, data: Path, base: ConfigDict, stop: threading.Event, tagger: str) -> None:
    """Writes the corpora and questions that all runs share; see `make_encyclopedia`.

    Args:
      home: folder of all runs.
      data: folder of the data files.
      base: the base config.
      stop: ends the training of the tagger and its marking; another call resumes them.
      tagger: of X; see `mark_text`.
    """
    make_encyclopedia(home, data, partial(mark_text, tagger, home, data, base, stop))
    all_questions.keep_all_questions(home, data, PassageStore.open(home / "knowledge"))


def mark_text(
    tagger: str,
    home: Path,
    data: Path,
    base: ConfigDict,
    stop: threading.Event,
    store: PassageStore,
    out: Path,
) -> None:
    """Writes the names and dates of a corpus to the folder `out`.

    `tagger` is RULES or the workdir of a trained tagger; "" is `HOME/tagger`, which is trained from
    the encoder if needed. Other arguments: see `prepare`.
    """
    if tagger == RULES:
        mark_spans(store, out, workers=2)
        return
    if tagger:
        found, published = Tagger.open(tagger)
    else:
        found, published = trained_tagger(home / "tagger", data, start_tagger(base), stop)
    annotate_corpus(store, out, TaggerMarker(found, published.identity), stopped=stop.is_set)


def start_tagger(base: ConfigDict) -> ConfigDict:
    """The config of a tagger from the encoder that `base` starts from."""
    config = start_tagger_config()
    config.stages.tagger.update(base.stages.tagger)
    config.model.start = base.model.start
    make_like(config, open_weights(weights_folder(base.model.start)).sizes, ())
    return config


def make_row(
    name: str, seed: int, workdir: Path, base: ConfigDict, stop: threading.Event
) -> dict[str, Any]:
    """`run_row.make_row` for a key of `ROWS_FROM_START`."""
    metrics = kept_metrics(workdir, lambda: _measured(name, seed, workdir, base, stop))
    checkpoints = workdir / ANSWERS / CHECKPOINTS  # gigabytes, needed until the metrics are kept
    if checkpoints.exists():
        shutil.rmtree(checkpoints)
    return metrics


def _measured(
    name: str, seed: int, workdir: Path, base: ConfigDict, stop: threading.Event
) -> dict[str, Any]:
    home, row = workdir.parent, ROWS_FROM_START[name]
    config = row_config(base, row, seed, home)
    retriever = pretrain(row.retriever_of or name, seed, base, home, stop)
    reader = pretrain(row.reader_of or name, seed, base, home, stop)
    weights = write_start(workdir / "weights", retriever, reader, base)
    of_answers = answers_config(config, home, weights)
    run_both(str(workdir / ANSWERS), of_answers, stop)
    answerer = Answerer.open(str(workdir / ANSWERS))
    measured = measure_questions(answerer, of_answers, home, SETS)
    trained = Answerer.open(str(retriever))
    measured |= measure_text(retriever, config_lib.check(config), base, trained)
    answering = read_run(str(workdir / ANSWERS))
    measured["seconds"]["qa"] = answering.stage_seconds["qa"]
    measured["index_seconds"] += sum(record["seconds"] for record in answering.refreshes)
    return {"row": name, "seed": seed, **measured}


def pretrain(name: str, seed: int, base: ConfigDict, home: Path, stop: threading.Event) -> Path:
    """The finished folder of a row that is not combined from others; it is trained if needed."""
    workdir = run_folder(home, name, seed)
    if not RunDir(workdir).end_marker.exists():
        config = row_config(base, ROWS_FROM_START[name], seed, home)
        copy_parts(workdir, taught_reader(home, base, stop), f"{CHECKPOINTS}/reader")
        run_both(str(workdir), config_lib.check(config), stop)
    return workdir


def taught_reader(home: Path, base: ConfigDict, stop: threading.Event) -> Path:
    """The run that teaches the reader's heads, once for all rows; its words are not permuted."""
    return warm_reader(home, base, stop, permuted_share=0.0)


def write_start(out: Path, retriever: Path, reader: Path, base: ConfigDict) -> Path:
    """Writes the embedder of one run and the reader of another as start weights.

    Returns:
      The folder.
    """
    networks = {
        "embedder": _params(retriever, "realm")["embedder"],
        "reader": _params(reader, "realm")["reader"],
        "span_head": _params(reader, "reader")["span_head"],
    }
    vocabulary = Path(base.corpus.knowledge) / VOCABULARY
    shutil.rmtree(out, ignore_errors=True)  # of an interrupted call
    write_weights(out, weights_of_run(networks, base.model, base.lengths.answer, vocabulary))
    return out


def _params(workdir: Path, stage: str) -> Parameters:
    trained = final_params(RunDir(workdir), stage)
    assert trained is not None
    return trained[1]


def answers_config(config: ConfigDict, home: Path, weights: Path) -> ConfigDict:
    """The config of the second run of a row: no pre-training; the whole Z, in longer rows."""
    answers = ConfigDict(config.to_dict())
    answers.model.start = str(weights)
    answers.corpus.update(knowledge=str(home / "encyclopedia"), pretraining="", spans="")
    answers.corpus.questions = str(kept_file(home, all_questions.TRAIN))
    answers.lengths.update(passage=ANSWER_PIECES, joint=JOINT_PIECES)
    for stage in ("reader", "ict", "realm"):
        answers.stages[stage].steps = 0
    answers.stages.realm.publish_start = True
    answers.stages.qa.reader_from = ""  # `weights` has the reader
    return config_lib.check(answers)
