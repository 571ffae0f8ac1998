"""What the scripts of `experiments/` and `launch/` share."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from realm_jax.cli import exit_codes
from realm_jax.cli.scripts import exit_with, require_same_settings, script_parser
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


def test_damaged_settings_of_a_folder_are_named(tmp_path):
    (tmp_path / "settings.json").write_text('{"start": ')
    with pytest.raises(InputError, match=r"are damaged[\s\S]*settings\.json"):
        require_same_settings(tmp_path, {"start": "a"})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotADirectoryError(20, "Not a directory", "/dev/null/x"), "choose another folder"),
        (MemoryError("Unable to allocate 2 PiB"), "out of memory"),
        (KeyboardInterrupt(), exit_codes.STOPPED),
        (subprocess.CalledProcessError(7, "realm"), 7),
    ],
)
def test_errors_of_the_machine_end_a_script_without_a_traceback(error, code):
    def main():
        raise error

    with pytest.raises(SystemExit) as ended:
        exit_with(main)
    assert ended.value.code == code or code in ended.value.code


def test_a_fault_of_a_script_has_a_traceback():
    with pytest.raises(ValueError, match="a fault"):
        exit_with(lambda: int("a fault"))


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
