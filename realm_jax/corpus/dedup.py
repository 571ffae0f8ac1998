"""Which passages are the same text: within a store, and between X and Z."""

import hashlib

import numpy as np
from jaxtyping import Int64, UInt64

from realm_jax.corpus.store import PassageStore


def source_passages(store: PassageStore, knowledge: PassageStore) -> Int64[np.ndarray, "N"]:
    """For each passage of X (`store`) the passage of Z with the same title and body, -1 for none.

    Retrieving that one would be a copy, not evidence (REALM section 3.4). As in the released code,
    only a passage that is the same byte for byte counts, so that of news there is hardly any.
    Holds 16 bytes per passage of Z.
    """
    if store.corpus_hash == knowledge.corpus_hash:
        return np.arange(len(store))
    digests = text_digests(knowledge)
    order = np.argsort(digests, kind="stable")
    ours = text_digests(store)
    place = np.minimum(np.searchsorted(digests, ours, sorter=order), len(order) - 1)
    found = order[place]
    return np.where(digests[found] == ours, found, -1)


def text_digests(store: PassageStore) -> UInt64[np.ndarray, "N"]:
    """A checksum of title and body of every passage; 64 bits, so equal ones are the same text."""
    found = np.empty(len(store), np.uint64)
    for i in range(len(store)):
        content = f"{store.title(i)}\0{store.body(i)}".encode()
        digest = hashlib.blake2b(content, digest_size=8).digest()
        found[i] = int.from_bytes(digest, "little")
    return found
