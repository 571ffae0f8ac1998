"""Marking a corpus by rule and by tagger, with interruption and resumption."""

import json
import shutil

import numpy as np
import pytest
from etils import epath

from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.errors import InputError, MismatchError
from realm_jax.storage import integrity
from realm_jax.tagging.mark_corpus import Interrupted, annotate_corpus
from realm_jax.tagging.marker import CapitalsMarker, TaggerMarker, salient_characters
from realm_jax.tagging.tagger import Tagger
from realm_jax.tagging.words import sentence_of_text

WORDS = ("river", "garden", "tower", "meadow")


class Counting(CapitalsMarker):
    """Records the passages that it marks."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def spans(self, store, passages):
        self.asked += passages
        return super().spans(store, passages)


def all_spans(folder, store):
    spans = SpanStore.open(folder, store)
    return [spans.of(i).tolist() for i in range(len(store))]


def test_capitals_give_the_spans_that_the_corpus_build_marks(tiny, tmp_path):
    told = []
    report = annotate_corpus(
        tiny.store, tmp_path / "out", CapitalsMarker(), shard=16, done=told.append
    )
    assert all_spans(tmp_path / "out", tiny.store) == all_spans(None, tiny.store)
    assert (report["passages"], report["resumed"]) == (40, 0)
    assert report["spans"] == sum(map(len, all_spans(None, tiny.store)))
    assert told[-1] == 40 and told == sorted(told)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert SpanStore.open(tmp_path / "out", tiny.store).source.tolist() == list(range(40))


def test_rare_terms_are_marked_as_by_the_corpus_build(tiny, tmp_path):
    texts = [("", [f"the {word} lies behind a {word} of stone ."]) for word in WORDS * 2]
    vocabulary = tiny.folder.parent / "vocab.txt"
    write_passages(tmp_path / "corpus", texts, vocabulary)
    store = PassageStore.open(tmp_path / "corpus")
    marker = CapitalsMarker.of(store)
    annotate_corpus(store, tmp_path / "out", marker)
    mark_spans(store)
    assert all_spans(tmp_path / "out", store) == all_spans(None, store)
    assert all(all_spans(None, store)) and marker.identity != CapitalsMarker().identity


def test_a_resumed_run_gives_the_same_spans_and_repeats_nothing(tiny, tmp_path):
    answers = iter([False, False, True])
    with pytest.raises(Interrupted):
        annotate_corpus(
            tiny.store, tmp_path / "out", CapitalsMarker(), shard=8, stopped=lambda: next(answers)
        )
    assert not (tmp_path / "out").exists()
    second = Counting()
    report = annotate_corpus(tiny.store, tmp_path / "out", second, shard=8)
    assert second.asked == list(range(16, 40))
    assert report["resumed"] == 16
    assert all_spans(tmp_path / "out", tiny.store) == all_spans(None, tiny.store)


def test_truncated_and_unfinished_shards_are_marked_again(tiny, tmp_path):
    class Killed(CapitalsMarker):
        def spans(self, store, passages):
            if 24 in passages:
                raise RuntimeError("killed")
            return super().spans(store, passages)

    with pytest.raises(RuntimeError):
        annotate_corpus(tiny.store, tmp_path / "out", Killed(), shard=8)
    shards = tmp_path / "out.shards"
    altered = bytearray((shards / "00000008" / "spans.npy").read_bytes())
    altered[-1] ^= 1
    (shards / "00000008" / "spans.npy").write_bytes(altered)  # of the same size
    (shards / "00000016" / "MANIFEST.json").write_text("{")
    assert integrity.verify(epath.Path(shards / "00000000")) == []
    second = Counting()
    annotate_corpus(tiny.store, tmp_path / "out", second, shard=8)
    assert second.asked == list(range(8, 40))
    assert all_spans(tmp_path / "out", tiny.store) == all_spans(None, tiny.store)


def test_shards_of_another_marker_or_size_are_refused(tiny, tmp_path):
    class Other(CapitalsMarker):
        def __init__(self):
            super().__init__()
            self.identity = "another"

    def begun(out):
        answers = iter([False, True])
        with pytest.raises(Interrupted):
            annotate_corpus(
                tiny.store, out, CapitalsMarker(), shard=8, stopped=lambda: next(answers)
            )

    begun(tmp_path / "out")
    with pytest.raises(MismatchError, match=r"another[\s\S]*capitals, dates"):
        annotate_corpus(tiny.store, tmp_path / "out", Other(), shard=8)
    with pytest.raises(MismatchError, match="16"):
        annotate_corpus(tiny.store, tmp_path / "out", CapitalsMarker(), shard=16)


def test_finished_spans_are_not_changed(tiny, tmp_path):
    annotate_corpus(tiny.store, tmp_path / "out", CapitalsMarker())
    before = (tmp_path / "out" / "MANIFEST.json").read_bytes()
    with pytest.raises(InputError, match="already exist"):
        annotate_corpus(tiny.store, tmp_path / "out", CapitalsMarker())
    assert (tmp_path / "out" / "MANIFEST.json").read_bytes() == before


def test_spans_have_a_source_passage_only_if_the_text_is_the_knowledge_corpus(tiny, tmp_path):
    shutil.copytree(tiny.folder, tmp_path / "same")
    other = type(tiny.store).open(tmp_path / "same")
    annotate_corpus(tiny.store, tmp_path / "a", CapitalsMarker(), knowledge=other)
    assert SpanStore.open(tmp_path / "a", tiny.store).source is not None  # the same corpus, copied

    from realm_jax.corpus.store_writer import write_passages

    write_passages(tmp_path / "z", [("Ora", ["The river."])], tiny.folder / "vocab.txt")
    knowledge = type(tiny.store).open(tmp_path / "z")
    annotate_corpus(tiny.store, tmp_path / "b", CapitalsMarker(), knowledge=knowledge)
    spans = SpanStore.open(tmp_path / "b", tiny.store)
    assert spans.source is not None
    assert set(spans.source.tolist()) == {-1}
    assert spans.knowledge_hash == knowledge.corpus_hash


def test_dates_take_precedence_over_entities():
    sentence = sentence_of_text("On 5 May Ms. May met New York in May 1999.")
    words = [sentence.text[a:b] for a, b in sentence.words]
    tags = dict.fromkeys(range(len(words)), "O")
    tags |= {2: "B-PER", 5: "B-PER", 7: "B-LOC", 8: "I-LOC"}
    found = salient_characters(sentence, list(tags.values()))
    assert [sentence.text[a:b] for a, b in found] == ["5 May", "May", "New York", "May 1999"]


def test_tagger_spans_are_its_entities_inside_their_sentences(tiny, tagger_run, tmp_path):
    tagger, published = Tagger.open(str(tagger_run))
    report = annotate_corpus(
        tiny.store, tmp_path / "out", TaggerMarker(tagger, published.identity), shard=16
    )
    again = annotate_corpus(
        tiny.store, tmp_path / "again", TaggerMarker(tagger, published.identity), shard=40
    )
    ours = all_spans(tmp_path / "out", tiny.store)
    assert ours == all_spans(tmp_path / "again", tiny.store)
    assert ours != all_spans(None, tiny.store)
    assert report["spans"] == again["spans"] == sum(map(len, ours))
    for i, spans in enumerate(ours):
        bounds, last = tiny.store.sentences(i), 0
        for start, stop in spans:
            assert last <= start < stop <= bounds[np.searchsorted(bounds, start, "right")]
            last = stop
    manifest = json.loads((tmp_path / "out" / "MANIFEST.json").read_text())
    assert manifest["corpus_hash"] == tiny.store.corpus_hash
