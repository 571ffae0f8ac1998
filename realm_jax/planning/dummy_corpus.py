"""Writes a tiny corpus for compiling programs whose shapes depend on the config only.

It is written and read by the real code, so its batches have the shapes, dtypes and structure of the
batches of a run.
"""

from pathlib import Path

from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789."
_SENTENCES = ("The capital of Ora is Ube.", "The river of Ora is Ilo.")


def write_dummy_corpus(folder: Path, vocabulary: int) -> tuple[PassageStore, SpanStore]:
    """Writes the corpus into a folder.

    Args:
      folder: an empty folder.
      vocabulary: V, number of word pieces of the models.
    """
    pieces = [*SPECIAL, *_CHARACTERS, *(f"##{c}" for c in _CHARACTERS)]
    pieces += [f"[unused{number}]" for number in range(vocabulary - len(pieces))]
    write_vocabulary(folder / "vocab.txt", pieces)
    write_passages(folder / "passages", [("Ora", _SENTENCES)] * 2, folder / "vocab.txt")
    store = PassageStore.open(folder / "passages")
    return store, mark_spans(store)
