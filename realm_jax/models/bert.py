"""The BERT encoder (Devlin et al., 2019): post-norm layers with stacked parameters for `lax.scan`.

Every parameter names its axes; `realm_jax.parallel.sharding` maps the names to mesh axes.
Axes of arrays: R rows, L length of a row, G streams, T positions of a stream, H hidden.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int, Key
from ml_collections import ConfigDict

from realm_jax.models.attention import project_mixed, row_tile, self_attention
from realm_jax.models.operations import LAYER_NORM_EPS, add_bias, dropout, gelu, layer_norm, product
from realm_jax.models.whole_tiles import Block, WholeTiles

# Activations that `model.remat` keeps besides the input of a layer. The sums go into layer norms,
# `inner` into GELU: the backward pass repeats only the products of the other activations.
_KEPT = {"attention": ("mixed", "sum", "inner"), "full": ()}
_UNROLLED_LAYERS = 4  # below this depth scan is unrolled; a loop would not compile faster


class MatrixInit:
    """Initialises matrices as BERT does: a normal distribution cut at two standard deviations."""

    def __init__(self, model: ConfigDict, rngs: nnx.Rngs):
        self.stddev, self.rngs = model.init_stddev, rngs

    def __call__(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> nnx.Param:
        draw = jax.random.truncated_normal(self.rngs.params(), -2.0, 2.0, shape, jnp.float32)
        return nnx.Param(self.stddev * draw, axes=axes)


def bias(shape: tuple[int, ...], axes: tuple[str, ...]) -> nnx.Param:
    """A vector of zeros, without weight decay (see `trainer.optimizer`)."""
    return nnx.Param(jnp.zeros(shape, jnp.float32), axes=axes)


def shard_rows(x: Float[Array, "R L H"]) -> Float[Array, "R L H"]:
    """Shards activations over rows only, on all data axes of the current mesh.

    Without this constraint XLA may shard the hidden axis like the parameters. It would then move
    all activations between devices instead of gathering the parameters of one layer.
    """
    mesh = jax.sharding.get_abstract_mesh()
    data_axes = tuple(axis for axis in mesh.axis_names if axis != "model")
    parts = math.prod(mesh.shape[axis] for axis in data_axes)
    if parts == 1 or len(x) % parts:
        return x
    return lax.with_sharding_constraint(x, jax.P(data_axes))


def gather_table(table: Float[Array, "V H"]) -> Float[Array, "V H"]:
    """Gathers the hidden axis of an embedding table before lookup, under the current mesh.

    Each device then sums its own gradient of the table and reduce-scatters it. Without this
    constraint XLA would all-gather the gradients of every row of the batch.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return table
    return lax.with_sharding_constraint(table, jax.P(jax.P.UNCONSTRAINED, None))


class Bert(nnx.Module):
    """BERT encoder: token ids -> hidden vectors.

    Args:
      model: `config.model`.
      vocabulary: V.
      draw: initialiser of the matrices.
    """

    def __init__(self, model: ConfigDict, vocabulary: int, draw: MatrixInit):
        self.rate, self.remat, self.scan = model.dropout, model.remat, model.scan
        self.compute, self.attention = jnp.dtype(model.compute), model.attention
        self.approximate = model.gelu == "tanh"
        hidden = model.hidden
        self.word = draw((vocabulary, hidden), ("vocabulary", "hidden"))
        self.position = draw((model.positions, hidden), ("positions", "hidden"))
        self.segment = draw((2, hidden), ("segments", "hidden"))
        self.norm = LayerNorm(hidden)
        self.layers = Layers(model, draw)

    def __call__(
        self,
        ids: Int[Array, "R L"],
        mask: Bool[Array, "R L"],
        segments: Int[Array, "R L"],
        key: Key[Array, ""] | None = None,
        extra: Float[Array, "R L H"] | float = 0.0,
    ) -> Float[Array, "R L H"]:
        """Hidden vectors of every token.

        Args:
          ids: word-piece ids.
          mask: True on real tokens, False on padding.
          segments: 0 or 1 (BERT's token types).
          key: random key of dropout; None in evaluation.
          extra: additional input embeddings, summed with BERT's three.
        """
        return self.packed([_block(ids, mask, segments)], None, key, extra)

    def at(
        self,
        ids: Int[Array, "R L"],
        mask: Bool[Array, "R L"],
        segments: Int[Array, "R L"],
        positions: Int[Array, "R N"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "R N H"]:
        """Hidden vectors at N positions of each row.

        In the last layer only these positions pass through the feed-forward block.
        """
        return self.packed([_block(ids, mask, segments)], positions, key)

    def packed(
        self,
        blocks: Sequence[Block],
        positions: Int[Array, "G N"] | None = None,
        key: Key[Array, ""] | None = None,
        extra: Float[Array, "G T H"] | float = 0.0,
    ) -> Float[Array, "G _ H"]:
        """Hidden vectors of G streams; a stream is the rows of all blocks concatenated.

        Attention stays within a row. All other operations are per token.

        Args:
          blocks: rows grouped by width.
          positions: N positions of each stream to return; None returns all T.
          key: random key of dropout; None in evaluation.
          extra: additional input embeddings, summed with BERT's three.
        """
        tiles = WholeTiles(blocks, row_tile(self.attention))
        blocks = tiles.blocks(blocks)
        ids, _, segments = (
            jnp.concatenate([part.reshape(len(part), -1) for part in kind], axis=1)
            for kind in zip(*blocks, strict=True)
        )
        word, position, segment = (
            gather_table(table[...]) for table in (self.word, self.position, self.segment)
        )
        widest = max(ids.shape[2] for ids, _, _ in blocks)  # with tiles, it may exceed the table
        position = jnp.pad(position, ((0, max(0, widest - len(position))), (0, 0)))
        tiled = [jnp.tile(position[: ids.shape[2]], (ids.shape[1], 1)) for ids, _, _ in blocks]
        x = word[ids] + jnp.concatenate(tiled)[None] + segment[segments]
        x += extra if isinstance(extra, float) else tiles.padded(extra)
        x = self.norm(x.astype(self.compute))
        keys = [None, None] if key is None else jax.random.split(key)
        x = shard_rows(dropout(x, self.rate, keys[0]))
        masks = [mask for _, mask, _ in blocks]
        if positions is None:
            return tiles.cut(self._encode(x, masks, None, keys[1]))
        return self._encode(x, masks, tiles.positions(positions), keys[1])

    def _encode(
        self,
        x: Float[Array, "G T H"],
        masks: Sequence[Bool[Array, "G _ _"]],
        positions: Int[Array, "G N"] | None,
        key: Key[Array, ""] | None,
    ) -> Float[Array, "G _ H"]:
        def layer(x, step, selected=None):
            weights, index = step
            layer_key = None if key is None else jax.random.fold_in(key, index)
            return shard_rows(self._layer(x, weights, masks, selected, layer_key)), None

        if self.remat != "none":
            kept = jax.checkpoint_policies.save_only_these_names(*_KEPT[self.remat])
            layer = jax.checkpoint(layer, policy=kept)
        stacked = {name: leaf[...] for name, leaf in self.layers.stacked().items()}
        steps, top = (stacked, jnp.arange(self.layers.depth)), self.layers.depth - 1
        below = jax.tree.map(lambda leaf: leaf[:top], steps)
        x, _ = lax.scan(layer, x, below, unroll=top < _UNROLLED_LAYERS or not self.scan)
        return layer(x, jax.tree.map(lambda leaf: leaf[top], steps), positions)[0]

    def _layer(
        self,
        x: Float[Array, "G T H"],
        w: dict[str, Array],
        masks: Sequence[Bool[Array, "G _ _"]],
        positions: Int[Array, "G N"] | None,
        key: Key[Array, ""] | None,
    ) -> Float[Array, "G _ H"]:
        """One post-norm layer; its feed-forward block only at `positions` (None: everywhere)."""
        keys = [None] * 3 if key is None else jax.random.split(key, 3)
        mixed = self_attention(x, w, masks, self.attention, self.rate, keys[0])
        mixed = checkpoint_name(mixed, "mixed")
        if positions is not None:
            x, mixed = (_at(positions, part) for part in (x, mixed))
        attended = project_mixed(mixed, w["output_kernel"])
        attended = add_bias(attended, w["output_bias"]).astype(x.dtype)
        x = checkpoint_name(x + dropout(attended, self.rate, keys[1]), "sum")
        x = layer_norm(x, w["attention_norm_scale"], w["attention_norm_bias"])
        inner = add_bias(product("rlh,hm->rlm", x, w["up_kernel"]), w["up_bias"])
        if self.remat == "none":  # the backward pass of this GELU repeats nothing
            inner = jax.nn.gelu(inner, self.approximate).astype(x.dtype)
        else:
            inner = gelu(checkpoint_name(inner.astype(x.dtype), "inner"), self.approximate)
        out = add_bias(product("rlm,mh->rlh", inner, w["down_kernel"]), w["down_bias"])
        x = checkpoint_name(x + dropout(out.astype(x.dtype), self.rate, keys[2]), "sum")
        return layer_norm(x, w["output_norm_scale"], w["output_norm_bias"])


class LayerNorm(nnx.Module):
    """Layer normalisation with learned scale and offset, in float32."""

    def __init__(self, width: int, axis: str = "hidden", eps: float = LAYER_NORM_EPS):
        self.scale = nnx.Param(jnp.ones((width,), jnp.float32), axes=(axis,))
        self.bias = bias((width,), (axis,))
        self.eps = eps

    def __call__(self, x: Float[Array, "*rows H"]) -> Float[Array, "*rows H"]:
        return layer_norm(x, self.scale[...], self.bias[...], self.eps)


class Dense(nnx.Module):
    """x W + b, multiplied in the dtype of x with float32 accumulation."""

    def __init__(self, size_in: int, size_out: int, axes: tuple[str, str], draw: MatrixInit):
        self.kernel = draw((size_in, size_out), axes)
        self.bias = bias((size_out,), axes[1:])

    def __call__(self, x: Float[Array, "*rows I"]) -> Float[Array, "*rows O"]:
        out = product("ri,io->ro", x.reshape(-1, x.shape[-1]), self.kernel[...])
        return add_bias(out, self.bias[...]).astype(x.dtype).reshape(*x.shape[:-1], -1)


class Layers(nnx.Module):
    """Parameters of all encoder layers, stacked along the first axis."""

    def __init__(self, model: ConfigDict, draw: MatrixInit):
        depth, hidden, heads, mlp = model.layers, model.hidden, model.heads, model.mlp
        size = hidden // heads
        self.depth = depth
        for name in ("query", "key", "value"):
            shape, axes = (depth, hidden, heads, size), ("layers", "hidden", "heads", "head")
            setattr(self, f"{name}_kernel", draw(shape, axes))
            setattr(self, f"{name}_bias", bias(shape[:1] + shape[2:], (axes[0], *axes[2:])))
        shape, axes = (depth, heads, size, hidden), ("layers", "heads", "head", "hidden")
        self.output_kernel = draw(shape, axes)
        self.output_bias = bias((depth, hidden), ("layers", "hidden"))
        self.up_kernel = draw((depth, hidden, mlp), ("layers", "hidden", "mlp"))
        self.up_bias = bias((depth, mlp), ("layers", "mlp"))
        self.down_kernel = draw((depth, mlp, hidden), ("layers", "mlp", "hidden"))
        self.down_bias = bias((depth, hidden), ("layers", "hidden"))
        for name in ("attention_norm", "output_norm"):
            ones = jnp.ones((depth, hidden), jnp.float32)
            setattr(self, f"{name}_scale", nnx.Param(ones, axes=("layers", "hidden")))
            setattr(self, f"{name}_bias", bias((depth, hidden), ("layers", "hidden")))

    def stacked(self) -> dict[str, nnx.Param]:
        """Parameter name -> stacked parameter."""
        return {name: leaf for name, leaf in vars(self).items() if isinstance(leaf, nnx.Param)}


def rows_of_streams(
    x: Float[Array, "G T H"], starts: Int[Array, "G N"], width: int
) -> Float[Array, "G_N W H"]:
    """Unpacks the rows of packed streams (`Bert.packed`).

    Args:
      x: hidden vectors of the streams.
      starts: position at which each row begins.
      width: W. The values behind the end of a row are undefined.
    """
    within = jnp.minimum(starts[:, :, None] + jnp.arange(width)[None, None], x.shape[1] - 1)
    return _at(within.reshape(len(x), -1), x).reshape(-1, width, x.shape[2])


def _block(ids: Int[Array, "R L"], mask: Bool[Array, "R L"], segments: Int[Array, "R L"]) -> Block:
    """Rows as R streams of one row each."""
    return ids[:, None], mask[:, None], segments[:, None]


def _at(positions: Int[Array, "G N"], x: Float[Array, "G T *F"]) -> Float[Array, "G N *F"]:
    """x at N positions of each stream."""
    return jnp.take_along_axis(x, jnp.expand_dims(positions, tuple(range(2, x.ndim))), axis=1)
