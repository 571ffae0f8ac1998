"""A small vocabulary, random documents and a store built from them."""

import random

import pytest

from realm_jax.corpus.documents import Document
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_store
from realm_jax.text.vocabulary import train_vocabulary, write_vocabulary
from realm_jax.text.wordpiece import WordPieces

TEXT = """river mountain Berlin Żywiec café na\u0308ive 1999 the a of in joins flows near old (and)
日本 Danube Vienna born 1848 king's long-lived city, under; over x1 tower 😀"""
WORDS = TEXT.split()


def random_sentence(rng: random.Random, most: int = 25) -> str:
    words = rng.choices(WORDS, k=rng.randint(1, most))
    return "The " + " ".join(words) + "."


def random_documents(seed: int, count: int) -> list[Document]:
    rng = random.Random(seed)
    return [
        Document(
            " ".join(rng.choices(WORDS, k=rng.randint(1, 4))),
            rng.choice([" ", "\n\n"]).join(random_sentence(rng) for _ in range(rng.randint(1, 40))),
            f"document {i}",
            f"é{i}" if i % 3 else "",
        )
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    texts = [f"{d.title} {d.body}" for d in random_documents(0, 10)]
    write_vocabulary(path, train_vocabulary([*texts, "abcdefghijklmnopqrstuvwxyz ."], 400))
    return path


@pytest.fixture(scope="session")
def words(vocabulary):
    return WordPieces.load(vocabulary)


@pytest.fixture(scope="session")
def documents():
    return random_documents(1, 30)


@pytest.fixture
def store(tmp_path, documents, vocabulary):
    write_store(tmp_path / "store", documents, vocabulary, passage_pieces=64)
    return PassageStore.open(tmp_path / "store")
