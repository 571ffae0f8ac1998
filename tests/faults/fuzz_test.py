"""Readers of external files raise only RealmError, whatever bytes a file contains.

Hypothesis edits valid files: it deletes, inserts, repeats and changes bytes. It also writes random
JSON with a valid checksum, and random bytes.
"""

import json

import numpy as np
import pytest
from etils import epath
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.steps import KINDS, NEW, OLD
from valid_files import READINGS, packed

from realm_jax.artifacts.export import read_export
from realm_jax.artifacts.repair import repair
from realm_jax.artifacts.verify import check
from realm_jax.corpus import readers
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import RealmError
from realm_jax.monitoring import status
from realm_jax.storage import commit, integrity, leases, sealed
from realm_jax.storage.heartbeat import last_beat
from realm_jax.storage.layout import MANIFEST, POINTER, RunDir, step_name
from realm_jax.trainer.nonfinite import read_batch, write_batch

FAULT = "fuzz"
FEW, MANY = 30, 1000

edits = st.tuples(st.integers(0, 1 << 16), st.integers(0, 9), st.binary(max_size=6))


@st.composite
def edited(draw, valid):
    """Draws edits of the bytes `valid`, or random bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = valid
    for position, length, inserted in draw(st.lists(edits, min_size=1, max_size=5)):
        at = position % (len(data) + 1)
        data = data[:at] + inserted + data[at + length :]
    return data


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def raises_only_realm_errors(read, path, content):
    """Writes `content` to `path` and reads it; any error other than RealmError fails the test."""
    path.write_bytes(content)
    try:
        read(path)
    except RealmError as error:
        assert error.problem


def search_settings(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.faults)])
@pytest.mark.parametrize("what", READINGS)
def test_readers_of_text_and_weights_raise_only_realm_errors(tmp_path, what, examples, cases):
    name, valid, read = READINGS[what]
    (tmp_path / name).write_bytes(valid)
    read(tmp_path / name)

    @search_settings(examples)
    @given(edited(valid))
    def search(content):
        raises_only_realm_errors(read, tmp_path / name, content)
        cases.append(content)

    search()


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.faults)])
def test_reading_a_saved_batch_raises_only_realm_errors(tmp_path, examples, cases):
    write_batch(epath.Path(tmp_path / "valid.npz"), "ict", 1, np.zeros(3))

    @search_settings(examples)
    @given(edited((tmp_path / "valid.npz").read_bytes()))
    def search(content):
        raises_only_realm_errors(read_batch, tmp_path / "batch.npz", content)
        cases.append(content)

    search()


def store_at(path):
    """Opens the passage store of which `path` is the manifest; its other files are valid."""
    integrity.verify(epath.Path(path.parent))
    PassageStore.open(path.parent).verify()


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.faults)])
def test_reading_a_corpus_manifest_raises_only_realm_errors(tmp_path, tiny, examples, cases):
    import shutil

    shutil.copytree(tiny.folder, tmp_path / "corpus")
    path = tmp_path / "corpus" / "MANIFEST.json"
    valid = path.read_bytes()

    @search_settings(examples)
    @given(edited(valid) | changed(sealed.unseal(valid, path)).map(sealed.seal))
    def search(content):
        raises_only_realm_errors(store_at, path, content)
        check(path.parent)
        cases.append(content)

    search()


@st.composite
def changed(draw, content):
    """Draws the JSON object with one key removed or changed, at the top level or one below."""
    content = json.loads(json.dumps(content))
    owner = content
    if draw(st.booleans()):
        inner = [value for value in content.values() if isinstance(value, dict) and value]
        owner = draw(st.sampled_from(inner)) if inner else content
    key = draw(st.sampled_from(sorted(owner)))
    if draw(st.booleans()):
        del owner[key]
    else:
        owner[key] = draw(json_values)
    return content


def read_all(run):
    """Calls every function with which a verb reads a run folder."""
    for reader in (
        lambda: check(run.root),
        lambda: repair(run.root, dry_run=True),
        lambda: status.read_status(run),
        lambda: read_export(run),
        lambda: commit.latest(run.snapshots),
        lambda: integrity.read_verified(run.snapshots / step_name(NEW), "snapshot"),
        lambda: KINDS["snapshot"].assert_intact(run, NEW),
        lambda: leases.leased(run, "snapshots"),
        lambda: leases.retain(run, "snapshots", 9),
        lambda: last_beat(run, "trainer"),
    ):
        try:
            reader()
        except RealmError as error:
            assert error.problem


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY // 4, marks=pytest.mark.faults)])
@pytest.mark.parametrize(
    "name",
    [
        f"snapshots/{step_name(NEW)}/{MANIFEST}",
        f"snapshots/{POINTER}",
        "leases/trainer.json",
        "heartbeats/trainer.json",
        "heartbeats/index_builder.json",
        "END.json",
    ],
)
def test_reading_sealed_files_of_a_run_raises_only_realm_errors(tmp_path, name, examples, cases):
    """The files have edited bytes, or changed content with a valid checksum."""
    from realm_jax.storage import follow, heartbeat

    run = RunDir(tmp_path)
    for step in (OLD, NEW):
        KINDS["snapshot"].publish(run, step)
    leases.Lease(run, "trainer").hold({"snapshots": [OLD]})
    heartbeat.beat(run, "trainer", stage="realm", step=3)
    heartbeat.beat(run, "index_builder", state="waiting")
    follow.mark_end(run, step=3)
    path = tmp_path / name
    valid = path.read_bytes()
    content = sealed.unseal(valid, path)

    @search_settings(examples)
    @given(edited(valid) | changed(content).map(sealed.seal))
    def search(data):
        path.write_bytes(data)
        read_all(run)
        cases.append(data)

    search()


def test_reading_an_archive_creates_no_files(tmp_path):
    """Members are streamed, not extracted, so that their names cannot lead out of the folder."""
    inside = tmp_path / "inside"
    inside.mkdir()
    for number, name in enumerate(["../out.txt", "/out.txt", "a/../../out.txt"]):
        (inside / f"{number}.tar.gz").write_bytes(packed(name, b"A text."))
    before = sorted(tmp_path.rglob("*"))
    documents = list(readers.read("text", str(inside), Skipped()))
    assert len(documents) == 3
    assert sorted(tmp_path.rglob("*")) == before
