"""What the scripts of `experiments/` and `launch/` share."""

from pathlib import Path

import pytest

from realm_jax.cli.scripts import require_same_settings, script_parser
from realm_jax.errors import InputError


def test_a_folder_keeps_results_of_one_setting(tmp_path):
    settings = {"start": "a", "overrides": ("--config.seed=1",)}
    for _ in range(2):
        require_same_settings(tmp_path / "home", settings)
    with pytest.raises(InputError, match=r"other settings[\s\S]*start a[\s\S]*start b"):
        require_same_settings(tmp_path / "home", {**settings, "start": "b"})
    with pytest.raises(InputError, match="overrides"):
        require_same_settings(tmp_path / "home", {**settings, "overrides": []})


def test_a_path_of_a_script_is_not_empty(capsys):
    parser = script_parser("A script.")
    parser.add_argument("--home", type=Path, default=Path("runs"))
    assert parser.parse_args(["--home=a"]).home == Path("a")
    with pytest.raises(SystemExit):
        parser.parse_args(["--home="])
    assert "--home: expected a value" in capsys.readouterr().err
