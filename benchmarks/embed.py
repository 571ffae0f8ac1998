"""Passages to vectors: the index builder's embedder, and sentence-transformers on the same weights.

Command:  python benchmarks/embed.py [--quick] [--corpus=STORE] [--sizes=small,base] [--json]
              [--plot=FILE]
Data:     a corpus of `realm corpus build`; without one the almanac of the demo, which is built
Needs:    the extra [bench] (torch, sentence-transformers); without it ours alone is timed
Output:   for each size: seconds for the passages (median of rounds in which the forms take turns),
          real pieces a second, `ratio_vs_sentence_transformers` (float32 against float32) and
          `ratio_vs_sentence_transformers_bf16` (ours in bfloat16 against autocast), the largest
          difference of two float32 vectors, and a plot of the pieces a second
Time:     --quick (small size, three rounds) under five minutes on two cores; full half an hour

Both get the same random passages, titles and bodies. Ours reads the pieces that the corpus holds;
theirs cuts the text anew, sorts it by length and pads batches of 32, as its users run it.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from step import SIZES, bars, in_turns

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.corpus.almanac_store import build_almanac
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.writer import VOCABULARY
from realm_jax.interop.metadata import sizes_of
from realm_jax.interop.names import to_bert_names
from realm_jax.interop.sentence_layout import write_sentence_transformers
from realm_jax.models.modules import Modules
from realm_jax.retrieval.encoder import PassageEmbedder

PASSAGES = {"tiny": 512, "small": 512, "base": 64}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="one line")
    parser.add_argument("--plot", default="embed.svg")
    arguments = parser.parse_args()
    runtime.start()
    names = ["small"] if arguments.quick else arguments.sizes.split(",")
    rounds = 3 if arguments.quick else arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        if arguments.corpus is None:
            build_almanac(Path(folder) / "almanac")
        corpus = arguments.corpus or Path(folder) / "almanac" / "knowledge"
        report = {name: measured(name, rounds, corpus, Path(folder) / name) for name in names}
    bars({name: found["real_pieces_per_second"] for name, found in report.items()}, arguments.plot)
    sys.stdout.write(json.dumps(report, indent=None if arguments.json else 1) + "\n")


def measured(name: str, rounds: int, corpus: Path, folder: Path) -> dict[str, Any]:
    """Figures of one size."""
    store = PassageStore.open(corpus)
    layers, hidden, heads, _ = SIZES[name]
    config = config_lib.default()
    config.model.update(layers=layers, hidden=hidden, heads=heads, mlp=4 * hidden, dropout=0.0)
    modules = Modules(config.model, store.vocabulary.size, ("embedder",))
    parameters = jax.device_get(modules.init(jax.random.key(0)))["embedder"]
    count = min(PASSAGES[name], len(store))
    chosen = np.random.default_rng(0).choice(len(store), count, replace=False)
    real = int(np.minimum(store.lengths()[chosen], config.lengths.passage).sum())
    kept: dict[str, np.ndarray] = {}
    forms = ours(config, store, parameters, chosen, kept)
    forms |= theirs(config, store, parameters, chosen, folder, corpus, kept)
    clock, processor = in_turns(forms, rounds)
    found = {
        "passages": count,
        "real_pieces": real,
        "seconds": {form: round(taken, 3) for form, taken in clock.items()},
        "processor_seconds": {form: round(taken, 3) for form, taken in processor.items()},
        "real_pieces_per_second": {form: round(real / taken) for form, taken in clock.items()},
        "ratio_bf16": round(clock["realm"] / clock["realm bf16"], 2),
    }
    if "sentence-transformers" in clock:
        peer = clock["sentence-transformers"]
        found["ratio_vs_sentence_transformers"] = round(peer / clock["realm"], 2)
        found["ratio_of_bf16_vs_sentence_transformers"] = round(peer / clock["realm bf16"], 2)
        peer = clock["sentence-transformers bf16"]
        found["ratio_vs_sentence_transformers_bf16"] = round(peer / clock["realm bf16"], 2)
        apart = np.abs(kept["realm"] - kept["sentence-transformers"])
        found["largest_difference"] = float(apart.max())
    return found


Forms = dict[str, Callable[[], None]]


def ours(
    config: ConfigDict,
    store: PassageStore,
    parameters: dict[str, Any],
    chosen: np.ndarray,
    kept: dict[str, np.ndarray],
) -> Forms:
    """The index builder's embedder in both precisions."""
    forms: Forms = {}
    for dtype, form in (("float32", "realm"), ("bfloat16", "realm bf16")):
        own = ConfigDict(config.to_dict())
        own.model.compute = dtype
        embedder = PassageEmbedder(config_lib.check(own), store, parameters)

        def embed(embedder: PassageEmbedder = embedder, form: str = form) -> None:
            kept[form] = embedder.vectors(chosen)

        forms[form] = embed
    return forms


def theirs(
    config: ConfigDict,
    store: PassageStore,
    parameters: dict[str, Any],
    chosen: np.ndarray,
    folder: Path,
    corpus: Path,
    kept: dict[str, np.ndarray],
) -> Forms:
    """`SentenceTransformer.encode` on the same weights, exported."""
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        sys.stderr.write(f"without peers: {error} (pip install -e '.[bench]')\n")
        return {}
    sizes = sizes_of(config.model, store.vocabulary.size, config.lengths.answer)
    names = to_bert_names(parameters)
    write_sentence_transformers(folder, names, sizes, corpus / VOCABULARY)
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = config.lengths.passage
    texts = [(store.title(row), store.body(row)) for row in chosen.tolist()]

    def encode(autocast: bool, form: str) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            kept[form] = model.encode(texts)

    return {
        "sentence-transformers": lambda: encode(False, "sentence-transformers"),
        "sentence-transformers bf16": lambda: encode(True, "sentence-transformers bf16"),
    }


if __name__ == "__main__":
    main()
