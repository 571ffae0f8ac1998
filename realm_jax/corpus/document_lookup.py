"""Finds the passages of documents by the ids that their source gives them, and by their texts."""

from collections.abc import Iterator, Set

import numpy as np
from jaxtyping import Int64

from realm_jax.corpus.document_ids import DocumentIds
from realm_jax.corpus.store import PassageStore


def passages_of(store: PassageStore, wanted: Set[str]) -> dict[str, list[int]]:
    """Ids, ascending, of the passages that exist of each wanted document; others are left out."""
    found: dict[str, list[int]] = {}
    for part in store.parts():
        numbers = dict(_numbers(part.store.document_ids, wanted))
        documents = part.store.documents(part.rows)
        for at in np.flatnonzero(np.isin(documents, list(numbers))).tolist():
            found.setdefault(numbers[int(documents[at])], []).append(int(part.ids[at]))
    return {document: sorted(ids) for document, ids in found.items()}


def existing_documents(store: PassageStore) -> set[str]:
    """The ids of all documents that have passages; "" if one has no id."""
    return {
        part.store.document_ids[number]
        for part in store.parts()
        for number in np.unique(part.store.documents(part.rows)).tolist()
        if number >= 0
    }


def ever_known(store: PassageStore, wanted: Set[str]) -> set[str]:
    """The wanted documents of which a folder of the corpus has passages, also removed ones."""
    return {
        document
        for part in store.parts()
        for _, document in _numbers(part.store.document_ids, wanted)
    }


def _numbers(ids: DocumentIds, wanted: Set[str]) -> Iterator[tuple[int, str]]:
    """Number and id of the documents of one folder that are wanted."""
    lengths = np.array(sorted({len(one.encode()) for one in wanted}), np.int64)
    for number in np.flatnonzero(np.isin(ids.lengths(), lengths)).tolist():
        document = ids[number]
        if document in wanted:
            yield number, document


def texts_in(store: PassageStore, new: PassageStore, rows: Int64[np.ndarray, "R"]) -> set[int]:
    """The rows of `new` whose title and body a passage without document id in `store` has."""
    by_text: dict[tuple[str, str], list[int]] = {}
    for row in rows.tolist():
        by_text.setdefault((new.title(row), new.body(row)), []).append(row)
    sizes = np.unique(new.text_sizes(rows))
    found: set[int] = set()
    for part in store.parts():
        # The number of bytes rules out most passages, whose texts are then not read.
        alike = np.isin(part.store.text_sizes(part.rows), sizes)
        for row in part.rows[alike].tolist():
            if not part.store.document_id(row):
                text = (part.store.title(row), part.store.body(row))
                found.update(by_text.get(text, ()))
    return found
