"""The store returns what was written, and refuses unfinished or damaged folders."""

import json
import pickle
import re
import shutil

import numpy as np
import pytest
from etils import epath

from realm_jax.artifacts.verify import check
from realm_jax.corpus.store import PassageStore, verify
from realm_jax.corpus.store_writer import ARRAYS, StoreWriter, write_passages, write_store
from realm_jax.errors import DamageError, InputError, MismatchError
from realm_jax.storage import sealed
from realm_jax.storage.appendable import ArrayFile
from realm_jax.storage.layout import MANIFEST


def test_write_passages_keeps_each_passage_as_one_row(tmp_path, vocabulary):
    given = [("Tit é", ["The river.", "Old café."]), ("", ["x " * 700])]
    summary = write_passages(tmp_path / "s", iter(given), vocabulary)
    store = PassageStore.open(tmp_path / "s")
    assert len(store) == summary["passages"] == summary["documents"] == 2
    assert (store.title(0), store.body(0)) == ("Tit é", "The river. Old café.")
    assert store.title(1) == ""
    assert len(store.title_ids(1)) == 0
    assert store.lengths()[1] >= 700
    assert len(store.sentences(0)) == 3
    assert store.corpus_hash == summary["corpus_hash"]
    assert store.vocabulary.sha256 == store.manifest["vocabulary"]


def test_write_passages_refuses_a_passage_without_text(tmp_path, vocabulary):
    with pytest.raises(InputError, match="passage without text"):
        write_passages(tmp_path / "s", [("A", ["b."]), ("A", [])], vocabulary)
    with pytest.raises(InputError, match="no corpus in this folder"):
        PassageStore.open(tmp_path / "s")


def test_error_for_a_relative_path_names_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        PassageStore.open("corpus/wiki")
    assert f"relative paths start at {tmp_path}:" in refused.value.fix
    (tmp_path / "corpus" / "wiki").mkdir(parents=True)
    for path in ("corpus/wiki", tmp_path / "none"):
        with pytest.raises(InputError, match="no corpus in this folder") as refused:
            PassageStore.open(path)
        assert refused.value.fix is None


def test_bounds_index_flat_for_many_passages(store):
    rows = np.random.default_rng(0).integers(0, len(store), 200)
    starts, stops = store.body_bounds(rows)
    title_starts, title_stops = store.title_bounds(rows)
    for k, i in enumerate(rows.tolist()):
        assert store.flat[starts[k] : stops[k]].tolist() == store.body_ids(i).tolist()
        assert store.flat[title_starts[k] : title_stops[k]].tolist() == store.title_ids(i).tolist()
    total = stops - starts + title_stops - title_starts + 3
    assert total.tolist() == store.lengths()[rows].tolist()


def test_arrays_have_the_documented_dtypes(store):
    assert store.flat.dtype == np.uint16
    assert store.body_ids(0).dtype == store.body_offsets(0).dtype == np.int32
    assert store.sentences(0).dtype == store.lengths().dtype == np.int32


def test_store_is_pickled_as_its_path(store):
    content = pickle.dumps(store)
    assert len(content) < 500
    assert pickle.loads(content).body(3) == store.body(3)


def test_interrupted_build_is_unfinished_and_starts_again(tmp_path, documents, vocabulary):
    def stop():
        yield from documents[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "s", stop(), vocabulary)
    with pytest.raises(InputError, match="unfinished"):
        PassageStore.open(tmp_path / "s")
    again = write_store(tmp_path / "s", documents, vocabulary)
    fresh = write_store(tmp_path / "t", documents, vocabulary)
    assert again["corpus_hash"] == fresh["corpus_hash"]


def test_finished_stores_and_other_files_are_never_overwritten(
    store, tmp_path, documents, vocabulary
):
    with pytest.raises(InputError, match="already exists"):
        write_store(store.path, documents, vocabulary)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        write_store(tmp_path / "mine", documents, vocabulary)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_input_without_passages_is_refused(tmp_path, vocabulary):
    with pytest.raises(InputError, match="no passage"):
        write_store(tmp_path / "s", [], vocabulary)


@pytest.mark.parametrize("name", [*ARRAYS, "text.bin", "vocab.txt"])
def test_flipped_byte_is_found_in_every_file(store, name):
    assert store.verify() == []
    path = store.path / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    [problem] = verify(store.path)
    assert problem["file"] == name
    assert problem["expected"] != problem["found"]


@pytest.mark.parametrize("name", [*ARRAYS, "text.bin", "vocab.txt"])
def test_truncated_or_missing_file_is_named_in_the_error(store, name):
    path = store.path / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamageError) as error:
        PassageStore.open(store.path)
    assert name in str(error.value)
    path.unlink()
    with pytest.raises(DamageError, match="no such file"):
        PassageStore.open(store.path)
    assert [p["found"] for p in verify(store.path)] == ["no such file"]


def test_edited_manifest_is_reported(store):
    path = epath.Path(store.path) / MANIFEST
    manifest = sealed.read(path)
    path.write_text(json.dumps({**manifest, "content_hash": "0" * 64, "checksum": "0" * 64}))
    assert [p["file"] for p in verify(store.path)] == [MANIFEST]
    path.write_text("{")
    with pytest.raises(DamageError, match=MANIFEST):
        PassageStore.open(store.path)
    sealed.write(path, {**manifest, "format": 99})
    with pytest.raises(MismatchError, match="99"):
        PassageStore.open(store.path)
    sealed.write(path, {**manifest, "kind": "spans"})
    with pytest.raises(InputError, match=r"no corpus in this folder[\s\S]*spans"):
        PassageStore.open(store.path)
    for documents in ([], -2):
        sealed.write(path, {**manifest, "documents": documents})
        found = re.escape(str(documents))
        with pytest.raises(DamageError, match=rf"documents of type int[\s\S]*{found}"):
            PassageStore.open(store.path)
    del manifest["content_hash"]
    sealed.write(path, manifest)
    with pytest.raises(DamageError, match="content_hash"):
        PassageStore.open(store.path)


def test_corpus_of_an_earlier_version_is_refused_with_the_command_that_rebuilds_it(
    store, documents, vocabulary
):
    (store.path / MANIFEST).rename(store.path / "manifest.json")
    with pytest.raises(InputError, match=r"earlier version[\s\S]*realm corpus build"):
        PassageStore.open(store.path)
    with pytest.raises(InputError, match="already exists"):
        write_store(store.path, documents, vocabulary)
    report = check(store.path)
    assert not report["ok"]
    assert "earlier version" in report["problems"][0]["found"]


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        PassageStore.open(tmp_path / "none")


def test_corpus_hash_depends_on_content_not_on_path(store, tmp_path, documents, vocabulary):
    shutil.copytree(store.path, tmp_path / "copy")
    assert PassageStore.open(tmp_path / "copy").corpus_hash == store.corpus_hash
    other = write_store(tmp_path / "other", documents[1:], vocabulary, passage_pieces=64)
    assert other["corpus_hash"] != store.corpus_hash


def test_large_vocabulary_is_stored_as_int32(tmp_path, words):
    pieces = [*words.vocabulary, *(f"x{i}y" for i in range(70_000))]
    (tmp_path / "v").write_text("\n".join(pieces))
    write_passages(tmp_path / "s", [("t", ["x69999y"])], tmp_path / "v")
    store = PassageStore.open(tmp_path / "s")
    assert store.flat.dtype == np.int32
    [(ids, _)] = store.vocabulary.pieces([store.body(0)])
    assert store.body_ids(0).tolist() == ids.tolist()


def test_array_file_is_a_valid_npy_file_after_appends(tmp_path):
    file = ArrayFile(tmp_path / "a.npy", np.uint16, width=2)
    parts = [np.arange(2 * n).reshape(n, 2) for n in (3, 0, 5000)]
    for part in parts:
        file.append(part)
    file.close()
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.concatenate(parts))
    file = ArrayFile(tmp_path / "b.npy", np.uint16)
    with pytest.raises(AssertionError):
        file.append(np.array([65536]))
    file.close()


def test_writer_closed_without_commit_leaves_an_unfinished_folder(tmp_path, vocabulary):
    StoreWriter(tmp_path / "s", vocabulary).close()
    with pytest.raises(InputError, match="unfinished"):
        PassageStore.open(tmp_path / "s")
