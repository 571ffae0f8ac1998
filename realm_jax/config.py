"""Loads, overrides, checks and writes configs. All defaults are in `realm_jax.defaults`.

A recipe (`experiments/NAME.py`) is a Python file with a function `get_config()`, which starts from
`default()` and changes some keys. Loading it executes it, so load only files that you trust.
"""

import ast
import difflib
import functools
import hashlib
import importlib.util
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config_paths
from realm_jax.config_checks import check_values
from realm_jax.defaults import default
from realm_jax.errors import ConfigError
from realm_jax.moved_keys import MOVED_KEYS, MOVED_VALUES

log = logging.getLogger(__name__)
_ALWAYS_PRESENT = {"seed", "corpus", "model", "lengths", "stages"}  # in configs of every version


def load(config: str | Path | None, overrides: dict[str, str] | None = None) -> ConfigDict:
    """Loads a recipe or the defaults, applies overrides, checks the result and locks it.

    Args:
      config: name of a recipe or path of a Python file, see `from_file`; None for the defaults.
      overrides: dotted key -> value as text, as in `{"stages.realm.steps": "300"}`.

    Raises:
      ConfigError: a missing file, an unknown key, or a value that is not allowed.
    """
    return check(load_unchecked(config, overrides or {}))


def load_unchecked(config: str | Path | None, overrides: dict[str, str]) -> ConfigDict:
    """`load` without the check of values; the result is not locked.

    A recipe may have a second function, `get_config_from_start()`, for runs that start from
    weights. It is used if the overrides set `model.start`.
    """
    loaded = default() if config is None else from_file(config, bool(overrides.get("model.start")))
    for key, text in overrides.items():
        set_key(loaded, key, text)
    return loaded


def recipes() -> dict[str, Path]:
    """Name -> file of the recipes that are part of this installation, sorted by name."""
    installed = Path(__file__).parent / "recipes"  # in a wheel; a checkout has experiments/
    folder = installed if installed.is_dir() else Path(__file__).parents[1] / "experiments"
    return {path.stem: path for path in sorted(folder.glob("[!_]*.py"))}


def from_file(config: str | Path, from_start: bool = False) -> ConfigDict:
    """The result of `get_config()`, not locked, so that another recipe can change it.

    Args:
      config: name of a recipe, as in `own_corpus`, or path of a Python file.
      from_start: True: the result of `get_config_from_start()`, if the file has this function.

    Raises:
      ConfigError: no such recipe or file, or it cannot be executed, or it returns no config.
    """
    path = _config_file(config)
    expected = "a function get_config() that returns a changed realm_jax.config.default()"
    try:
        module = _executed(path)
        second = getattr(module, "get_config_from_start", None) if from_start else None
        result = (second or module.get_config)()
    except _PYTHON_ERRORS as error:
        raise ConfigError(
            "the config file cannot be executed",
            where=path,
            expected=expected,
            found=f"{type(error).__name__}: {error}",
        ) from error
    if not isinstance(result, ConfigDict):
        found = repr(result)[:60]
        raise ConfigError(
            "the config file returns no config", where=path, expected=expected, found=found
        )
    assert_known(result, where=path)
    return result


def _config_file(config: str | Path) -> Path:
    """The file of a recipe name or of a path."""
    path, known = Path(config), recipes()
    if str(config) in known:
        return known[str(config)]
    if not path.is_file():
        near = difflib.get_close_matches(path.stem, known, n=1)
        raise ConfigError(
            "no such config file or recipe",
            where=config,
            expected=f"the path of a Python file, or one of {', '.join(known)}",
            fix=f"did you mean --config={near[0]}?" if near else None,
        )
    if path.suffix != ".py":
        expected = "a Python file with a function get_config()"
        raise ConfigError("not a config file", where=path, expected=expected, found=path.name)
    return path


_PYTHON_ERRORS = (
    SyntaxError,
    ImportError,
    NameError,
    AttributeError,
    TypeError,
    KeyError,
    ValueError,
)


def _executed(path: Path) -> ModuleType:
    """Executes a Python file and returns it as a module."""
    spec = importlib.util.spec_from_file_location(f"realm_config_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keys(config: ConfigDict, prefix: str = "") -> list[str]:
    """Dotted keys of all leaves."""
    found: list[str] = []
    for key, value in config.items():
        dotted = f"{prefix}{key}"
        found += keys(value, f"{dotted}.") if isinstance(value, ConfigDict) else [dotted]
    return found


def value_of(config: ConfigDict, key: str) -> Any:
    """The value at a dotted key."""
    for name in key.split("."):
        config = config[name]
    return config


def assert_known(config: ConfigDict, where: object = None) -> None:
    """Raises a ConfigError if keys of `default()` are missing or other keys are present."""
    known = keys(default())
    for key in keys(config):
        if key not in known:
            raise unknown_key(key, known, where)
    missing = sorted(set(known) - set(keys(config)))
    if missing:
        raise ConfigError("the config lacks a key", where=where, expected=missing[0])


def unknown_key(key: str, known: list[str], where: object = None) -> ConfigError:
    """The error for a key that does not exist; names the new key, or else the nearest one."""
    if key in MOVED_KEYS:
        fix = f"use {MOVED_KEYS[key]!r}"
        return ConfigError(f"config key {key!r} has a new name", where=where, fix=fix)
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.3)
    tails = [k for k in known if k.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    nearest = (near or tails or known)[0]
    return ConfigError(f"unknown config key {key!r}", where=where, fix=f"did you mean {nearest!r}?")


def set_key(config: ConfigDict, key: str, text: str) -> None:
    """Sets one dotted key from text, which is parsed with the type of the default."""
    known = keys(config)
    if key not in known:
        raise unknown_key(key, known, where=f"--config.{key}")
    text = MOVED_VALUES.get(key, {}).get(text.lower(), text)
    set_value(config, key, _parse(key, text, value_of(config, key)))


def set_value(config: ConfigDict, key: str, value: Any) -> None:
    """Sets one dotted key that exists."""
    *parents, leaf = key.split(".")
    for name in parents:
        config = config[name]
    config[leaf] = value


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


def check(config: ConfigDict) -> ConfigDict:
    """Raises a ConfigError for the first value that is not allowed; locks the config."""
    check_values({key: value_of(config, key) for key in keys(config)})
    config.lock()
    return config


def to_json(config: ConfigDict, workdir: str | os.PathLike[str] | None = None) -> str:
    """The config as JSON with sorted keys, as in every checkpoint, snapshot and index.

    Args:
      config: of a run.
      workdir: its folder; paths inside it are kept relative to it (`config_paths`).
    """
    kept = config.copy_and_resolve_references()
    if workdir is not None:
        _replace_paths(kept, lambda path: config_paths.to_kept(path, workdir))
    return json.dumps(kept.to_dict(), indent=1, sort_keys=True)


def from_json(
    text: str | bytes, where: object, workdir: str | os.PathLike[str] | None = None
) -> ConfigDict:
    """The inverse of `to_json`, checked and locked.

    A config of an earlier version is accepted: moved keys get their new names (`MOVED_KEYS`), and
    keys that did not exist get their defaults, with a warning.

    Args:
      text: JSON.
      where: the file or artifact that holds it, for warnings and errors.
      workdir: the folder of its run, at which paths inside the run start.

    Raises:
      ConfigError: the text is not JSON, or `assert_known` or `check` fails.
    """
    try:
        content = json.loads(text)
        config = ConfigDict(with_current_keys(content))
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError("config is not JSON", where=where, found=str(error)) from error
    _add_missing_keys(config, where)
    assert_known(config, where)
    check(config)
    if workdir is not None:
        with config.unlocked():
            _replace_paths(config, lambda path: config_paths.from_kept(path, workdir))
    return config


def _replace_paths(config: ConfigDict, replace: Callable[[str], str]) -> None:
    """Applies `replace` to every path in an unlocked config."""
    for key in config_paths.KEYS:
        set_value(config, key, replace(str(value_of(config, key))))


def is_config(content: object) -> bool:
    """Whether parsed JSON has the sections that configs of every version have."""
    return isinstance(content, dict) and content.keys() >= _ALWAYS_PRESENT


def with_current_keys(content: dict[str, Any]) -> dict[str, Any]:
    """A parsed config of any version, with moved keys under their new names."""
    if not is_config(content):
        return content
    moved: dict[str, Any] = json.loads(json.dumps(content))
    for old, new in MOVED_KEYS.items():
        section, leaf = old.split(".")
        if leaf not in moved.get(section, {}):
            continue
        value = moved[section].pop(leaf)
        if not moved[section]:
            del moved[section]
        *parents, leaf = new.split(".")
        owner = moved
        for name in parents:
            owner = owner.setdefault(name, {})
        if leaf in owner:
            raise ConfigError("config has two names of one key", found=f"{old} and {new}")
        owner[leaf] = value
    for (section, leaf), values in ((key.split("."), new) for key, new in MOVED_VALUES.items()):
        found = str(moved.get(section, {}).get(leaf)).lower()
        if found in values:
            moved[section][leaf] = values[found]
    return moved


def _add_missing_keys(config: ConfigDict, where: object) -> None:
    """Gives keys that an earlier version did not have the values of `default()`."""
    defaults = default()
    if not set(config) >= _ALWAYS_PRESENT:
        return
    missing = sorted(set(keys(defaults)) - set(keys(config)))
    for key in missing:
        *parents, leaf = key.split(".")
        section = config
        for name in parents:
            if name not in section:
                section[name] = ConfigDict()
            if not isinstance(section[name], ConfigDict):
                raise ConfigError("config has a value for a section", where=where, found=name)
            section = section[name]
        section[leaf] = value_of(defaults, key)
    if missing:
        _warn_of_missing_keys(str(where), ", ".join(missing))


@functools.lru_cache
def _warn_of_missing_keys(where: str, missing: str) -> None:
    log.warning(
        "%s: config of an earlier version; these keys get their defaults: %s", where, missing
    )


def model_hash(config: ConfigDict) -> str:
    """Hash of the keys that determine the networks: sizes and lengths, but no folders."""
    return hashlib.sha256(json.dumps(_hashed(config), sort_keys=True).encode()).hexdigest()[:16]


def model_differences(one: ConfigDict, other: ConfigDict) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> both values, for the keys of `model_hash` in which two configs differ."""
    hashed = [*keys(ConfigDict(_hashed(one))), *keys(ConfigDict(_hashed(other)))]
    current = [MOVED_KEYS.get(key, key) for key in dict.fromkeys(hashed)]
    values = {key: (value_of(one, key), value_of(other, key)) for key in current}
    return {key: both for key, both in values.items() if both[0] != both[1]}


_NOT_HASHED = ("start", "start_embedder", "like_start", "remat", "scan", "attention", "init_stddev")
# Keys of the embedder's form are hashed only where they differ from the paper's form.
_FORM = {"pooling", "projection", "normalise", "temperature", "learn_temperature"}
_FORM |= {"null_score", "null_value", "passage_row", "query_prompt", "passage_prompt"}


def _hashed(config: ConfigDict) -> dict[str, Any]:
    """The hashed keys, under the names of the first version, so that hashes stay as they were."""
    model, paper = config.model.to_dict(), default().model.to_dict()
    left_out = {*_NOT_HASHED, *(key for key in _FORM if model[key] == paper[key])}
    hashed = {key: value for key, value in model.items() if key not in left_out}
    own = config.lengths
    not_used = {"fitted", "indexed"} if own.indexed <= own.passage else {"fitted"}
    lengths = {key: value for key, value in own.items() if key not in not_used}
    return {"model": hashed, "lengths": {**lengths, "sentences": config.stages.tagger.row_length}}
