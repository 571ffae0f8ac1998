"""Tagging: every word gets a tag, for documents and sentences of any length."""

from pathlib import Path

import jax
import numpy as np
import pytest

from realm_jax.errors import DamageError, InputError
from realm_jax.models.modules import Modules
from realm_jax.tagging.batches import rows, windows
from realm_jax.tagging.bio import entities, tags_of
from realm_jax.tagging.tagger import Tagger
from realm_jax.tagging.words import sentence_of_text, sentence_of_words
from realm_jax.text.wordpiece import WordPieces


@pytest.fixture(scope="module")
def tagger(tagger_run):
    return Tagger.open(str(tagger_run))[0]


TEXTS = [
    ["The capital of Ora is Inab4.", "What was Ora since 1704?"],
    [""],
    [],
    ["x", "\u200b", "Ube " * 40, "ab" * 60 + " and Ilo"],
]


def documents():
    return [[sentence_of_text(text) for text in document] for document in TEXTS]


def test_every_word_has_a_tag_and_tags_form_valid_sequences(tagger):
    found = tagger.tags(documents())
    kinds = set()
    for document, own in zip(documents(), found, strict=True):
        assert [len(tags) for tags in own] == [len(s.words) for s in document]
        for tags in own:
            assert tags_of(entities(tags), len(tags)) == tags
            kinds |= set(tags)
    assert len(kinds) > 3


def test_tags_do_not_depend_on_the_other_documents(tagger):
    together = tagger.tags(documents())
    alone = [tagger.tags([document])[0] for document in documents()]
    assert together == alone
    assert tagger.tags(documents()[::-1]) == together[::-1]


def test_each_device_labels_an_equal_share_of_the_rows(tagger, monkeypatch):
    label, calls = tagger._score, []

    def recorded(params, batch):
        calls.append((batch, label(params, batch)))
        return calls[-1][1]

    monkeypatch.setattr(tagger, "_score", recorded)
    tagger.tags(documents())
    for part in jax.tree.leaves(calls):
        devices = {shard.device for shard in part.addressable_shards}
        assert devices == set(jax.local_devices())
        assert {len(shard.data) for shard in part.addressable_shards} == {len(part) // len(devices)}


def test_a_call_has_at_most_the_word_pieces_of_a_batch_on_each_device(tagger, monkeypatch):
    """However many documents a corpus or an evaluation has."""
    label, sizes = tagger._score, []

    def recorded(params, batch):
        sizes.append(batch.mask.size)
        return label(params, batch)

    monkeypatch.setattr(tagger, "_score", recorded)
    monkeypatch.setattr(tagger, "_budget", 100)
    tagger.tags(documents() * 40)
    assert len(sizes) > 1 and max(sizes) <= 100 * jax.local_device_count()


def test_a_word_without_tokens_is_tagged_outside(tagger):
    assert tagger.tags([[sentence_of_words(["\u200b"])]]) == [[["O"]]]


def test_word_scores_are_the_networks_scores_of_first_tokens(tagger_run):
    """Compares with a direct call of the network on one row."""
    _, published = Tagger.open(str(tagger_run))
    sentence = sentence_of_text("The river in Eta3 was the Osk in 1512.")
    pieces = WordPieces.load(Path(published.folder) / "vocab.txt")
    tagger = Tagger(wide(published), pieces, published.parameters)
    [window] = windows([[sentence]], pieces, 64)
    made = jax.tree.map(jax.numpy.asarray, rows([window], 64, pieces))
    modules = Modules(wide(published).model, pieces.size, ("tagger",))
    network = modules.bind({"tagger": jax.device_put(published.parameters)}).tagger
    expected = np.asarray(jax.nn.log_softmax(jax.jit(network.label_logits)(*made)))[0]
    starts = [0, *np.flatnonzero(np.diff(window.words)) + 1]
    assert len(starts) == len(sentence.words) == 10
    [scores] = tagger._scores([[sentence]], [len(sentence.words)])
    np.testing.assert_allclose(scores, expected[[start + 1 for start in starts]], atol=1e-5)


def wide(published):
    from realm_jax import config as config_lib

    config = config_lib.from_json(published.config_json, "tagger").copy_and_resolve_references()
    config.unlock()
    config.stages.tagger.row_length = 64
    return config_lib.check(config)


def test_capitals_are_distinguished_although_tokens_are_lower_case(tiny):
    from support.tiny_corpus import tiny_config

    modules = Modules(tiny_config().model, tiny.store.vocabulary.size, ("tagger",))
    parameters = jax.jit(modules.init)(jax.random.key(0))
    pieces = tiny.store.vocabulary
    small, large = (
        rows(windows([[sentence_of_words([word])]], pieces, 8), 8, pieces) for word in ("us", "US")
    )
    np.testing.assert_array_equal(small.ids, large.ids)

    @jax.jit
    def logits(parameters, made):
        return modules.bind(parameters).tagger.label_logits(*made)

    def scores(made):
        return np.asarray(logits(parameters, made))

    np.testing.assert_array_equal(scores(small), scores(large))  # shape embeddings are zero
    drawn = jax.random.normal(jax.random.key(1), parameters["tagger"]["shape"].shape)
    parameters["tagger"]["shape"] = drawn
    assert not np.allclose(scores(small), scores(large))


def test_a_missing_or_damaged_tagger_is_an_error_with_its_path(tmp_path, tagger_run):
    with pytest.raises(InputError, match="realm tag train"):
        Tagger.open(str(tmp_path))
    copied = tmp_path / "copy" / "tagger" / "00000007"
    copied.mkdir(parents=True)
    for path in sorted((tagger_run / "tagger" / "00000007").rglob("*")):
        target = copied / path.relative_to(tagger_run / "tagger" / "00000007")
        if path.is_dir():
            target.mkdir()
        else:
            target.write_bytes(path.read_bytes())
    (copied / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(DamageError, match=r"vocab\.txt"):
        Tagger.open(str(tmp_path / "copy"))
