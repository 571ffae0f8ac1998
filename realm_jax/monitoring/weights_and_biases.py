"""Weights & Biases, for those who use it: a run for each stage of each job, in one group."""

import secrets
from typing import Any

from realm_jax.errors import ConfigError
from realm_jax.monitoring.tensorboard import scalars
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir


def import_wandb() -> Any:
    """Their package.

    Raises:
      ConfigError: it is not installed.
    """
    try:
        import wandb
    except ImportError as error:
        raise ConfigError(
            "wandb is not installed",
            where="config.report.writers",
            expected="packages for all writers named there",
            found="wandb",
            fix="pip install -e '.[wandb]', or leave wandb out",
        ) from error
    return wandb


class WeightsAndBiases:
    """Goes on with the same run of theirs when a stage is resumed.

    Their own variables say the rest: WANDB_PROJECT, WANDB_MODE=offline, WANDB_DIR.
    """

    def __init__(self, run: RunDir, stage: str):
        wandb = import_wandb()
        kept = run.logs / f"{stage}.wandb"
        known = files.read_bytes(kept)
        if known is None:
            known = secrets.token_hex(8).encode()
            files.write_bytes(kept, known)
        self._run = wandb.init(
            id=known.decode(),
            resume="allow",
            name=f"{run.root.name}/{stage}",
            group=run.root.name,
            job_type=stage,
            dir=str(run.logs) if files.is_local(run.logs) else None,
        )
        self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")

    def write(self, record: dict[str, Any]) -> None:
        """Sends the numbers of a record."""
        named = {"step": float(record["step"]), **scalars(record)}
        self._run.log({f"{record['stage']}/{name}": value for name, value in named.items()})

    def at(self, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Ends their run."""
        self._run.finish()
