"""Fixtures: a finished run over text with accents, in several cases and alphabets."""

import copy
import shutil
from pathlib import Path

import pytest

from realm_jax.artifacts.current_index import open_current
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data.open_qa import Question
from realm_jax.inference.answerer import Answerer
from realm_jax.storage.layout import RunDir
from realm_jax.text.vocabulary import write_vocabulary
from support.finished_run import write_finished_run
from support.tiny_corpus import TinyCorpus, tiny_config, vocabulary

PASSAGES = [
    ("Żywiec", ["The Café in Żywiec is nai\u0308ve.", "It was AÑO in 1850!"]),
    ("Café", ["A café, old and é́tée, was in Ort."]),
    ("Menu", ["The CAFÉ was open since 1900."]),
    ("Straße", ["What is the Straße in İzmir? 日本 was."]),
    ("River", ["The river in Ora."]),
    ("Tower", ["Cafés and the tower of Ulm, and the river."]),
]


@pytest.fixture(scope="session")
def accents(tmp_path_factory):
    """A corpus of six passages, of which two are plain ASCII."""
    folder = tmp_path_factory.mktemp("accents")
    write_vocabulary(folder / "vocab.txt", vocabulary())
    write_passages(folder / "corpus", PASSAGES, folder / "vocab.txt")
    store = PassageStore.open(folder / "corpus")
    questions = [
        Question(f"what is {title}?", (title,), row) for row, (title, _) in enumerate(PASSAGES)
    ]
    return TinyCorpus(folder / "corpus", store, mark_spans(store), questions)


@pytest.fixture(scope="session")
def answerer(tmp_path_factory, accents):
    """The opened export of a run with random weights."""
    workdir = tmp_path_factory.mktemp("accents_run") / "run"
    write_finished_run(workdir, accents, tiny_config(accents.folder))
    return Answerer.open(str(workdir))


def copied(answerer: Answerer, folder: Path) -> Answerer:
    """The run of an answerer over a copy of its run folder and corpus, which may be changed."""
    shutil.copytree(answerer.run.workdir, folder / "run")
    shutil.copytree(answerer.store.path, folder / "corpus")
    return reopened(answerer, folder)


def reopened(answerer: Answerer, folder: Path) -> Answerer:
    """Opens what `copied` copied, as another process does; shares the compiled networks."""
    other = copy.copy(answerer)
    other.run = RunDir(folder / "run")
    store = PassageStore.open(folder / "corpus")
    return other.over(open_current(other.run, answerer.index.step, store))
