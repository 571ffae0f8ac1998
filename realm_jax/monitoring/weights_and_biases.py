"""Writes metrics to Weights & Biases: one W&B run per stage, grouped by run folder."""

import secrets
from typing import Any

from realm_jax.errors import ConfigError
from realm_jax.monitoring.tensorboard import scalars
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir


def import_wandb() -> Any:
    """Imports the package.

    Raises:
      ConfigError: it is not installed.
    """
    try:
        import wandb
    except ImportError as error:
        raise ConfigError(
            "wandb is not installed",
            where="config.report.writers",
            expected="only writers whose packages are installed",
            found="wandb",
            fix="pip install -e '.[wandb]', or remove wandb from config.report.writers",
        ) from error
    return wandb


class WeightsAndBiases:
    """Sends metrics to a W&B run; a resumed stage continues the same W&B run.

    Set project, offline mode and folder with W&B's variables WANDB_PROJECT, WANDB_MODE=offline and
    WANDB_DIR.
    """

    def __init__(self, run: RunDir, stage: str):
        wandb = import_wandb()
        path = run.logs / f"{stage}.wandb"
        run_id = files.read_bytes(path)
        if run_id is None:
            run_id = secrets.token_hex(8).encode()
            files.write_bytes(path, run_id)
        self._run = wandb.init(
            id=run_id.decode(),
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

    def set_step(self, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Ends the W&B run."""
        self._run.finish()
