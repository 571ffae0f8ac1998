"""The knowledge corpus of a run in the generation that each index covers."""

import logging

from ml_collections import ConfigDict

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError

_OPEN = 4  # generations kept open beside the first; batches are prefetched across few swaps

log = logging.getLogger(__name__)


class Knowledge:
    """The generations of a knowledge corpus that may grow while the run trains.

    The builder builds each index over the newest generation. Candidates are read in the generation
    of their index, so a resumed run reads the same texts.

    Args:
      store: the generation with which the run was started.
      config: of the run; with `retrieval.rerank`, the corpus must not change.
    """

    def __init__(self, store: PassageStore, config: ConfigDict):
        self._start = self._newest = store
        self._may_grow = not config.retrieval.rerank
        self._opened: dict[str, PassageStore] = {}

    def accepts(self, corpus_hash: str) -> bool:
        """Whether an index of this corpus may be searched: it is a generation of the run's."""
        if corpus_hash == self._start.corpus_hash:
            return True
        if not self._may_grow:
            return False
        if corpus_hash not in self._newest.lineage:
            newest = self._newest.newest()
            if self._start.corpus_hash not in newest.lineage:
                return False  # another corpus was built in this folder
            self._newest = newest
        return corpus_hash in self._newest.lineage

    def of(self, index: PublishedIndex) -> PassageStore:
        """The corpus that an accepted index covers."""
        corpus_hash = index.manifest["corpus_hash"]
        if corpus_hash == self._start.corpus_hash:
            return self._start
        if corpus_hash not in self._opened:
            kept = list(self._opened.items())[1 - _OPEN :]
            self._opened = dict([*kept, (corpus_hash, self._open(corpus_hash))])
        return self._opened[corpus_hash]

    def _open(self, corpus_hash: str) -> PassageStore:
        if not self.accepts(corpus_hash) or self._newest.corpus_hash == corpus_hash:
            return self._newest
        generation = self._newest.generation_of(corpus_hash)
        try:
            return PassageStore.open(self._newest.path, generation)
        except InputError:  # the generation is gone
            log.warning(
                "generation %d of the corpus was compacted: its passages are read as they are now, "
                "so steps are not repeated bit for bit",
                generation,
            )
            return self._newest
