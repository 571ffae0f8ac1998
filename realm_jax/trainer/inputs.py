"""Opens the corpora and questions of a run and checks them against each other."""

import logging
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ml_collections import ConfigDict

from realm_jax.artifacts.run_config import open_corpus
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.data.embedder_rows import indexed_length
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.question_checks import check_evidence
from realm_jax.data.question_files import Question, read_questions
from realm_jax.errors import ConfigError, InputError, MismatchError

Started = Mapping[str, str]
NOT_STARTED: Started = MappingProxyType({})

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inputs:
    """What a run trains on.

    Attributes:
      knowledge: the knowledge corpus Z.
      text: masked text of the pre-training corpus X, for training.
      held_out: masked text for evaluation.
      questions: open-QA questions for fine-tuning.
    """

    knowledge: PassageStore
    text: MaskedTextSource
    held_out: MaskedTextSource
    questions: list[Question]


def open_inputs(config: ConfigDict, started: Started = NOT_STARTED) -> Inputs:
    """Opens all corpora of a run.

    Args:
      config: of the run.
      started: `corpora_of` the inputs with which the run was started. If a corpus has grown since,
        the generation at that time is opened, so that a resumed run repeats its steps.

    Raises:
      ConfigError: no knowledge corpus is configured.
      InputError: a folder is missing or unfinished.
      MismatchError: the corpora do not fit together.
    """
    corpus = config.corpus
    if not corpus.knowledge:
        raise ConfigError(
            "no knowledge corpus",
            where="config.corpus.knowledge",
            expected="a folder written by `realm corpus build`",
            found="no folder",
            fix="--config.corpus.knowledge=FOLDER",
        )
    knowledge = _as_started(corpus.knowledge, started.get("knowledge"))
    folder, spans = corpus.pretraining or corpus.knowledge, corpus.spans or None
    store = _as_started(folder, started.get("text"))
    if corpus.held_out:
        other = _as_started(corpus.held_out, started.get("held_out"))
        held_out = _masked(other, None, knowledge, config, "all")
        text = _masked(store, spans, knowledge, config, "all")
    else:
        text = _masked(store, spans, knowledge, config, "train")
        held_out = _masked(store, spans, knowledge, config, "held_out")
    return Inputs(knowledge, text, held_out, _questions(corpus, len(knowledge)))


def corpora_of(inputs: Inputs) -> Started:
    """`corpus_hash` of each corpus, by its field in `Inputs`."""
    return {
        "knowledge": inputs.knowledge.corpus_hash,
        "text": inputs.text.store.corpus_hash,
        "held_out": inputs.held_out.store.corpus_hash,
    }


def _as_started(folder: str, corpus_hash: str | None) -> PassageStore:
    """A corpus in the generation with which the run was started; else the newest one."""
    newest = open_corpus(folder)
    if corpus_hash in (None, newest.corpus_hash) or corpus_hash not in newest.lineage:
        return newest
    try:
        return PassageStore.open(folder, newest.generation_of(corpus_hash))
    except InputError as error:
        log.warning(
            "%s was compacted since the run was started: it is read as it is now, so steps are not "
            "repeated bit for bit:\n%s",
            folder,
            error,
        )
        return newest


def cut_pieces(knowledge: PassageStore, config: ConfigDict) -> dict[str, int]:
    """`passages` longer than rows of the index, and the `pieces` of them that are cut."""
    over = knowledge.lengths() - indexed_length(config)
    return {"passages": int((over > 0).sum()), "pieces": int(over[over > 0].sum())}


def warn_truncated_passages(knowledge: PassageStore, config: ConfigDict) -> None:
    """Warns if passages are longer than rows of the index and will be truncated.

    Passages that only the rows of training steps truncate are reported too.
    """
    key = "indexed" if indexed_length(config) > config.lengths.passage else "passage"
    most, cut = indexed_length(config), cut_pieces(knowledge, config)
    longer = int((knowledge.lengths() > config.lengths.passage).sum())
    if longer and key == "indexed":
        log.info(
            "training reads the first %d word pieces of %d passages that are longer "
            "(config.lengths.passage); a corpus with --passage-pieces=%d is read whole",
            config.lengths.passage,
            longer,
            config.lengths.passage,
        )
    if cut["passages"]:
        log.warning(
            "%d of %d passages (%d word pieces) of %s are cut: they are longer than "
            "config.lengths.%s=%d; their ends are neither embedded nor read. Build it with "
            "--passage-pieces=%d, or raise config.lengths.%s and config.lengths.joint",
            cut["passages"],
            len(knowledge),
            cut["pieces"],
            config.corpus.knowledge,
            key,
            most,
            most,
            key,
        )


def _questions(corpus: ConfigDict, passages: int) -> list[Question]:
    path = corpus.questions
    if not path:
        return []
    if Path(path).is_dir():
        path = Path(path) / "train.jsonl"
    questions = read_questions(path, corpus.questions_format, corpus.questions_part)
    check_evidence(questions, passages)
    if not corpus.questions_without:
        return questions
    excluded = {q.text for q in read_questions(corpus.questions_without, corpus.questions_format)}
    kept = [question for question in questions if question.text not in excluded]
    if not kept:
        raise InputError(
            "no question is left to train on",
            where=path,
            expected=f"questions that are not in {corpus.questions_without}",
            found=f"{len(questions)} questions, all of which are in it",
            fix="--without=FILE, or --config.corpus.questions_without=FILE, with other questions",
        )
    log.info("%d questions, excluding those of %s", len(kept), corpus.questions_without)
    return kept


def _masked(
    store: PassageStore,
    spans_folder: str | None,
    knowledge: PassageStore,
    config: ConfigDict,
    part: str,
) -> MaskedTextSource:
    if store.vocabulary.sha256 != knowledge.vocabulary.sha256:
        raise MismatchError(
            "the pre-training corpus has another vocabulary than the knowledge corpus",
            where=store.path,
            expected=knowledge.vocabulary.sha256,
            found=store.vocabulary.sha256,
            fix="build both with the same --vocab",
        )
    spans = SpanStore.open(spans_folder, store)
    if spans.knowledge_hash not in knowledge.lineage:
        raise MismatchError(
            "the spans were annotated for another knowledge corpus",
            where=spans.path,
            expected=knowledge.corpus_hash,
            found=spans.knowledge_hash,
            fix=f"realm tag annotate --corpus={shlex.quote(str(store.path))} "
            f"--knowledge={shlex.quote(str(knowledge.path))} "
            "--out=FOLDER, then --config.corpus.spans=FOLDER",
        )
    spans.follow(knowledge)
    return MaskedTextSource(store, spans, config, part, required=trains_on_masks(config))


def trains_on_masks(config: ConfigDict) -> bool:
    """Whether masked text is needed: not for a run that only exports its initial params."""
    stages = config.stages
    return not stages.realm.publish_start or stages.realm.steps > 0 or stages.reader.steps > 0
