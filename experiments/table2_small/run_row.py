"""One run of a row: shared warm start, pre-training, fine-tuning, evaluation; each part resumes."""

import json
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.cli.jobs import run_both
from realm_jax.corpus.store import PassageStore
from realm_jax.interop.save import save_bert
from realm_jax.storage import files
from realm_jax.storage.layout import CHECKPOINTS, PUBLISHED_INDEX, RunDir
from realm_jax.trainer.checkpoint import final_params
from realm_jax.trainer.run import finetune, run
from table2_small.corpora import SHOWN_SPANS, TAGGED_SPANS, make_corpora
from table2_small.measure import Sets, measure_run
from table2_small.questions import ANSWERED, EVALUATED, TRAIN, keep_questions, kept_file
from table2_small.rows import COPYING, READING, ROWS, Row, row_config, run_folder

log = logging.getLogger(__name__)
SETS = Sets(EVALUATED, ANSWERED, most=1000)
COPYING_SHARE = 0.3  # of the reader's steps: language and copying; the rest: names and dates
PERMUTED_SHARE = 0.5  # of the rows in the copying phase, for a reader from random weights


def make_row(
    name: str, seed: int, workdir: Path, base: ConfigDict, stop: threading.Event
) -> dict[str, Any]:
    """Runs a row in `workdir` and returns its metrics; finished parts are not repeated.

    Args:
      name: name of the row.
      seed: seed of the run.
      workdir: folder of the run; runs in one parent folder share corpora and warm starts.
      base: the base config.
      stop: stops the run; the same call resumes it.

    Raises:
      Stopped: a stop signal arrived; progress is saved.
      RealmError: see the message.
    """
    return kept_metrics(workdir, lambda: _measured(name, seed, workdir, base, stop))


def kept_metrics(workdir: Path, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The metrics of a finished row; if there are none, measures and keeps them."""
    result = workdir / "row.json"
    if not result.exists():
        files.write_bytes(epath.Path(result), f"{json.dumps(measured())}\n".encode())
    return dict(json.loads(result.read_text()))


def _measured(
    name: str, seed: int, workdir: Path, base: ConfigDict, stop: threading.Event
) -> dict[str, Any]:
    home, row = workdir.parent, ROWS[name]
    for other in filter(None, dict.fromkeys((row.retriever_of, row.reader_of))):
        make_row(other, seed, run_folder(home, other, seed), base, stop)
    config = row_config(base, row, seed, home)
    config.corpus.questions = str(kept_file(home, TRAIN))
    config = config_lib.check(config)
    if row.retriever_of:
        trained = run_folder(home, row.retriever_of, seed)
        copy_parts(
            workdir, trained, f"{CHECKPOINTS}/realm", f"{CHECKPOINTS}/reader", PUBLISHED_INDEX
        )
        finetune(str(workdir), config, stop)
    else:
        copy_parts(workdir, warm_reader(home, base, stop), f"{CHECKPOINTS}/reader")
        steps = config.stages.ict.steps
        warm = warm_ict(home, seed, steps, row.embedder_of, base, stop)
        copy_parts(workdir, warm, f"{CHECKPOINTS}/ict")
        run_both(str(workdir), config, stop)
    return {"row": name, "seed": seed, **measure_run(workdir, config, base, home, SETS)}


def warm_reader(
    home: Path, base: ConfigDict, stop: threading.Event, permuted_share: float = PERMUTED_SHARE
) -> Path:
    """Trains the reader from which all runs start, as the paper starts from BERT.

    The reader first learns language and copying. Then it learns to read names and dates of X: each
    sentence is shown with a passage of Z that states it, or with another one.
    """
    folder, before = home / READING, home / COPYING
    copying = _copying(_only(base, "reader", 0, home), home)
    copying.stages.reader.permuted_share = permuted_share
    run(str(before), config_lib.check(copying), stop)
    copy_parts(folder, before, f"{CHECKPOINTS}/reader")
    run(str(folder), config_lib.check(_only(base, "reader", 0, home)), stop)
    return folder


def warm_ict(
    home: Path, seed: int, steps: int, reader: str, base: ConfigDict, stop: threading.Event
) -> Path:
    """Trains the embedder from which the rows of a seed start, with `steps` steps of ICT.

    ICT starts from the encoder of `reader`, as ORQA's starts from BERT. It uses the whole sample,
    not Z: Z is small so that refreshes are fast, and ICT would memorise it.
    """
    warm_reader(home, base, stop)
    folder = home / f"{reader}_ict_{steps}_{seed}"
    config = _only(base, "ict", seed, home)
    config.stages.ict.steps = steps
    _on_sample(config, home, TAGGED_SPANS)
    config.model.start = str(_encoder_of(home / reader, folder / "bert", base))
    run(str(folder), config_lib.check(config), stop)
    return folder


def _only(base: ConfigDict, stage: str, seed: int, home: Path) -> ConfigDict:
    """The config of a run of one stage."""
    config = row_config(base, Row(), seed, home)
    for other in {"ict", "reader", "realm"} - {stage}:
        config.stages[other].steps = 0
    return config


def _on_sample(config: ConfigDict, home: Path, spans: str) -> None:
    sample = home / "wikipedia"
    config.corpus.update(knowledge=str(sample), pretraining="", spans=str(sample / spans))


def _copying(config: ConfigDict, home: Path) -> ConfigDict:
    """Config of the first reader steps: random tokens of sentences, shown with their passage.

    With masked names and dates only, the reader learns nothing in as many steps, because a row then
    has a single span of one or two pieces.
    """
    _on_sample(config, home, SHOWN_SPANS)
    reader = config.stages.reader
    reader.steps = int(COPYING_SHARE * reader.steps)
    reader.update(neighbour_share=0.0, null_share=0.0, hidden_mask_share=0.0)
    config.masking.update(scheme="random_token", rate=0.2)
    config.lengths.masks = 6
    return config


def _encoder_of(reader: Path, out: Path, base: ConfigDict) -> Path:
    """Writes the encoder of a trained reader as start weights."""
    trained = final_params(RunDir(reader), "reader")
    assert trained is not None
    save_bert(out, trained[1]["reader"], base.model)
    return out


def prepare(home: Path, data: Path, base: ConfigDict, stop: threading.Event) -> None:
    """Writes the corpora and questions that all runs share."""
    make_corpora(home, data, base, stop)
    keep_questions(home, data, PassageStore.open(home / "knowledge"))


def copy_parts(workdir: Path, source: Path, *parts: str) -> None:
    """Copies parts of one run into another, once; an interrupted copy is repeated."""
    done = workdir / f"copied_{source.name}.json"
    if done.exists():
        return
    for part in parts:
        shutil.rmtree(workdir / part, ignore_errors=True)
        if (source / part).exists():
            shutil.copytree(source / part, workdir / part)
    workdir.mkdir(parents=True, exist_ok=True)
    done.write_text(json.dumps({"from": source.name, "parts": parts}) + "\n")
    log.info("%s: %s of %s", workdir.name, ", ".join(parts), source.name)
