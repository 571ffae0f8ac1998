"""Finds passages with identical text, within a corpus and between X and Z."""

import hashlib

import numpy as np
from jaxtyping import Bool, Int64, UInt64

from realm_jax.corpus.store import PassageStore


def source_passages(store: PassageStore, knowledge: PassageStore) -> Int64[np.ndarray, "N"]:
    """For each passage of X, the passage of Z with the same title and body.

    A query masked in that passage must not retrieve it: it would contain the masked span (REALM
    section 3.4). As in the released code, title and body must be identical byte for byte.

    Args:
      store: the pre-training corpus X.
      knowledge: the knowledge corpus Z; needs 16 bytes of memory per passage.

    Returns:
      Passage ids in Z, -1 if there is none.
    """
    if store.corpus_hash == knowledge.corpus_hash:
        return np.arange(len(store))
    digests = text_digests(knowledge)
    order = np.argsort(digests, kind="stable")
    wanted = text_digests(store)
    nearest = np.minimum(np.searchsorted(digests, wanted, sorter=order), len(order) - 1)
    found = order[nearest]
    return np.where(digests[found] == wanted, found, -1)


def copies(
    store: PassageStore, source: Int64[np.ndarray, "B"], ids: Int64[np.ndarray, "B H"]
) -> Bool[np.ndarray, "B H"]:
    """Whether passages have the title and body of the source passage of their query.

    Args:
      store: a generation of the knowledge corpus Z.
      source: passage id for each query; -1, or not in this generation: no passage is a copy.
      ids: of passages that exist.
    """
    found = ids == source[:, None]
    known = np.flatnonzero(store.is_live(source))
    starts, stops = store.body_bounds(source[known])
    others, ends = store.body_bounds(ids[known].reshape(-1))
    as_long = (ends - others).reshape(ids[known].shape) == (stops - starts)[:, None]
    for row, hit in np.argwhere(as_long & ~found[known]).tolist():
        query = known[row]
        one, other = int(source[query]), int(ids[query, hit])
        same_body = store.body(one) == store.body(other)
        found[query, hit] = same_body and store.title(one) == store.title(other)
    return found


def text_digests(store: PassageStore) -> UInt64[np.ndarray, "N"]:
    """A 64-bit hash of title and body of every passage; collisions are ignored."""
    found = np.empty(len(store), np.uint64)
    for i in range(len(store)):
        content = f"{store.title(i)}\0{store.body(i)}".encode()
        digest = hashlib.blake2b(content, digest_size=8).digest()
        found[i] = int.from_bytes(digest, "little")
    return found
