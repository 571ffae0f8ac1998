"""How fast the salient spans of passages are marked: by capitals, and by a trained tagger.

Command:  python benchmarks/annotate.py --corpus=FOLDER [--tagger=WORKDIR] [--passages=2000]
Data:     a folder of `realm corpus build`; a workdir of `realm tag train` (experiments/
          tagger_conll.py), without which only the rule is measured
Output:   one JSON object: for each annotator the passages and spans a second by the clock and by
          processor time (the one to read on a busy machine), and the spans a passage
Time:     a minute or two on two cores; the tagger's first batches compile and do not count
"""

import argparse
import json
import os
import sys
import time
from typing import Any

from realm_jax.corpus.store import PassageStore
from realm_jax.tagging.mark_corpus import BATCH_PASSAGES
from realm_jax.tagging.marker import CapitalsMarker, SpanMarker, TaggerMarker
from realm_jax.tagging.tagger import Tagger


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--tagger")
    parser.add_argument("--passages", type=int, default=2000)
    arguments = parser.parse_args()
    store = PassageStore.open(arguments.corpus)
    annotators: dict[str, SpanMarker] = {"capitals": CapitalsMarker()}
    if arguments.tagger:
        tagger, published = Tagger.open(arguments.tagger)
        annotators["tagger"] = TaggerMarker(tagger, published.identity)
    count = min(arguments.passages, len(store))
    report = {name: measured(annotator, store, count) for name, annotator in annotators.items()}
    sys.stdout.write(json.dumps({"passages": count, **report}, indent=1) + "\n")


def measured(annotator: SpanMarker, store: PassageStore, count: int) -> dict[str, Any]:
    """Figures of one annotator over the first `count` passages, after a batch to warm up."""
    list(annotator.spans(store, range(min(BATCH_PASSAGES, count))))
    began, before = time.monotonic(), os.times()
    spans = 0
    for first in range(0, count, BATCH_PASSAGES):
        some = range(first, min(first + BATCH_PASSAGES, count))
        spans += sum(len(own) for own in annotator.spans(store, some))
    seconds, after = time.monotonic() - began, os.times()
    busy = after.user + after.system - before.user - before.system
    return {
        "seconds": round(seconds, 2),
        "processor_seconds": round(busy, 2),
        "passages_per_second": round(count / seconds, 1),
        "passages_per_processor_second": round(count / busy, 1),
        "spans_per_passage": round(spans / count, 2),
    }


if __name__ == "__main__":
    main()
