"""Where ScaNN cannot be had, FAISS searches instead; without FAISS, exact search."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.published_index import publish_index
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage.layout import RunDir, step_name

SETUP = (Path(__file__).parents[2] / "setup.py").read_text()
PLATFORMS = [  # system, machine, Python, whether ScaNN has a wheel
    ("Linux", "x86_64", "3.11", True),
    ("Linux", "x86_64", "3.13", True),
    ("Linux", "x86_64", "3.14", False),
    ("Linux", "aarch64", "3.12", False),
    ("Darwin", "arm64", "3.12", False),
    ("Darwin", "x86_64", "3.11", False),
    ("Windows", "AMD64", "3.12", False),
]

# Builds an index of the default kind, and opens one that ScaNN built; prints what was used.
PROGRAM = """
import json, logging, sys
from pathlib import Path
import numpy as np
from realm_jax.artifacts.published_index import open_index
from realm_jax.defaults import default
from realm_jax.retrieval.searcher import build_searcher
logging.basicConfig()
vectors = np.load(sys.argv[2])
built = [build_searcher(default().search.kind, vectors, default().search) for _ in range(2)]
opened = open_index(sys.argv[1]).searcher
found = [s.search(vectors[:5], 1)[0].ravel().tolist() for s in (*built, opened)]
print(json.dumps([built[0].kind, opened.kind, found]))
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """An index that ScaNN built, as of a run that was trained on another machine."""
    pytest.importorskip("scann")
    folder = tmp_path_factory.mktemp("published")
    vectors = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.save(folder / "vectors.npy", vectors)
    run = RunDir(str(folder / "run"))
    searcher = build_searcher("scann", vectors, tiny_config().search)
    rows, parameters = np.arange(300), {"w": np.zeros(3, np.float32)}
    publish_index(run, 4, searcher, rows, vectors, parameters, {"corpus_hash": "c"}, "{}")
    return run.published_index / step_name(4), folder / "vectors.npy"


def make_venv(folder, without):
    """A virtual environment with the packages of this one, except some; made in a second."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "packages"
    packages.mkdir()
    for place in [Path(one) for one in sys.path if Path(one).name == "site-packages"]:
        for one in place.iterdir():
            target = packages / one.name
            if not one.name.lower().startswith(without) and not target.exists():
                target.symlink_to(one)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    project = Path(__file__).parents[2]
    (site / "shared.pth").write_text(f"{packages}\n{project}\n")
    return folder / "bin" / "python"


@pytest.mark.parametrize(
    ("without", "kind"), [(("scann",), "faiss"), (("scann", "faiss"), "exact")]
)
def test_an_installation_without_scann_builds_and_searches(tmp_path, published, without, kind):
    python = make_venv(tmp_path / "venv", without)
    command = [python, "-P", "-c", PROGRAM, *published]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    built, opened, found = json.loads(done.stdout)
    assert (built, opened) == (kind, "exact")
    assert found == [[0, 1, 2, 3, 4]] * 3
    assert done.stderr.count("ScaNN is not installed (it has wheels for Linux") == 1
    assert done.stderr.count("is searched exactly") == 1


@pytest.mark.parametrize(("system", "machine", "python", "has_wheel"), PLATFORMS)
def test_each_platform_installs_scann_or_faiss(system, machine, python, has_wheel):
    block = SETUP.partition("VERSION = ")[2].partition("setup(")[0]
    names = {}
    exec(block.partition("\n")[2], names)
    platform = {"platform_system": system, "platform_machine": machine, "python_version": python}
    scann, faiss = (
        Requirement(f"x; {names[name]}").marker.evaluate(platform) for name in ("SCANN", "NO_SCANN")
    )
    assert (scann, faiss) == (has_wheel, not has_wheel)
