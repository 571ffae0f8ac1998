"""Config files, overrides and JSON: what is read, and how each mistake is named."""

import json
import math

import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.errors import ConfigError


def refused(call, *said):
    with pytest.raises(ConfigError) as error:
        call()
    for word in said:
        assert word in str(error.value)


def overridden(**overrides):
    return config_lib.load(None, {key.replace("__", "."): v for key, v in overrides.items()})


def write(tmp_path, body):
    path = tmp_path / "experiment.py"
    path.write_text(f"from realm_jax.config import default\ndef get_config():\n{body}\n")
    return path


def test_the_defaults_are_the_papers():
    config = config_lib.check(config_lib.default())
    assert (config.model.layers, config.model.hidden, config.model.embedding) == (12, 768, 128)
    assert (config.lengths.passage, config.retrieval.candidates) == (288, 8)
    assert (config.stages.realm.steps, config.stages.realm.batch) == (200_000, 512)
    assert (config.stages.ict.batch, config.refresh.every) == (4096, 500)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("stages.realm.steps", "300", 300),
        ("model.dropout", "0", 0.0),
        ("model.remat", "true", True),
        ("retrieval.null_passage", "False", False),
        ("corpus.knowledge", "7", "7"),
        ("optimizer.eps", "1e-8", 1e-8),
        ("mesh.data", "-1", -1),
    ],
)
def test_an_override_takes_the_type_of_the_default(key, text, value):
    config = config_lib.load(None, {key: text})
    for name in key.split("."):
        config = config[name]
    assert config == value and type(config) is type(value)


@pytest.mark.parametrize(
    ("key", "text"),
    [("stages.realm.steps", "3.5"), ("stages.realm.steps", "many"), ("model.remat", "1")],
)
def test_an_override_of_another_type_is_refused(key, text):
    refused(lambda: config_lib.load(None, {key: text}), key, "wrong type", text)


def test_an_unknown_key_is_refused_with_the_nearest():
    refused(lambda: overridden(stages__realm__step="3"), "stages.realm.steps")
    refused(lambda: overridden(candidates="3"), "retrieval.candidates")


def test_a_checked_config_is_locked():
    config = tiny_config()
    with pytest.raises(AttributeError):
        config.model.layer = 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("masking__scheme", "random"),
        ("stages__reader__null_share", 1.5),
        ("model__gelu", "relu"),
        ("search__kind", "annoy"),
        ("stages__realm__marginal", "both"),
        ("stages__realm__retriever_loss", "both"),
        ("model__heads", 3),
        ("model__positions", 40),
        ("lengths__joint", 20),
        ("retrieval__candidates", 1),
        ("refresh__every", 0),
        ("stages__ict__mask_share", 1.5),
        ("stages__ict__removal_share", -0.1),
        ("model__dropout", math.nan),
        ("model__layers", 0),
        ("seed", -1),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(key, value):
    dotted = key.replace("__", ".")
    refused(lambda: tiny_config(**{key: value}), f"config.{dotted}", "expected")


def test_a_config_file_changes_only_what_it_names(tmp_path):
    path = write(tmp_path, "    c = default()\n    c.model.layers = 3\n    return c")
    config = config_lib.load(path, {"model.heads": "6"})
    assert (config.model.layers, config.model.heads, config.model.hidden) == (3, 6, 768)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    return default(", "SyntaxError"),
        ("    return defaults()", "NameError"),
        ("    c = default()\n    c.model.layres = 3\n    return c", "model.layers"),
        ("    c = default()\n    del c.mesh\n    return c", "mesh"),
        ("    return 3", "gives no config"),
        ("    default()", "None"),
    ],
)
def test_a_config_file_that_does_not_run_is_named(tmp_path, body, said):
    path = write(tmp_path, body)
    refused(lambda: config_lib.load(path), str(path), said)


def test_a_missing_config_file_is_named(tmp_path):
    refused(lambda: config_lib.load(tmp_path / "none.py"), "none.py")


@pytest.mark.parametrize("name", ["config.json", "README.md", "config"])
def test_a_file_that_is_not_python_is_no_config_file(tmp_path, name):
    (tmp_path / name).write_text("{}")
    refused(lambda: config_lib.load(tmp_path / name), name, "a Python file")


def test_json_gives_the_same_config_back():
    config = tiny_config(model__dropout=0.25, corpus__knowledge="somewhere")
    again = config_lib.from_json(config_lib.to_json(config))
    assert again.to_dict() == config.to_dict()
    with pytest.raises(AttributeError):
        again.model.layer = 3


@pytest.mark.parametrize("text", ["{", '{"seed": 0}', "3"])
def test_json_that_is_no_config_is_refused(text):
    refused(lambda: config_lib.from_json(text, where="run/config.json"), "run/config.json")


def test_a_config_of_an_earlier_version_is_completed_and_that_is_told(caplog):
    config = tiny_config(model__dropout=0.25)
    older = config.to_dict()
    del older["report"], older["search"]["kind"]
    found = config_lib.from_json(json.dumps(older), where="old/config.json")
    assert found.report.to_dict() == config_lib.default().report.to_dict()
    assert found.search.kind == config_lib.default().search.kind
    assert found.model.dropout == 0.25
    assert "old/config.json" in caplog.text and "search.kind" in caplog.text


def test_model_hash_knows_shapes_and_not_places():
    base = config_lib.model_hash(tiny_config())
    same = {"corpus__knowledge": "x", "model__remat": True, "stages__realm__steps": 9, "seed": 3}
    other = {"model__hidden": 32, "lengths__query": 20, "model__embedding": 4}
    assert {config_lib.model_hash(tiny_config(**{k: v})) for k, v in same.items()} == {base}
    assert base not in {config_lib.model_hash(tiny_config(**{k: v})) for k, v in other.items()}


def test_the_keys_that_make_another_model_are_named():
    base = tiny_config()
    assert config_lib.model_differences(base, tiny_config(seed=3, model__remat=True)) == {}
    other = tiny_config(model__embedding=4, lengths__query=20, seed=3)
    assert config_lib.model_differences(base, other) == {
        key: (config_lib.value_of(base, key), value)
        for key, value in (("lengths.query", 20), ("model.embedding", 4))
    }
