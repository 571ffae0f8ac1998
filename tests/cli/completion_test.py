"""Shell completion, and help that imports only what it needs."""

import os
import subprocess
import sys

import pytest

from realm_jax.cli import exit_codes
from realm_jax.runtime import realm_command

pytest.importorskip("argcomplete", reason="needs the extra [completion]")


def completions(line, tmp_path):
    """Returns the completions of a line with the cursor at its end."""
    out = tmp_path / "told"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    done = subprocess.run(
        realm_command(),
        env={**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(out), "IFS": "\n"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return {word.strip(" ") for word in out.read_text().replace("\013", "\n").splitlines()}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("realm fi", {"finetune"}),
        ("realm ask --w", {"--workdir"}),
        ("realm corpus build --for", {"--format"}),
        ("realm train --config.stages.realm.ste", {"--config.stages.realm.steps="}),
        ("realm ask --config.stages.realm.s", set()),
    ],
)
def test_verbs_flags_and_config_keys_are_completed(tmp_path, line, told):
    assert completions(line, tmp_path) == told


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_completion_script_for_realm(realm, shell):
    result = realm("completion", shell)
    assert result.code == 0
    assert "realm" in result.out and "_ARGCOMPLETE" in result.out


def test_help_documents_every_exit_code(realm):
    codes = [value for name, value in vars(exit_codes).items() if name.isupper()]
    documented = realm("--help").out.split("exit codes:")[1]
    assert len(codes) == 6
    assert [int(line.split()[0]) for line in documented.strip().splitlines()] == codes


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        ("'--help'", "jax numpy ml_collections rich"),
        ("'ask', '--help'", "jax numpy ml_collections rich"),
        ("'run', '--help'", "jax flax optax"),
    ],
)
def test_help_imports_only_the_modules_it_needs(arguments, unwanted):
    script = f"""
import sys
from realm_jax.cli.main import main
try:
    main([{arguments}])
except SystemExit as end:
    assert end.code == 0
assert not set({unwanted!r}.split()) & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, capture_output=True)
