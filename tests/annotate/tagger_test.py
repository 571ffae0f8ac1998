"""A tagger at work: every word gets a tag that follows, whatever its neighbours and its length."""

import jax
import numpy as np
import pytest

from realm_jax.annotate.tagger import Tagger
from realm_jax.data.tagging import rows, windows
from realm_jax.errors import DamageError, InputError
from realm_jax.models.modules import Modules
from realm_jax.text.bio import entities, labels, tags_of
from realm_jax.text.tokens import sentence_of_text, sentence_of_words


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


def test_every_word_of_every_sentence_has_a_tag_that_follows(tagger):
    found = tagger.tags(documents())
    kinds = set()
    for document, own in zip(documents(), found, strict=True):
        assert [len(tags) for tags in own] == [len(s.words) for s in document]
        for tags in own:
            assert tags_of(entities(tags), len(tags)) == tags
            kinds |= set(tags)
    assert len(kinds) > 3


def test_a_document_is_tagged_alike_in_any_company(tagger):
    together = tagger.tags(documents())
    alone = [tagger.tags([document])[0] for document in documents()]
    assert together == alone
    assert tagger.tags(documents()[::-1]) == together[::-1]


def test_a_word_without_pieces_is_outside(tagger):
    assert tagger.tags([[sentence_of_words(["\u200b"])]]) == [[["O"]]]


def test_tags_are_the_networks_best_on_first_pieces(tagger, tagger_run):
    """Against the network called directly, where the greedy choice already follows."""
    _, published = Tagger.open(str(tagger_run))
    sentence = sentence_of_text("The river in Eta3 was the Osk in 1512.")
    pieces = tagger._pieces
    [window] = windows([[sentence]], pieces, 64)
    made = rows([window], 64, pieces)
    modules = Modules(tagger_model(published), pieces.size, ("tagger",))
    network = modules.bind({"tagger": jax.device_put(published.parameters)}).tagger
    logits = np.asarray(network.label_logits(*jax.tree.map(jax.numpy.asarray, made)))[0]
    best = logits[np.flatnonzero(window.first) + 1].argmax(-1)
    names = [labels("LOC MISC ORG PER")[i] for i in best]
    [[tags]] = Tagger(wide(published), pieces, published.parameters).tags([[sentence]])
    followed = tags_of(entities(names), len(names)) == names
    assert (tags == names) == followed


def wide(published):
    from realm_jax import config as config_lib

    config = config_lib.from_json(published.config_json).copy_and_resolve_references()
    config.unlock()
    config.lengths.sentences = 64
    return config_lib.check(config)


def tagger_model(published):
    return wide(published).model


def test_capitals_are_seen_though_pieces_are_not_cased(tiny):
    from realm_jax.testing.fakes import tiny_config

    modules = Modules(tiny_config().model, tiny.store.vocabulary.size, ("tagger",))
    parameters = jax.jit(modules.init)(jax.random.key(0))
    pieces = tiny.store.vocabulary
    small, large = (
        rows(windows([[sentence_of_words([word])]], pieces, 8), 8, pieces) for word in ("us", "US")
    )
    np.testing.assert_array_equal(small.ids, large.ids)

    def scores(made):
        made = jax.tree.map(jax.numpy.asarray, made)
        return np.asarray(modules.bind(parameters).tagger.label_logits(*made))

    np.testing.assert_array_equal(scores(small), scores(large))  # the shapes begin at zero
    drawn = jax.random.normal(jax.random.key(1), parameters["tagger"]["shape"].shape)
    parameters["tagger"]["shape"] = drawn
    assert not np.allclose(scores(small), scores(large))


def test_no_tagger_and_a_damaged_one_are_named(tmp_path, tagger_run):
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
