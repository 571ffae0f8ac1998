"""The install commands of the launch scripts, run in a fresh virtual environment."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.launch_scripts import script

from realm_jax.cli.launching import EXTRAS

HERE = Path(__file__).parents[2]
OPEN = "from realm_jax.storage.layout import RunDir; RunDir('gs://bucket/run').config.exists()"
NO_STORE = "http://127.0.0.1:9"  # nothing listens there: no request leaves this machine


def install_command() -> str:
    """What `launch/cloud_tpu.py` runs on a machine before it starts a job."""
    tpu = script("cloud_tpu")
    return tpu.install(
        tpu.parse(["--dry_run", f"--config={HERE / 'experiments/realm_wikipedia.py'}"])
    )


def test_every_documented_install_has_the_package_of_its_run_folder():
    """gs:// run folders need the extra gs beside tpu."""
    assert f"[{EXTRAS}]" in install_command() and set(EXTRAS.split(",")) == {"tpu", "gs"}
    for path in (HERE / "launch" / "gke_jobset.py", HERE / "docs" / "how_to" / "train_on_pods.md"):
        extras = re.findall(r"pip install '[^']*\[([^\]]*)\]'", path.read_text())
        assert extras and all("gs" in one.split(",") for one in extras), path


@pytest.mark.slow
def test_the_installed_machine_opens_its_run_folder(tmp_path):
    """The error is about the network or credentials, not about a missing package."""
    archive = ["git", "archive", "--prefix=realm-jax/", f"--output={tmp_path}/realm-jax.tar.gz"]
    subprocess.run([*archive, "HEAD"], cwd=HERE, check=True)
    steps = [step for step in install_command().split(" && ") if not _needs_the_cloud(step)]
    assert [step.split()[0] for step in steps] == ["tar", "python3.11", "venv/bin/pip"]
    command = " && ".join(steps).replace("python3.11", shlex.quote(sys.executable))
    subprocess.run(command, shell=True, cwd=tmp_path, check=True, timeout=3000)
    opened = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-c", OPEN],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=600,
        env={**os.environ, "STORAGE_EMULATOR_HOST": NO_STORE, "PYTHONPATH": ""},
    )
    assert opened.returncode == 1
    assert "pip install" not in opened.stderr and "ImportError" not in opened.stderr
    assert re.search("Cannot connect to host 127.0.0.1:9|redential", opened.stderr), opened.stderr


def _needs_the_cloud(step: str) -> bool:
    return step.startswith(("sudo apt-get", "gcloud"))
