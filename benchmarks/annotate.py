"""Speed of marking salient spans in passages: by capitalised words, and by a trained tagger.

Command:  python benchmarks/annotate.py --corpus=FOLDER [--tagger=WORKDIR] [--passages=2000]
Data:     a folder of `realm corpus build`; a workdir of `realm tag train` (experiments/
          tagger_conll.py), without which only the capitals rule is measured
Output:   for each method: passages per second of wall-clock time and of CPU time (more reliable on
          a busy machine), and spans per passage
Time:     one or two minutes on two cores; one batch runs before the measurement, for compilation
"""

import os
import time
from typing import Any

from command_line import make_parser, write_report

from realm_jax.corpus.store import PassageStore
from realm_jax.tagging.mark_corpus import BATCH_PASSAGES
from realm_jax.tagging.marker import CapitalsMarker, SpanMarker, TaggerMarker
from realm_jax.tagging.tagger import Tagger


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--tagger")
    parser.add_argument("--passages", type=int, default=2000)
    arguments = parser.parse_args()
    store = PassageStore.open(arguments.corpus)
    markers: dict[str, SpanMarker] = {"capitals": CapitalsMarker()}
    if arguments.tagger:
        tagger, published = Tagger.open(arguments.tagger)
        markers["tagger"] = TaggerMarker(tagger, published.identity)
    count = min(arguments.passages, len(store))
    report = {name: measure(marker, store, count) for name, marker in markers.items()}
    write_report({"passages": count, **report}, arguments)


def measure(marker: SpanMarker, store: PassageStore, count: int) -> dict[str, Any]:
    """Times one method over the first `count` passages, after one warm-up batch."""
    list(marker.spans(store, range(min(BATCH_PASSAGES, count))))
    began, before = time.monotonic(), os.times()
    spans = 0
    for first in range(0, count, BATCH_PASSAGES):
        rows = range(first, min(first + BATCH_PASSAGES, count))
        spans += sum(len(found) for found in marker.spans(store, rows))
    seconds, after = time.monotonic() - began, os.times()
    cpu_seconds = after.user + after.system - before.user - before.system
    return {
        "seconds": round(seconds, 2),
        "processor_seconds": round(cpu_seconds, 2),
        "passages_per_second": round(count / seconds, 1),
        "passages_per_processor_second": round(count / cpu_seconds, 1),
        "spans_per_passage": round(spans / count, 2),
    }


if __name__ == "__main__":
    main()
