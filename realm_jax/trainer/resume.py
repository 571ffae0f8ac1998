"""Checks a run folder before training resumes."""

import json
from collections.abc import Mapping

from etils import epath
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import config_paths
from realm_jax.artifacts.export import finishing_command
from realm_jax.artifacts.run_config import newest_config
from realm_jax.defaults import STAGES
from realm_jax.errors import InputError, MismatchError
from realm_jax.storage import commit, files
from realm_jax.storage.layout import CONFIG, RunDir, step_name

CONTINUES = "the next steps have other settings than the finished ones, which stay"


def save_run_config(run_dir: RunDir, config: ConfigDict) -> None:
    """Writes the run's config; raises a MismatchError if the model differs from the run's."""
    check_run_config(run_dir, config)
    run_dir.root.mkdir(parents=True, exist_ok=True)
    as_json = config_lib.to_json(config, run_dir.workdir)
    files.write_bytes(run_dir.config, as_json.encode())


def started_with(run_dir: RunDir) -> dict[str, str]:
    """What `save_corpora` wrote; {} if the run has not started, or an earlier version wrote it."""
    return files.read_object(run_dir.corpora)


def save_corpora(run_dir: RunDir, corpora: Mapping[str, str]) -> None:
    """Records the corpora of a run, as `inputs.corpora_of` returns them."""
    if started_with(run_dir) != corpora:
        files.write_bytes(run_dir.corpora, json.dumps(dict(corpora)).encode())


def check_run_config(run_dir: RunDir, config: ConfigDict) -> None:
    """Raises a MismatchError if the model differs from the one that the run started with."""
    before = newest_config(run_dir)
    if before is not None:
        require_same_model(
            before,
            config,
            "the workdir holds a run of another model",
            where=run_dir.config,
            fix="choose another --workdir, or use the config that this run started with",
        )


def require_same_model(
    expected: ConfigDict, found: ConfigDict, problem: str, where: epath.Path, fix: str
) -> None:
    """Raises a MismatchError that lists every setting in which the two models differ."""
    differing = config_lib.model_differences(expected, found)
    if differing:
        raise MismatchError(
            problem,
            where=where,
            expected=", ".join(f"{key} {value}" for key, (value, _) in differing.items()),
            found=", ".join(f"{key} {value}" for key, (_, value) in differing.items()),
            fix=fix,
        )


def require_pretrained(run_dir: RunDir, config: ConfigDict) -> None:
    """Raises an InputError unless the newest checkpoint is that of the last pre-training step."""
    step, last = commit.latest(run_dir.checkpoints("realm")), config.stages.realm.steps
    if step is None or step < last:
        raise InputError(
            "pre-training is not finished",
            where=run_dir.checkpoints("realm"),
            expected=f"a checkpoint of step {last}",
            found="none" if step is None else f"step {step}",
            fix=finishing_command(run_dir, config),
        )
    check_steps_not_reduced(run_dir, config)


def check_steps_not_reduced(run_dir: RunDir, config: ConfigDict) -> None:
    """Raises an InputError if the newest stage is past its last step, or was stopped there.

    A checkpoint of a stopped run is no end: the end of stage `realm` publishes its last snapshot,
    and every stage has a last evaluation. Stages before the newest are not checked.
    """
    for stage in ("realm", "ict", "reader"):
        if commit.latest(run_dir.checkpoints(stage)) is not None:
            if config.stages[stage].steps or stage == "realm":
                _check_stage(run_dir, config, stage)
            return


def check_earlier_stages(run_dir: RunDir, config: ConfigDict) -> None:
    """Raises an InputError if a stage before the newest has other steps than the newest began with.

    They would be trained without an effect: the newest stage resumes from its own checkpoint. The
    report would count them.
    """
    stages = ("reader", "ict", "realm")
    newest = {stage: commit.latest(run_dir.checkpoints(stage)) for stage in stages}
    last = max((n for n, stage in enumerate(stages) if newest[stage] is not None), default=0)
    step = newest[stages[last]]
    if step is None:
        return
    folder = run_dir.checkpoints(stages[last]) / step_name(step)
    before = config_lib.with_current_keys(files.read_object(folder / CONFIG)).get("stages", {})
    for stage in stages[:last]:
        found = config.stages[stage].steps
        expected = before.get(stage, {}).get("steps", found)  # earlier versions; damage
        if found != expected:
            raise InputError(
                f"stage {stages[last]} has begun, so stage {stage} cannot get other steps",
                where=folder,
                expected=f"config.stages.{stage}.steps {expected}",
                found=f"config.stages.{stage}.steps {found}",
                fix=f"--config.stages.{stage}.steps={expected}, or choose another --workdir",
            )


def other_settings(run_dir: RunDir, config: ConfigDict) -> str:
    """The settings in which `config` differs from those of the steps of an unfinished stage.

    "" if no stage continues from a checkpoint, or none differs. Paths, the settings of other stages
    and those of the report do not count.
    """
    for stage in STAGES:
        step = commit.latest(run_dir.checkpoints(stage))
        if step is not None and step < config.stages[stage].steps:
            kept = files.read_object(run_dir.checkpoints(stage) / step_name(step) / CONFIG)
            return _differences(ConfigDict(config_lib.with_current_keys(kept)), config, stage)
    return ""


def _differences(before: ConfigDict, config: ConfigDict, stage: str) -> str:
    left_out = ("report.", *(f"stages.{name}." for name in STAGES if name != stage))
    known = set(config_lib.keys(before))  # those of an earlier version are fewer
    found = []
    for key in config_lib.keys(config):
        if key in known and key not in config_paths.KEYS and not key.startswith(left_out):
            old, new = config_lib.value_of(before, key), config_lib.value_of(config, key)
            found += [f"{key} {new} (before: {old})"] if new != old else []
    return ", ".join(found)


def _check_stage(run_dir: RunDir, config: ConfigDict, stage: str) -> None:
    folder, last = run_dir.checkpoints(stage), config.stages[stage].steps
    step = commit.latest(folder)
    if step is None or step < last:
        return
    manifest = commit.read_manifest(folder / step_name(step)) or {}
    concluded = manifest.get("concluded", True)  # earlier versions did not record it
    if step == last and concluded:
        return
    raise InputError(
        f"stage {stage} was trained for more steps than the config asks for"
        if step > last
        else f"stage {stage} was stopped at this step, so it cannot end here",
        where=folder,
        expected=f"step {last} (config.stages.{stage}.steps)",
        found=f"step {step}",
        fix=f"--config.stages.{stage}.steps={step if concluded else step + 1}, or more",
    )
