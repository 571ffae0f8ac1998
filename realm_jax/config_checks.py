"""Which values each config key may have, and which keys restrict each other."""

import math
import re
from collections.abc import Mapping
from typing import Any

from realm_jax.defaults import STAGES
from realm_jax.errors import ConfigError

_CHOICES = {
    "masking.scheme": ("salient_span", "random_span", "random_token"),
    "corpus.questions_format": ("own", "nq", "webquestions", "trec", "squad"),
    "corpus.questions_part": ("all", "train", "dev"),
    "search.kind": ("scann", "exact", "mesh", "faiss"),
    "search.dtype": ("float32", "bfloat16"),
    "search.rescore": ("float32", "bfloat16", "int8"),
    "search.placement": ("everywhere", "hosts"),
    "retrieval.search_with": ("index", "fresh"),
    "stages.realm.marginal": ("paper", "released"),
    "stages.realm.retriever_loss": ("marginal", "pdist"),
    "stages.qa.retriever": ("dense", "bm25"),
    "refresh.mode": ("async", "sync", "rolling"),
    "model.compute": ("float32", "bfloat16"),
    "model.attention": ("auto", "xla", "pallas", "cudnn"),
    "model.remat": ("none", "attention", "full"),
    "model.gelu": ("tanh", "erf"),
    "model.pooling": ("pooler", "cls", "mean", "max", "mean_sqrt_len"),
    "model.null_score": ("embedded", "fixed", "learned"),
    "model.passage_row": ("pair", "single"),
}
OVER_TOKENS = ("mean", "max", "mean_sqrt_len")  # kinds of pooling that read every token of a row
ACTIVATIONS = ("identity", "tanh", "relu", "gelu")  # of the linear layers of model.projection
_LAYER = rf"[1-9]\d{{0,5}}(?::(?:{'|'.join(ACTIVATIONS)}))?"
_LAYERS = re.compile(rf"{_LAYER}(?: {_LAYER}){{0,7}}")
_WRITERS = ("tensorboard", "wandb")
_AT_LEAST_ONE = """
  model.layers model.hidden model.heads model.mlp model.embedding lengths.masks lengths.answer
  stages.qa.reader_passages stages.qa.retriever_passages refresh.every refresh.keep checkpoint.keep
  builder.shard builder.batch_pieces builder.probes evaluation.queries evaluation.recall_k
  report.every optimizer.accumulate_steps
"""
_AT_LEAST_ZERO_OF_STAGE = ("steps", "learning_rate", "evaluate_every")
# key -> least value
_LEAST: dict[str, float] = {
    **dict.fromkeys(_AT_LEAST_ONE.split(), 1),
    **{f"stages.{stage}.batch": 1 for stage in STAGES},
    **{f"stages.{stage}.{key}": 0 for stage in STAGES for key in _AT_LEAST_ZERO_OF_STAGE},
    "lengths.query": 4,
    "stages.tagger.row_length": 8,
    "model.span": 0,
    "lengths.passage": 8,
    "lengths.indexed": 0,
    "search.leaves": 0,
    "search.leaves_searched": 0,
    "search.reorder": 0,
    "search.dims_per_code": 1,
    "search.segment_passages": 1,
    "retrieval.candidates": 2,
    "stages.realm.draws": 1,
    "stages.ict.distance_penalty": 0,
    "stages.realm.distance_penalty": 0,
    "retrieval.rerank": 0,
    "refresh.wait_seconds": 0,
    "refresh.max_staleness": 0,
    "refresh.segment_max_age": 0,
    "refresh.alarm_steps": 0,
    "mesh.groups": 0,
    "model.init_stddev": 0,
    "optimizer.clip": 1e-6,
    "optimizer.eps": 1e-12,
    "optimizer.weight_decay": 0,
    "optimizer.warmup_max_steps": 0,
    "checkpoint.every": 0,
    "report.peak_flops": 0,
    "report.examples": 0,
    "report.max_passages": 0,
    "builder.poll_seconds": 0.001,
    "seed": 0,
}
_SHARES = """
  masking.rate stages.reader.copying_share stages.reader.neighbour_share
  stages.reader.null_share stages.reader.permuted_share stages.reader.hidden_mask_share
  stages.ict.mask_share stages.ict.removal_share stages.ict.title_share stages.realm.title_share
  stages.tagger.unknown_share builder.recall_floor builder.reencode_loss optimizer.warmup_share
"""
_BELOW_ONE = ("model.dropout", "optimizer.b1", "optimizer.b2")  # at 1, nothing is learned


def check_values(values: Mapping[str, Any]) -> None:
    """Raises a ConfigError for the first value that is not allowed.

    Args:
      values: dotted key -> value, for every key of `realm_jax.defaults`.
    """
    for key, allowed in _CHOICES.items():
        if values[key] not in allowed:
            raise ConfigError(
                "config value is not one of the choices",
                where=f"config.{key}",
                expected=" or ".join(allowed),
                found=repr(values[key]),
            )
    for key, least in _LEAST.items():  # `not value < least` would accept NaN
        _require(values, key, values[key] >= least, f"at least {least}")
    for key in _SHARES.split():
        _require(values, key, 0 <= values[key] <= 1, "a share, 0 to 1")
    for key in _BELOW_ONE:
        _require(values, key, 0 <= values[key] < 1, "at least 0 and below 1")
    for key, value in values.items():
        if isinstance(value, float):
            _require(values, key, math.isfinite(value), "a finite number")
    _require(values, "seed", values["seed"] < 2**63, "below 2**63")
    for writer in values["report.writers"].split():
        _require(values, "report.writers", writer in _WRITERS, f"some of {' '.join(_WRITERS)}")
    profiled = values["report.profile_steps"]
    step_range = not profiled or _is_step_range(profiled)
    _require(values, "report.profile_steps", step_range, "FIRST:LAST, such as 10:12, or empty")
    _check_sizes(values)
    _check_embedder(values)
    _check_stages(values)
    _check_retrieval(values)


def _is_step_range(text: str) -> bool:
    first, colon, last = text.partition(":")
    numbers = bool(colon) and first.isdecimal() and last.isdecimal()
    return numbers and int(first) <= int(last)


def _check_sizes(values: Mapping[str, Any]) -> None:
    hidden, heads, query = values["model.hidden"], values["model.heads"], values["lengths.query"]
    _require(values, "model.heads", hidden % heads == 0, "a divisor of model.hidden")
    rows = (values[f"lengths.{name}"] for name in ("joint", "passage", "indexed"))
    longest = max(query, *rows)
    long_enough = values["model.positions"] >= longest
    _require(values, "model.positions", long_enough, f"at least {longest}, the longest row")
    _require(values, "lengths.joint", values["lengths.joint"] > query, "more than lengths.query")


def dense_layers(projection: str) -> list[tuple[int, str]]:
    """Width and activation of each layer of a `model.projection` such as "512:tanh 256".

    [] for `none` and `layer_norm`.

    Raises:
      ValueError: the text has another form.
    """
    if projection in ("none", "layer_norm"):
        return []
    if not _LAYERS.fullmatch(projection):
        raise ValueError(projection)
    parts = (layer.partition(":") for layer in projection.split())
    return [(int(width), activation or "identity") for width, _, activation in parts]


def _check_embedder(values: Mapping[str, Any]) -> None:
    """The form of the embedder; E follows from the projection, unless it is the paper's."""
    projection, width = values["model.projection"], values["model.embedding"]
    try:
        layers = dense_layers(projection)
    except ValueError:
        known = " or ".join(ACTIVATIONS)
        form = f"layer_norm, none, or up to 8 linear layers as in 512:tanh 256, with {known}"
        _require(values, "model.projection", False, form)
    if projection != "layer_norm":
        last = layers[-1][0] if layers else values["model.hidden"]
        expected = f"{last}, the width of the vectors with model.projection={projection}"
        _require(values, "model.embedding", width == last, expected)
    temperature = values["model.temperature"]
    _require(values, "model.temperature", 1e-4 <= temperature <= 1e4, "0.0001 to 10000")
    finite = abs(values["model.null_value"]) <= 1e6
    _require(values, "model.null_value", finite, "-1000000 to 1000000")
    one_text = values["model.passage_row"] == "single" or not values["model.passage_prompt"]
    _require(values, "model.passage_row", one_text, "single, for a model.passage_prompt")


def _check_stages(values: Mapping[str, Any]) -> None:
    most = 1 - values["stages.reader.neighbour_share"]
    fits = values["stages.reader.null_share"] <= most
    at_most = f"at most {most}, which is 1 - stages.reader.neighbour_share"
    _require(values, "stages.reader.null_share", fits, at_most)
    stop, least = (values[f"stages.realm.{name}_utility"] for name in ("stop", "least"))
    at_most = f"0, or at most {least} (stages.realm.least_utility)"
    _require(values, "stages.realm.stop_utility", not stop or stop <= least, at_most)
    has_reader = not values["stages.ict.from_reader"] or values["stages.reader.steps"] > 0
    _require(values, "stages.ict.from_reader", has_reader, "False, or stages.reader.steps above 0")


def _check_retrieval(values: Mapping[str, Any]) -> None:
    bound, fresh_most = values["refresh.max_staleness"], values["refresh.every"] - 1
    enough = f"0, or at least refresh.every - 1 = {fresh_most}: no index is fresher than that"
    _require(values, "refresh.max_staleness", bound == 0 or bound >= fresh_most, enough)
    kind, rerank = values["search.kind"], values["retrieval.rerank"]
    fresh = values["retrieval.search_with"] == "fresh"
    _require(
        values, "search.kind", not fresh or kind == "mesh", "mesh, for retrieval.search_with=fresh"
    )
    candidates = values["retrieval.candidates"]
    enough = f"0, or at least retrieval.candidates = {candidates}"
    _require(values, "retrieval.rerank", rerank == 0 or rerank >= candidates, enough)
    on_host = kind != "mesh"
    _require(values, "search.kind", not rerank or on_host, "not mesh, for retrieval.rerank above 0")


def _require(values: Mapping[str, Any], key: str, holds: bool, expected: str) -> None:
    if not holds:
        raise ConfigError(
            "config value is not allowed",
            where=f"config.{key}",
            expected=expected,
            found=values[key],
        )
