"""Estimates the disk space of a finished run from its config and model sizes."""

from ml_collections import ConfigDict

FLOAT32_BYTES = 4
_MOMENTS = 2  # arrays that Adam keeps per parameter
# Bytes per vector component: float16 in vectors.npy, float32 in the searcher.
_VECTOR_BYTES = 2 + FLOAT32_BYTES
_ROW_ID_BYTES = 8


def index_bytes(config: ConfigDict, passages: int, embedder_params: int) -> int:
    """Approximate size of one published index, query embedder included."""
    rows = passages * (config.model.embedding * _VECTOR_BYTES + _ROW_ID_BYTES)
    return rows + FLOAT32_BYTES * embedder_params


def run_bytes(
    config: ConfigDict,
    passages: int,
    num_params: dict[str, int],
    trained: dict[str, tuple[str, ...]],
) -> dict[str, int]:
    """Approximate size of each folder of a finished run.

    Args:
      config: the run's config.
      passages: N.
      num_params: parameters of each module.
      trained: for each stage of the run, the modules it trains.
    """
    trained_params = {
        stage: sum(num_params[name] for name in modules) for stage, modules in trained.items()
    }
    state_bytes = sum(trained_params.values()) * FLOAT32_BYTES * (1 + _MOMENTS)
    folders = {"checkpoints": state_bytes * config.checkpoint.keep}
    if "realm" in trained:
        one_index = index_bytes(config, passages, num_params["embedder"])
        folders["snapshots"] = trained_params["realm"] * FLOAT32_BYTES * config.refresh.keep
        folders["published_index"] = one_index * config.refresh.keep
    exported = num_params["embedder"] + num_params["reader"] + trained_params.get("qa", 0)
    folders["export"] = FLOAT32_BYTES * exported
    return folders
