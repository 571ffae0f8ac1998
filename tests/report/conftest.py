"""Fixtures: a finished run over text that attacks the page, with its report."""

import json

import numpy as np
import pytest
from support.finished_run import STEP, write_finished_run
from support.tiny_corpus import TinyCorpus, passages, tiny_config, vocabulary

from realm_jax.corpus.mark_spans import salient
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.report.write import write_report
from realm_jax.text.vocabulary import write_vocabulary

HOSTILE = '</style><script src="https://evil.example/x.js">alert(1)</script>" onload="y'


def write_log(run, name, records):
    run.logs.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"stage": name, "time": 1.0, **record}) for record in records]
    (run.logs / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def write_logs(run):
    """Writes logs of a resumed run whose first process trained past its last checkpoint."""
    realm = [
        {"step": 1, "loss": 3.0, "retrieval_utility": 0.1, "p_null": 0.5},
        {"step": 2, "loss": 2.5, "retrieval_utility": 0.2, "p_null": 0.4},
        {"step": 3, "loss": 99.0, "retrieval_utility": 9.0, "p_null": 0.4},
        {"step": 2, "held_out_retrieval_utility": 0.25, "held_out_recall_at_5": 0.5},
        {"step": 4, "loss": 2.0, "retrieval_utility": 0.5, "p_null": 0.2},
        {
            "step": 4,
            "held_out_retrieval_utility": 0.75,
            "held_out_recall_at_5": 1.0,
            "seconds": 8.0,
        },
    ]
    write_log(run, "realm", realm)
    write_log(run, "swaps", [{"step": 0, "index_step": 0}, {"step": 3, "index_step": 2}])
    parts = {f"seconds_{part}": 0.5 for part in ("embed", "build", "check", "publish")}
    refresh = {"step": 2, "passages": 40, "recall": 0.99, "seconds": 2.0, **parts}
    write_log(run, "index_builder", [refresh])


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """A corpus whose titles contain HTML; each passage is the evidence of its own sentences."""
    folder = tmp_path_factory.mktemp("hostile")
    write_vocabulary(folder / "vocab.txt", vocabulary())
    texts = [(f"{title} {HOSTILE}", sentences) for title, sentences in passages(40)]
    write_passages(folder / "corpus", texts, folder / "vocab.txt")
    store = PassageStore.open(folder / "corpus")
    rows = np.arange(len(store), dtype=np.int64)
    own = np.full(len(store), -1, np.int64)
    spans = [salient(store, row) for row in range(len(store))]
    return TinyCorpus(
        folder / "corpus", store, SpanStore.write(None, store, spans, source=own, evidence=rows), []
    )


@pytest.fixture(scope="session")
def reported(tmp_path_factory, hostile):
    """The run folder after `write_report`."""
    workdir = tmp_path_factory.mktemp("reported") / "<b>bold run"
    config = tiny_config(
        hostile.folder, stages__realm__steps=STEP, evaluation__queries=24, report__examples=6
    )
    config.unlock()
    config.corpus.held_out = str(hostile.folder)
    run = write_finished_run(workdir, hostile, config)
    write_logs(run)
    write_report(str(workdir))
    return run
