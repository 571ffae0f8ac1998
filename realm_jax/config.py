"""Configs: read, overridden, checked, written. Every default is in `realm_jax.defaults`.

An experiment file (`experiments/NAME.py`) defines `get_config()`, which starts from `default()` and
changes only what differs. A config file is Python code: run only those you trust.
"""

import ast
import difflib
import functools
import hashlib
import importlib.util
import json
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from realm_jax.defaults import STAGES, default
from realm_jax.errors import ConfigError

log = logging.getLogger(__name__)
_EVERY_VERSION = {"seed", "corpus", "model", "lengths", "stages"}  # what all configs have had


def load(path: str | Path | None, overrides: dict[str, str] | None = None) -> ConfigDict:
    """`get_config()` of an experiment file (or the defaults), with command-line overrides, locked.

    Args:
      path: a Python file that defines `get_config()`, or None.
      overrides: dotted key to value as typed, as in `{"stages.realm.steps": "300"}`.

    Raises:
      ConfigError: for a missing file, an unknown key or a value of another type.
    """
    config = default() if path is None else from_file(Path(path))
    for key, text in (overrides or {}).items():
        set_key(config, key, text)
    return check(config)


def from_file(path: Path) -> ConfigDict:
    """`get_config()` of an experiment file, unlocked, for another one to change.

    Raises:
      ConfigError: a missing file, one that is not Python or does not run, or that gives no config.
    """
    if not path.is_file():
        known = {one.stem: str(one) for one in sorted(Path("experiments").glob("*.py"))}
        near = difflib.get_close_matches(path.stem, known, n=1)
        raise ConfigError(
            "no such config file",
            where=path,
            expected=", ".join(known.values()) or "a Python file",
            fix=f"did you mean {known[near[0]]}?" if near else None,
        )
    if path.suffix != ".py":
        expected = "a Python file, as experiments/NAME.py"
        raise ConfigError("not a config file", where=path, expected=expected, found=path.name)
    a_config = "a get_config() that returns a changed realm_jax.config.default()"
    try:
        config = _executed(path).get_config()
    except _MISTAKES as error:
        raise ConfigError(
            "config file does not run",
            where=path,
            expected=a_config,
            found=f"{type(error).__name__}: {error}",
        ) from error
    if not isinstance(config, ConfigDict):
        raise ConfigError(
            "config file gives no config", where=path, expected=a_config, found=repr(config)[:60]
        )
    assert_known(config, where=path)
    return config


_MISTAKES = (
    SyntaxError,
    ImportError,
    NameError,
    AttributeError,
    TypeError,
    KeyError,
    ValueError,
)


def _executed(path: Path) -> ModuleType:
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(f"realm_config_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keys(config: ConfigDict, prefix: str = "") -> list[str]:
    """All dotted keys of the leaves."""
    found: list[str] = []
    for key, value in config.items():
        dotted = f"{prefix}{key}"
        found += keys(value, f"{dotted}.") if isinstance(value, ConfigDict) else [dotted]
    return found


def assert_known(config: ConfigDict, where: object = None) -> None:
    """Refuses keys that `default()` does not have, and config dicts that lack some."""
    known = keys(default())
    for key in keys(config):
        if key not in known:
            raise unknown_key(key, known, where)
    missing = sorted(set(known) - set(keys(config)))
    if missing:
        raise ConfigError("config lacks keys", where=where, expected=missing[0], found="nothing")


def unknown_key(key: str, known: list[str], where: object = None) -> ConfigError:
    """The error for a key that does not exist, with the nearest that does."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.3)
    tails = [k for k in known if k.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    nearest = (near or tails or known)[0]
    return ConfigError(f"unknown config key {key!r}", where=where, fix=f"did you mean {nearest!r}?")


def set_key(config: ConfigDict, key: str, text: str) -> None:
    """Sets one dotted key from text, in the type that the default has."""
    known = keys(config)
    if key not in known:
        raise unknown_key(key, known, where=f"--config.{key}")
    *parents, leaf = key.split(".")
    owner = config
    for name in parents:
        owner = owner[name]
    owner[leaf] = _parse(key, text, owner[leaf])


def _parse(key: str, text: str, like: Any) -> Any:
    if isinstance(like, str):
        return text
    try:
        value = ast.literal_eval(text.capitalize() if isinstance(like, bool) else text)
    except (ValueError, SyntaxError):
        value = text
    if isinstance(like, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not type(like):
        raise ConfigError(
            "config value has the wrong type",
            where=f"--config.{key}",
            expected=f"{type(like).__name__}, like {like!r}",
            found=repr(text),
        )
    return value


_CHOICES = {
    "masking.scheme": ("salient_span", "random_span", "random_token"),
    "corpus.questions_format": ("own", "nq", "webquestions", "trec", "squad"),
    "corpus.questions_part": ("all", "train", "dev"),
    "search.kind": ("scann", "exact", "mesh", "faiss"),
    "search.dtype": ("float32", "bfloat16"),
    "search.rescore": ("float32", "bfloat16", "int8"),
    "retrieval.search_with": ("index", "fresh"),
    "objective.marginal": ("paper", "released"),
    "objective.retriever_loss": ("marginal", "pdist"),
    "refresh.mode": ("async", "sync"),
    "model.compute": ("float32", "bfloat16"),
    "model.gelu": ("tanh", "erf"),
}


_WRITERS = ("tensorboard", "wandb")
_AT_LEAST_ONE = """
  model.layers model.hidden model.heads model.mlp model.embedding lengths.masks lengths.answer
  stages.qa.reader_passages stages.qa.retriever_passages refresh.every refresh.keep checkpoint.keep
  builder.shard builder.batch_pieces builder.probes evaluation.queries evaluation.neighbours
  report.every optimizer.accumulate_steps
"""
_MAY_BE_ZERO = ("steps", "learning_rate", "evaluate_every")
# key -> least value that can work
_LEAST: dict[str, float] = {
    **dict.fromkeys(_AT_LEAST_ONE.split(), 1),
    **{f"stages.{stage}.batch": 1 for stage in STAGES},
    **{f"stages.{stage}.{key}": 0 for stage in STAGES for key in _MAY_BE_ZERO},
    "lengths.query": 4,
    "lengths.sentences": 8,
    "model.span": 0,
    "lengths.passage": 8,
    "search.leaves": 0,
    "search.leaves_searched": 0,
    "search.reorder": 0,
    "search.dims_per_code": 1,
    "retrieval.candidates": 2,
    "retrieval.rerank": 0,
    "refresh.wait_seconds": 0,
    "refresh.most_stale": 0,
    "checkpoint.every": 0,
    "report.peak_flops": 0,
    "report.examples": 0,
    "report.most_passages": 0,
    "builder.poll_seconds": 0.001,
}
_SHARES = """
  model.dropout masking.copying masking.neighbour masking.alone masking.permute masking.unseen
  masking.rate masking.words objective.removal objective.hidden builder.reencode_loss
"""


def check(config: ConfigDict) -> ConfigDict:
    """Refuses values that cannot work together, then locks the dict."""
    flat = {key: _get(config, key) for key in keys(config)}
    for key, allowed in _CHOICES.items():
        if flat[key] not in allowed:
            raise ConfigError(
                "config value is not one of the choices",
                where=f"config.{key}",
                expected=" or ".join(allowed),
                found=repr(flat[key]),
            )
    for key, least in _LEAST.items():  # "not less" would let NaN pass
        _require(config, key, flat[key] >= least, f"at least {least}")
    bound, needed = config.refresh.most_stale, config.refresh.every - 1
    enough = f"0, or at least refresh.every - 1 = {needed}: no index is fresher than its snapshot"
    _require(config, "refresh.most_stale", bound == 0 or bound >= needed, enough)
    for writer in config.report.writers.split():
        _require(config, "report.writers", writer in _WRITERS, f"some of {' '.join(_WRITERS)}")
    for key in _SHARES.split():
        _require(config, key, 0 <= flat[key] <= 1, "a share, 0 to 1")
    most = 1 - config.masking.neighbour
    _require(config, "masking.alone", config.masking.alone <= most, f"at most {most}: the others")
    lengths, model = config.lengths, config.model
    _require(config, "model.heads", model.hidden % model.heads == 0, "a divisor of model.hidden")
    longest = max(lengths.joint, lengths.passage, lengths.query)
    _require(config, "model.positions", model.positions >= longest, f"at least {longest}")
    _require(config, "lengths.joint", lengths.joint > lengths.query, "more than lengths.query")
    stages = config.stages
    known = not stages.ict.from_reader or stages.reader.steps > 0
    _require(config, "stages.ict.from_reader", known, "False, or steps of stages.reader")
    fresh = config.retrieval.search_with == "fresh"
    _require(config, "search.kind", not fresh or config.search.kind == "mesh", "mesh, for fresh")
    rerank, count = config.retrieval.rerank, config.retrieval.candidates
    _require(config, "retrieval.rerank", rerank == 0 or rerank >= count, f"0, or at least {count}")
    on_host = config.search.kind != "mesh"
    _require(config, "search.kind", not rerank or on_host, "not mesh, for retrieval.rerank")
    _require(config, "seed", config.seed >= 0, "at least 0")
    config.lock()
    return config


def _require(config: ConfigDict, key: str, holds: bool, expected: str) -> None:
    if not holds:
        raise ConfigError(
            "config value cannot work",
            where=f"config.{key}",
            expected=expected,
            found=_get(config, key),
        )


def _get(config: ConfigDict, key: str) -> Any:
    for name in key.split("."):
        config = config[name]
    return config


def to_json(config: ConfigDict) -> str:
    """The config as JSON with sorted keys: written beside every checkpoint, snapshot and index."""
    return json.dumps(config.to_dict(), indent=1, sort_keys=True)


def from_json(text: str, where: object = None) -> ConfigDict:
    """The inverse of `to_json`, checked and locked; keys it was written without get their defaults.

    Raises:
      ConfigError: text that is not JSON, or what `assert_known` and `check` refuse.
    """
    try:
        config = ConfigDict(json.loads(text))
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError("config is not JSON", where=where, found=str(error)) from error
    _complete(config, where)
    assert_known(config, where)
    return check(config)


def is_config(content: object) -> bool:
    """Whether parsed JSON has the sections that a config of any version has."""
    return isinstance(content, dict) and content.keys() >= _EVERY_VERSION


def _complete(config: ConfigDict, where: object) -> None:
    """A run of an earlier version goes on: keys that came since have the values of `default()`."""
    like = default()
    if not set(config) >= _EVERY_VERSION:
        return
    missing = sorted(set(keys(like)) - set(keys(config)))
    for key in missing:
        *parents, leaf = key.split(".")
        owner, theirs = config, like
        for name in parents:
            theirs = theirs[name]
            if name not in owner:
                owner[name] = ConfigDict()
            if not isinstance(owner[name], ConfigDict):
                raise ConfigError("config has a value for a section", where=where, found=name)
            owner = owner[name]
        owner[leaf] = theirs[leaf]
    if missing:
        _tell(str(where), ", ".join(missing))


@functools.lru_cache
def _tell(where: str, missing: str) -> None:
    log.warning("%s was written by an earlier version; the defaults hold for %s", where, missing)


def model_hash(config: ConfigDict) -> str:
    """Hash of what a snapshot's parameters mean: widths and lengths, not where files lie."""
    return hashlib.sha256(json.dumps(_model(config), sort_keys=True).encode()).hexdigest()[:16]


def model_differences(one: ConfigDict, other: ConfigDict) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> both values, where two configs differ in what `model_hash` covers."""
    values = {key: (_get(one, key), _get(other, key)) for key in keys(ConfigDict(_model(one)))}
    return {key: both for key, both in values.items() if both[0] != both[1]}


def _model(config: ConfigDict) -> dict[str, Any]:
    model = {
        k: v
        for k, v in config.model.to_dict().items()
        if k not in ("start", "start_embedder", "remat", "scan", "init_stddev")
    }
    return {"model": model, "lengths": config.lengths.to_dict()}
