"""Builds of a corpus that were interrupted before they marked salient spans, or that wait."""

import contextlib
import json
import re
import shlex

import numpy as np
import pytest

from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError
from realm_jax.storage import flock


def test_a_build_killed_before_marking_spans_resumes_with_them(build, tmp_path, notes, vocabulary):
    assert build(notes).code == 0
    whole = json.loads((tmp_path / "out" / "spans" / "MANIFEST.json").read_text())
    (tmp_path / "out" / "spans" / "MANIFEST.json").unlink()
    again = build(notes)
    assert again.code == 0
    assert json.loads((tmp_path / "out" / "spans" / "MANIFEST.json").read_text()) == whole
    (tmp_path / "out" / "spans" / "MANIFEST.json").unlink()
    build(notes, passage_pieces=99).refused("was interrupted before", tmp_path / "out")
    other = tmp_path / "other.txt"
    other.write_text(vocabulary.read_text() + "extra\n")
    build(notes, vocab=other).refused("was interrupted before", tmp_path / "out")
    (notes / "Bern.txt").write_text("Bern is a city.")
    build(notes).refused("was interrupted before", tmp_path / "out")


def test_the_fix_for_missing_spans_marks_them(build, realm, tmp_path, notes):
    assert build(notes).code == 0
    store = PassageStore.open(tmp_path / "out")
    whole = SpanStore.open(None, store)
    (tmp_path / "out" / "spans" / "MANIFEST.json").unlink()
    (notes / "Bern.txt").write_text("The Mayor of Bern lives there.")
    refused = build(notes)
    with pytest.raises(InputError) as unmarked:
        SpanStore.open(None, store)
    marks, add = re.search(
        "fix: +(realm .*), then, .* documents, (realm .*); or", refused.err
    ).groups()
    assert marks in str(unmarked.value)
    assert realm(*shlex.split(marks)[1:]).code == 0
    np.testing.assert_array_equal(SpanStore.open(None, store).rows, whole.rows)
    assert realm(*shlex.split(add)[1:]).code == 0
    assert len(SpanStore.open(None, store.newest()).rows) == len(whole.rows) + 1


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_a_build_with_the_vocabulary_of_weights_resumes(
    build, tmp_path, notes, weights, vocabulary, name
):
    if name == "vocab.txt":
        (weights / name).write_bytes(vocabulary.read_bytes())
    assert build(notes, vocab=weights).code == 0
    (tmp_path / "out" / "spans" / "MANIFEST.json").unlink()  # killed before it marked spans
    assert build(notes, vocab=weights).code == 0
    (tmp_path / "out" / "spans" / "MANIFEST.json").unlink()
    build(notes, vocab=tmp_path / "none.txt").refused("no vocabulary file", "none.txt")


def test_a_build_waits_for_another_one_of_the_same_folder(build, tmp_path, notes, monkeypatch):
    out, first, waits = tmp_path / "out", contextlib.ExitStack(), []
    first.enter_context(flock.exclusive_folder(out, "", ""))
    monkeypatch.setattr(flock, "_QUIET_SECONDS", 0)

    def release(_, message):
        waits.append((message, [*out.iterdir()]))
        first.close()

    monkeypatch.setattr(flock.log, "info", release)
    assert build(notes).code == 0
    assert waits == [(f"waiting for another command that builds this corpus: {out}", [])]
    build(notes).refused("the corpus already exists", out)
