"""Random changes of a corpus, with kills, equal those of a plain dict."""

import json
import multiprocessing
import random
import signal

import pytest

from realm_jax.corpus import generation_writer
from realm_jax.corpus.compaction import compact
from realm_jax.corpus.documents import Document
from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.grow import add_documents, remove_documents
from realm_jax.corpus.split import split
from realm_jax.corpus.store import PassageStore, verify
from realm_jax.corpus.store_writer import write_passages, write_store
from realm_jax.storage.failpoints import armed

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["realm_jax.corpus.grow", "realm_jax.corpus.compaction", "pytest"])
PIECES = 64
WORDS = ["river", "mountain", "Berlin", "café", "1999", "Danube", "Vienna", "born", "1848", "near"]
POINTS = ("corpus_generation", "corpus", "file")


class Model:
    """A corpus as a dict: passage id -> (document id, title, body); ids are never used again."""

    def __init__(self, store):
        ids = range(len(store))
        self.passages = {i: (store.document_id(i), store.title(i), store.body(i)) for i in ids}
        self.end, self.words = len(store), store.vocabulary

    def of(self, document):
        return [i for i, (name, _, _) in sorted(self.passages.items()) if name == document]

    def add(self, document):
        """Replaces a document passage by passage; of one without id, adds what is not there."""
        block = split([Document(*document[1:], "", document[0])], self.words, PIECES)
        text, at, new = block.text, 0, []
        for size, title in zip(block.text_bytes.tolist(), block.title_bytes.tolist(), strict=True):
            whole = text[at : at + size]
            new.append((document[0], whole[:title].decode(), whole[title:].decode()))
            at += size
        old = self.of(document[0]) if document[0] else []
        present = set(self.passages.values()) if not document[0] else set()
        for i, passage in zip(old, new, strict=False):
            self.passages[i] = passage
        for i in old[len(new) :]:
            del self.passages[i]
        for passage in new[len(old) :]:
            if passage not in present:
                self.passages[self.end] = passage
                self.end += 1

    def write(self, i, title, body):
        owner = self.passages[i][0] if i in self.passages else ""
        i = self.end if i is None else i
        self.passages[i] = (owner, title, body)
        self.end = max(self.end, i + 1)


def sentence(rng):
    words = rng.choices(WORDS, k=8)
    return f"The {' '.join(words)}."


def draw(rng, model):
    """One change, as a name and JSON arguments."""
    name = rng.choices(["add", "write", "remove", "compact"], [5, 6, 2, 0.4])[0]
    documents = sorted({name for name, _, _ in model.passages.values() if name})
    if name == "add":
        names = [rng.choice([f"d{rng.randint(0, 9)}", ""]) for _ in range(rng.randint(1, 3))]
        named = dict.fromkeys(one for one in names if one)
        unnamed = [one for one in names if not one]
        given = [*named, *unnamed]
        return name, [
            (one, f"T{rng.randint(0, 3)}", " ".join(map(sentence, [rng] * rng.randint(1, 12))))
            for one in given
        ]
    if name == "remove" and len(documents) > 2:
        return name, rng.sample(documents, 2)
    if name == "compact":
        return name, []
    live = sorted(model.passages)
    chosen = rng.sample(live, 3)
    written = [(chosen[0], "W", sentence(rng)), (None, "N", sentence(rng))]
    return "write", [written, chosen[1 : 1 + rng.randint(0, 1)]]


def apply(model, name, given):
    if name == "add":
        for document in given:
            model.add(document)
    elif name == "remove":
        for document in given:
            for i in model.of(document):
                del model.passages[i]
    elif name == "write":
        for i, title, body in given[0]:
            model.write(i, title, body)
        for i in given[1]:
            del model.passages[i]


def change(corpus, name, given, most_layers=3):
    generation_writer.MOST_LAYERS = most_layers
    if name == "add":
        path = corpus.parent / "in.jsonl"
        lines = [{"_id": one, "title": title, "text": text} for one, title, text in given]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        add_documents(corpus, "jsonl", str(path))
    elif name == "remove":
        remove_documents(corpus, given)
    elif name == "write":
        write_passages_generation(corpus, [WrittenText(*one) for one in given[0]], given[1])
    else:
        compact(corpus)


def killed(corpus, name, given, spec):
    with armed(spec):
        change(corpus, name, given)


def content(store):
    ids = store.live_ids().tolist()
    return {i: (store.document_id(i), store.title(i), store.body(i)) for i in ids}


def run(corpus, changes, kill_share, seed):
    """Makes random changes, some of them in a process that is killed; compares after each."""
    rng = random.Random(seed)
    model = Model(PassageStore.open(corpus))
    for _ in range(changes):
        name, given = draw(rng, model)
        was_killed = rng.random() < kill_share
        if was_killed:
            spec = f"{rng.choice(POINTS)}:{rng.randint(1, 40)}"
            process = PROCESSES.Process(target=killed, args=(corpus, name, given, spec))
            process.start()
            process.join()
            assert process.exitcode in (0, -signal.SIGKILL)
        before = dict(model.passages)
        apply(model, name, given)
        done = was_killed and content(PassageStore.open(corpus)) == model.passages
        if was_killed and not done:
            assert content(PassageStore.open(corpus)) == before
        if not done:
            change(corpus, name, given)
        store = PassageStore.open(corpus)
        assert content(store) == model.passages
        assert store.passages() == len(model.passages)
    assert len(store) == model.end
    return store


def check_equals_a_fresh_build(store, folder):
    """Word pieces, offsets and sentences are those of a new corpus of the same passages."""
    texts = [(store.title(i), [store.body(i)]) for i in store.live_ids().tolist()]
    write_passages(folder, texts, store.path / "vocab.txt")
    fresh = PassageStore.open(folder)
    lengths = store.lengths()
    for row, i in enumerate(store.live_ids().tolist()):
        assert store.title_ids(i).tolist() == fresh.title_ids(row).tolist()
        assert lengths[i] == len(store.title_ids(i)) + len(store.body_ids(i)) + 3
        [(pieces, _)] = fresh.vocabulary.pieces([store.body(i)])
        assert store.body_ids(i).tolist() == pieces.tolist()


@pytest.fixture
def corpus(tmp_path, documents, vocabulary):
    write_store(tmp_path / "corpus", documents[:2], vocabulary, passage_pieces=PIECES)
    return tmp_path / "corpus"


def test_random_changes_equal_a_dict(corpus, tmp_path):
    store = run(corpus, 6, 0.3, seed=1)
    check_equals_a_fresh_build(store, tmp_path / "fresh")
    assert verify(corpus) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_random_changes_leave_disk_and_layers_bounded(corpus, tmp_path, seed):
    store = run(corpus, 100, 0.2, seed)
    check_equals_a_fresh_build(store, tmp_path / "fresh")
    assert len(store.layers) <= 3
    compact(corpus)
    after = PassageStore.open(corpus)
    assert content(after) == content(store)
    check_equals_a_fresh_build(after, tmp_path / "again")
    assert verify(corpus) == []
    size = sum(path.stat().st_size for path in corpus.rglob("*") if path.is_file())
    fresh = sum(path.stat().st_size for path in (tmp_path / "again").rglob("*") if path.is_file())
    assert size < 2 * fresh + 32 * after.generation + 60 * len(after)
