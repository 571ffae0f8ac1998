"""Trains a tagger on tagged text with the shared training loop, and publishes it."""

import threading
from pathlib import Path

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.errors import ConfigError, MismatchError
from realm_jax.interop.warm_start import load_networks
from realm_jax.models.modules import Parameters
from realm_jax.parallel.sharding import check_batches, make_mesh
from realm_jax.storage import files, follow, heartbeat
from realm_jax.storage.layout import VOCABULARY, RunDir
from realm_jax.storage.locks import job_lock
from realm_jax.tagging.conll import TaggedSentence, read_conll
from realm_jax.tagging.published_tagger import publish_tagger
from realm_jax.tagging.stage import TaggerStage
from realm_jax.text.vocabulary import sample_vocabulary, write_vocabulary
from realm_jax.text.wordpiece import WordPieces
from realm_jax.trainer.init_params import initial_params
from realm_jax.trainer.loop import train
from realm_jax.trainer.publisher import NoPublisher
from realm_jax.trainer.resume import save_run_config
from realm_jax.trainer.run import JOB


def train_tagger(workdir: str, config: ConfigDict, stop: threading.Event) -> int:
    """Trains on `config.stages.tagger.train_file`, publishes the tagger, and returns the step.

    If the run was interrupted, the same call resumes it.

    Raises:
      Stopped: SIGTERM or SIGINT arrived; a checkpoint is saved.
      RealmError: the config or input is invalid; see the message.
    """
    run_dir, settings = RunDir(workdir), config.stages.tagger
    _check(config)
    train_documents = read_conll(settings.train_file, config.model.entities)
    held_out = (
        read_conll(settings.held_out_file, config.model.entities) if settings.held_out_file else []
    )
    mesh = make_mesh(config.mesh)
    batches = {"stages.tagger.batch": config.stages.tagger.batch}
    check_batches(mesh, batches, config.optimizer.accumulate_steps)
    with job_lock(run_dir, JOB, stop) as stop_or_lost:
        save_run_config(run_dir, config)
        follow.clear_end(run_dir)
        pieces = _vocabulary(run_dir, settings.vocabulary, train_documents)
        heartbeat.beat(run_dir, JOB, stage="start", step=0)
        stage = TaggerStage(config, pieces, train_documents, held_out)
        given = _start(config, stage, mesh)
        trained = train(run_dir, config, stage, given, mesh, stop_or_lost, NoPublisher())
        publish_tagger(
            run_dir,
            config.stages.tagger.steps,
            jax.device_get(trained)["tagger"],
            config_lib.to_json(config, workdir),
            (run_dir.root / VOCABULARY).read_bytes(),
            stop_or_lost.assert_held,
        )
        stop_or_lost.assert_held()
        follow.mark_end(run_dir, step=config.stages.tagger.steps)
        heartbeat.beat(run_dir, JOB, stage="done", step=config.stages.tagger.steps)
    return config.stages.tagger.steps


def _check(config: ConfigDict) -> None:
    if not config.stages.tagger.train_file:
        raise ConfigError(
            "no tagged training text",
            where="config.stages.tagger.train_file",
            expected="a CoNLL file",
            found="an empty setting",
            fix="--input=FILE",
        )
    if config.stages.tagger.row_length > config.model.positions:
        raise ConfigError(
            "rows are longer than the position table",
            where="config.stages.tagger.row_length",
            expected=f"at most config.model.positions, {config.model.positions}",
            found=config.stages.tagger.row_length,
        )


def _start(config: ConfigDict, stage: TaggerStage, mesh: Mesh) -> Parameters:
    """Initial params, with BERT from `model.start` if there is one."""
    given = load_networks(config.model.start, stage.modules.shapes, config.model)
    return initial_params(config, stage.modules, given, mesh)


def _vocabulary(
    run_dir: RunDir, given: str, train_documents: list[list[TaggedSentence]]
) -> WordPieces:
    """The run's vocabulary: the saved one, else the file `given`, else one trained on the text."""
    path = run_dir.root / VOCABULARY
    if not path.is_file():
        if given:
            WordPieces.load(given)  # raises if the file is invalid
            files.write_bytes(path, Path(given).read_bytes())
        else:
            texts = (" ".join(s.words) for document in train_documents for s in document)
            write_vocabulary(path, sample_vocabulary(texts))
    pieces = WordPieces.load(path)
    if given and WordPieces.load(given).sha256 != pieces.sha256:
        raise MismatchError(
            "the workdir contains a tagger with another vocabulary",
            where=path,
            expected=f"sha256 {pieces.sha256}",
            found=f"sha256 {WordPieces.load(given).sha256} ({given})",
            fix="use another --workdir, or the vocabulary of that run",
        )
    return pieces
