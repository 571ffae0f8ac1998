"""The penalty on the distance of an embedder's vectors to those before the stage."""

from types import SimpleNamespace

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.data.packing import Packed
from realm_jax.trainer.stage import Loss


def reference_modules(settings: ConfigDict) -> tuple[str, ...]:
    """`Stage.reference`, given `config.stages.ict` or `config.stages.realm`."""
    needed = settings.distance_penalty or settings.get("least_utility")
    return ("embedder",) if needed else ()


def with_penalty(
    found: Loss,
    settings: ConfigDict,
    networks: SimpleNamespace,
    rows: Packed,
    vectors: Float[Array, "G N E"],
    weights: Float[Array, "G N"],
) -> Loss:
    """Adds `distance_penalty` times the distance, in training, and the metric `distance`.

    Args:
      found: loss and metrics without the penalty.
      settings: `config.stages.ict` or `config.stages.realm`.
      networks: see `Stage.loss`; an evaluation has no reference, so it adds nothing.
      rows: queries and passages.
      vectors: of the rows.
      weights: of the rows in the mean distance.
    """
    if not settings.distance_penalty or not hasattr(networks, "reference"):
        return found
    loss, metrics = found
    before = networks.reference.embedder.embed_packed(*rows)
    distance = losses.cosine_distance(vectors, before, weights)
    return loss + settings.distance_penalty * distance, metrics | {"distance": distance}


def realm_weights(valid: Bool[Array, "G b K"]) -> Float[Array, "G N"]:
    """Weights of the embedded rows of stage `realm`: queries, null passage, other candidates.

    Each query and each valid candidate counts as one row. The null passages of all groups together
    count as one, so the mean does not depend on the number of groups, and thus of devices.
    """
    groups, size, _ = valid.shape
    null = jnp.full((groups, 1), 1 / groups)
    candidates = valid[..., 1:].reshape(groups, -1)
    return jnp.concatenate([jnp.ones((groups, size)), null, candidates], axis=1)
