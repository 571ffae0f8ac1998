"""What the scripts of `experiments/` and `launch/` share."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from realm_jax.cli.scripts import require_same_settings, script_parser
from realm_jax.errors import InputError
from realm_jax.storage import heartbeat
from realm_jax.storage.layout import RunDir


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_script_stops_its_command_first(tmp_path, number):
    """Before, Ctrl-C killed a training before it saved, and SIGTERM left it running."""
    heartbeat.beat(RunDir(tmp_path), "trainer", stage="ict", step=7)
    watch = f"run_realm('status', '--workdir={tmp_path}', '--watch')"
    code = f"from realm_jax.cli.scripts import *; exit_with(lambda: {watch})"
    command = [sys.executable, "-c", code]
    script = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert b"ict, step 7" in script.stdout.readline()
    (child,) = Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()
    script.send_signal(number)
    assert script.communicate()[1] == b""
    assert script.returncode == 75
    assert not Path(f"/proc/{child}").exists()
