"""Config files, overrides and JSON, and the error for each kind of mistake."""

import importlib.util
import json
import math
from pathlib import Path

import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.errors import ConfigError
from realm_jax.moved_keys import MOVED_KEYS


def assert_refused(call, *texts):
    with pytest.raises(ConfigError) as error:
        call()
    for text in texts:
        assert text in str(error.value)


def overridden(**overrides):
    return config_lib.load(None, {key.replace("__", "."): v for key, v in overrides.items()})


def write(tmp_path, body):
    path = tmp_path / "experiment.py"
    path.write_text(f"from realm_jax.config import default\ndef get_config():\n{body}\n")
    return path


def test_the_defaults_are_those_of_the_paper():
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
        ("model.scan", "true", True),
        ("model.remat", "true", "full"),  # a value of an earlier version
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
    [("stages.realm.steps", "3.5"), ("stages.realm.steps", "many"), ("model.scan", "1")],
)
def test_an_override_of_another_type_is_refused(key, text):
    assert_refused(lambda: config_lib.load(None, {key: text}), key, "wrong type", text)


def test_an_unknown_key_is_refused_with_the_closest_key():
    assert_refused(lambda: overridden(stages__realm__step="3"), "stages.realm.steps")
    assert_refused(lambda: overridden(candidates="3"), "retrieval.candidates")


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
        ("model__dropout", 1.0),
        ("optimizer__b1", 1.0),
        ("builder__recall_floor", 95.0),
        ("stages__realm__learning_rate", math.inf),
        ("stages__realm__least_utility", math.nan),
        ("seed", 2**63),
        ("model__layers", 0),
        ("optimizer__clip", 0.0),
        ("optimizer__eps", 0.0),
        ("seed", -1),
    ],
)
def test_an_invalid_value_is_refused_with_its_key(key, value):
    dotted = key.replace("__", ".")
    assert_refused(lambda: tiny_config(**{key: value}), f"config.{dotted}", "expected")


def test_a_config_file_changes_only_what_it_names(tmp_path):
    path = write(tmp_path, "    c = default()\n    c.model.layers = 3\n    return c")
    config = config_lib.load(path, {"model.heads": "6"})
    assert (config.model.layers, config.model.heads, config.model.hidden) == (3, 6, 768)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("    return default(", "SyntaxError"),
        ("    return defaults()", "NameError"),
        ("    c = default()\n    c.model.layres = 3\n    return c", "model.layers"),
        ("    c = default()\n    del c.mesh\n    return c", "mesh"),
        ("    return 3", "returns no config"),
        ("    default()", "None"),
    ],
)
def test_an_invalid_config_file_is_refused_with_its_path(tmp_path, body, text):
    path = write(tmp_path, body)
    assert_refused(lambda: config_lib.load(path), str(path), text)


def test_a_missing_config_file_is_refused_with_its_path(tmp_path):
    assert_refused(lambda: config_lib.load(tmp_path / "none.py"), "none.py")


@pytest.mark.parametrize("name", ["config.json", "README.md", "config"])
def test_a_config_file_must_be_a_python_file(tmp_path, name):
    (tmp_path / name).write_text("{}")
    assert_refused(lambda: config_lib.load(tmp_path / name), name, "a Python file")


def test_a_config_survives_the_round_trip_through_json():
    config = tiny_config(model__dropout=0.25, corpus__knowledge="somewhere")
    again = config_lib.from_json(config_lib.to_json(config), "config.json")
    assert again.to_dict() == config.to_dict()
    with pytest.raises(AttributeError):
        again.model.layer = 3


@pytest.mark.parametrize("text", ["{", '{"seed": 0}', "3"])
def test_json_that_is_not_a_config_is_refused(text):
    assert_refused(lambda: config_lib.from_json(text, where="run/config.json"), "run/config.json")


def test_a_config_of_an_earlier_version_is_completed_with_a_warning(caplog):
    config = tiny_config(model__dropout=0.25)
    older = config.to_dict()
    del older["report"], older["search"]["kind"]
    found = config_lib.from_json(json.dumps(older), where="old/config.json")
    assert found.report.to_dict() == config_lib.default().report.to_dict()
    assert found.search.kind == config_lib.default().search.kind
    assert found.model.dropout == 0.25
    assert "old/config.json" in caplog.text and "search.kind" in caplog.text


OLD = {  # dotted keys of the first version and values that are not the defaults
    "masking.copying": 0.4,
    "masking.neighbour": 0.1,
    "masking.alone": 0.2,
    "masking.permute": 0.5,
    "masking.unseen": 0.3,
    "masking.words": 0.25,
    "objective.hidden": 0.15,
    "objective.removal": 0.5,
    "objective.marginal": "released",
    "objective.retriever_loss": "pdist",
    "corpus.tagged": "train.txt",
    "corpus.tagged_held_out": "dev.txt",
    "corpus.vocabulary": "vocab.txt",
    "lengths.sentences": 24,
    "retrieval.exclude_own": False,
    "optimizer.warmup_most": 77,
    "refresh.most_stale": 700,
    "evaluation.neighbours": 3,
    "report.most_passages": 9,
}


def first_version(changes):
    """The JSON that the first version wrote for its defaults with these changes."""
    content = config_lib.default().to_dict()
    for old, new in MOVED_KEYS.items():
        *parents, leaf = new.split(".")
        owner = content
        for name in parents:
            owner = owner[name]
        section, name = old.split(".")
        content.setdefault(section, {})[name] = changes.get(old, owner[leaf])
        del owner[leaf]
    return json.dumps(content)


def test_every_key_of_the_first_version_is_read_under_its_new_name(caplog):
    config = config_lib.from_json(first_version(OLD), "config.json")
    assert MOVED_KEYS.keys() == OLD.keys()
    assert {k: config_lib.value_of(config, MOVED_KEYS[k]) for k in OLD} == OLD
    assert "objective" not in config
    assert not caplog.records
    unchanged = config_lib.from_json(first_version({}), "config.json")
    assert unchanged.to_dict() == config_lib.default().to_dict()


def test_the_model_hash_of_a_config_of_the_first_version_has_not_changed():
    # Computed with the code of the first version.
    changed = config_lib.default()
    changed.model.entities, changed.stages.tagger.row_length = "PER LOC", 24
    assert config_lib.model_hash(config_lib.default()) == "b2caa6a18a3c4a7f"
    assert (
        config_lib.model_hash(config_lib.from_json(first_version({}), "config.json"))
        == "b2caa6a18a3c4a7f"
    )
    assert config_lib.model_hash(changed) == "35fde9bcb798362d"


def test_a_run_of_the_first_version_differs_from_another_model_in_current_keys():
    old = config_lib.from_json(first_version(OLD), "config.json")
    assert config_lib.model_differences(old, old) == {}
    different = config_lib.model_differences(old, config_lib.default())
    assert different == {"stages.tagger.row_length": (24, 128)}


def test_a_config_with_the_old_and_the_new_name_of_a_key_is_refused():
    content = json.loads(first_version({}))
    content["stages"]["reader"]["null_share"] = 0.1
    assert_refused(
        lambda: config_lib.from_json(json.dumps(content), "config.json"),
        "masking.alone",
        "null_share",
    )


@pytest.mark.parametrize("old", OLD)
def test_an_old_key_on_the_command_line_is_an_error_with_the_new_key(old):
    assert_refused(lambda: config_lib.load(None, {old: "0"}), f"--config.{old}", MOVED_KEYS[old])


def test_an_old_key_in_a_config_file_is_an_error_with_the_new_key(tmp_path):
    path = write(tmp_path, "    c = default()\n    c.masking.alone = 0.1\n    return c")
    assert_refused(lambda: config_lib.load(path), str(path), "stages.reader.null_share")


def test_a_recipe_is_loaded_by_name_or_by_path():
    recipe = config_lib.recipes()["own_corpus"]
    by_name, by_path = config_lib.load("own_corpus"), config_lib.load(recipe)
    assert by_name.to_dict() == by_path.to_dict()
    assert by_name.stages.reader.steps == 6000


def test_an_unknown_recipe_is_refused_with_all_names_and_the_nearest():
    assert_refused(lambda: config_lib.load("own_corpsu"), "wiki_sample", "--config=own_corpus?")
    assert_refused(lambda: config_lib.load("experiments/own_corpsu.py"), "--config=own_corpus?")


def test_the_config_reference_is_up_to_date():
    script = Path(__file__).parents[1] / ".ci" / "config_reference.py"
    spec = importlib.util.spec_from_file_location("config_reference", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run: make config-reference"


@pytest.mark.parametrize(("earlier", "now"), [(True, "full"), (False, "none")])
def test_a_config_with_an_earlier_value_is_read(earlier, now):
    content = tiny_config().to_dict()
    content["model"]["remat"] = earlier
    assert config_lib.from_json(json.dumps(content), "config.json").model.remat == now


def test_the_model_hash_depends_on_shapes_and_not_on_paths():
    base = config_lib.model_hash(tiny_config())
    same = {"corpus__knowledge": "x", "model__remat": "full", "stages__realm__steps": 9, "seed": 3}
    other = {"model__hidden": 32, "lengths__query": 20, "model__embedding": 4}
    assert {config_lib.model_hash(tiny_config(**{k: v})) for k, v in same.items()} == {base}
    assert base not in {config_lib.model_hash(tiny_config(**{k: v})) for k, v in other.items()}


def test_model_differences_lists_the_keys_that_change_the_model():
    base = tiny_config()
    assert config_lib.model_differences(base, tiny_config(seed=3, model__remat="full")) == {}
    other = tiny_config(model__embedding=4, lengths__query=20, seed=3)
    assert config_lib.model_differences(base, other) == {
        key: (config_lib.value_of(base, key), value)
        for key, value in (("lengths.query", 20), ("model.embedding", 4))
    }


# Numbers that may be negative, or are checked when the mesh is made.
ANY_SIGN = {"model.null_value", "stages.realm.least_utility", "stages.realm.stop_utility"}
AXES = {f"mesh.{axis}" for axis in ("replica", "data", "fsdp", "model")}


@pytest.mark.parametrize(
    "key",
    [
        key
        for key in config_lib.keys(config_lib.default())
        if type(config_lib.value_of(config_lib.default(), key)) in (int, float)
        and key not in ANY_SIGN | AXES
    ],
)
def test_every_number_has_a_range(key):
    config = config_lib.default()
    config_lib.set_key(config, key, "-2")
    assert_refused(lambda: config_lib.check(config), key)
