"""A judged set in the form of BEIR over the tiny corpus, and its documents as a corpus."""

import json
from pathlib import Path

from realm_jax.corpus.documents import Document
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_store
from realm_jax.text.vocabulary import write_vocabulary
from support.tiny_corpus import TinyCorpus, passages, vocabulary

COUNT = 24  # documents; each has one query


def write_judged_set(folder: Path) -> Path:
    """Writes documents, queries and judgements: the query for document `d3` has id `q3`."""
    folder.mkdir(parents=True)
    texts = [sentences[0].split()[-1].rstrip(".") for _, sentences in passages(COUNT)]
    documents = "".join(json.dumps(document) + "\n" for document in _documents())
    (folder / "corpus.jsonl").write_text(documents)
    queries = [{"_id": f"q{n}", "text": f"where is {text}?"} for n, text in enumerate(texts)]
    lines = "".join(json.dumps(query) + "\n" for query in queries)
    (folder / "queries.jsonl").write_text(lines)
    judgements = "".join(f"q{n}\td{n}\t1\n" for n in range(COUNT))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")
    return folder


def write_judged_store(folder: Path) -> TinyCorpus:
    """Writes the documents as a corpus under `folder`; long ones are cut into passages."""
    write_vocabulary(folder / "vocab.txt", vocabulary())
    documents = [Document(one["title"], one["text"], "", one["_id"]) for one in _documents()]
    write_store(folder / "corpus", documents, folder / "vocab.txt", passage_pieces=48)
    store = PassageStore.open(folder / "corpus")
    return TinyCorpus(folder / "corpus", store, mark_spans(store), [])


def _documents() -> list[dict[str, str]]:
    return [
        {"_id": f"d{n}", "title": title, "text": " ".join(sentences)}
        for n, (title, sentences) in enumerate(passages(COUNT))
    ]
