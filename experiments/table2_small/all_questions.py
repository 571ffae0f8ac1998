"""Questions of the edition that starts from an encoder: every question of four sets is judged.

Trained on are questions of NQ train and SQuAD train that Z answers, by the rule of `questions`, and
that are in none of the judged sets.
"""

import json
import logging
from pathlib import Path

from etils import epath

from realm_jax.corpus.store import PassageStore
from realm_jax.data.question_files import read_questions
from realm_jax.storage import files
from table2_small.questions import (
    DEV,
    SOURCES,
    QuestionRule,
    kept_file,
    read_source,
    write_questions,
)

TRAIN = "train"
JUDGED = {
    DEV: SOURCES[DEV],
    "triviaqa_dev": ("triviaqa-unfiltered-dev.jsonl.xz", "own"),
    "webquestions": SOURCES["webquestions"],
    "trec": SOURCES["trec"],
}
TRAINED = ("nq_train", "squad")

log = logging.getLogger(__name__)


def keep_all_questions(home: Path, data: Path, store: PassageStore) -> None:
    """Writes `questions/NAME` and `questions/counts.json` to `home`, unless they exist."""
    folder = home / "questions"
    if (folder / "counts.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    counts, judged = {}, set()
    for name, (file, format) in JUDGED.items():
        questions = read_questions(str(data / file), format)
        write_questions(kept_file(home, name), questions)
        counts[name] = {"read": len(questions), "judged": len(questions)}
        judged |= {question.text.casefold() for question in questions}
    rule, training = QuestionRule(store), []
    for name in TRAINED:
        read = read_source(data, name)
        fresh = [question for question in read if question.text.casefold() not in judged]
        kept = rule.kept(fresh)
        counts[name] = {"read": len(read), "not_judged": len(fresh), "kept": len(kept)}
        training += kept
    write_questions(kept_file(home, TRAIN), training)
    log.info("questions: %s", counts)
    files.write_bytes(
        epath.Path(folder / "counts.json"), f"{json.dumps(counts, indent=1)}\n".encode()
    )
