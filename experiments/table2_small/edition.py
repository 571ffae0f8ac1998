"""The two editions of the experiment: from random weights, and from an encoder."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from table2_small import all_questions, questions
from table2_small.corpora import make_corpora
from table2_small.encyclopedia import make_encyclopedia
from table2_small.rows import PAPER, ROWS, ROWS_FROM_START, Row

Prepare = Callable[[Path, Path, ConfigDict, threading.Event], None]


@dataclass(frozen=True)
class Edition:
    """What differs between the editions, besides the config.

    Attributes:
      rows: by name.
      default_rows: the rows of `--all`.
      train: file of the training questions (`questions.kept_file`).
      evaluated: sets with recall.
      answered: sets with exact match.
      most_answered: questions per set for exact match, the first ones; None: all.
      copying_permuted: `stages.reader.permuted_share` in the copying phase of the reader.
      prepare: writes the corpora and questions that all runs share; called with the folder of all
        runs, the folder of the data, the config of `realm` and the stop signal.
    """

    rows: Mapping[str, Row]
    default_rows: tuple[str, ...]
    train: str
    evaluated: tuple[str, ...]
    answered: tuple[str, ...]
    most_answered: int | None
    copying_permuted: float
    prepare: Prepare


def _prepare_sample(home: Path, data: Path, base: ConfigDict, stop: threading.Event) -> None:
    make_corpora(home, data, base, stop)
    questions.keep_questions(home, data, PassageStore.open(home / "knowledge"))


FROM_NOTHING = Edition(
    rows=ROWS,
    default_rows=PAPER,
    train=questions.TRAIN,
    evaluated=questions.EVALUATED,
    answered=questions.ANSWERED,
    most_answered=1000,
    copying_permuted=0.5,
    prepare=_prepare_sample,
)


def from_start(tagger: Path | None = None) -> Edition:
    """The edition that starts from an encoder.

    Args:
      tagger: see `make_encyclopedia`.
    """

    def prepare(home: Path, data: Path, base: ConfigDict, stop: threading.Event) -> None:
        make_encyclopedia(home, data, tagger)
        all_questions.keep_all_questions(home, data, PassageStore.open(home / "knowledge"))

    return Edition(
        rows=ROWS_FROM_START,
        default_rows=tuple(ROWS_FROM_START),
        train=all_questions.TRAIN,
        evaluated=tuple(all_questions.JUDGED),
        answered=tuple(all_questions.JUDGED),
        most_answered=None,
        copying_permuted=0.0,  # the encoder knows the words that would be permuted
        prepare=prepare,
    )
