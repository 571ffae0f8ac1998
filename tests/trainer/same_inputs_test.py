"""All processes of a trainer have the same config and files."""

import json

import pytest
from support.tiny_corpus import tiny_config, write_tiny_corpus

from realm_jax.corpus.spans import SpanStore
from realm_jax.errors import MismatchError
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.inputs import open_inputs
from realm_jax.trainer.same_inputs import inputs_of, require_same_inputs


def inputs(folder, **changes):
    """As another process receives them."""
    config = tiny_config(folder, **changes)
    return json.loads(json.dumps(inputs_of(config, open_inputs(config))))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"seed": 5}, "config.seed"),
        ({"stages__realm__learning_rate": 1e-3}, "config.stages.realm.learning_rate"),
        ({"masking__scheme": "random_token"}, "config.masking.scheme"),
        ({"retrieval__candidates": 7}, "config.retrieval.candidates"),
    ],
)
def test_a_process_with_another_config_is_refused(tiny, tmp_path, changes, what):
    mine, theirs = inputs(tiny.folder), inputs(tiny.folder, **changes)
    with pytest.raises(MismatchError, match=rf"process 1 .*another {what} than process 0"):
        require_same_inputs([mine, theirs], RunDir(tmp_path))


def test_the_same_files_may_lie_elsewhere_and_others_are_refused(tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
    one, same, other = (
        inputs(write_tiny_corpus(tmp_path / name, count).folder)
        for name, count in (("a", 8), ("b", 8), ("c", 9))
    )
    require_same_inputs([one, same], RunDir(tmp_path))
    with pytest.raises(MismatchError, match="another knowledge corpus"):
        require_same_inputs([one, same, other], RunDir(tmp_path))


def test_other_spans_of_the_same_corpus_are_refused(tmp_path):
    corpus = write_tiny_corpus(tmp_path, 8)
    one = inputs(corpus.folder)
    spans = [
        [] if row == 3 else [tuple(x) for x in corpus.spans.of(row).tolist()] for row in range(8)
    ]
    SpanStore.write(tmp_path / "spans", corpus.store, spans)
    other = inputs(corpus.folder, corpus__spans=str(tmp_path / "spans"))
    with pytest.raises(MismatchError, match="another spans"):
        require_same_inputs([one, other], RunDir(tmp_path))
