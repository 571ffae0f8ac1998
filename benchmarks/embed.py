"""Speed of embedding passages: the index builder, and sentence-transformers on the same weights.

Command:  python benchmarks/embed.py [--quick] [--corpus=STORE] [--sizes=small,base] [--json]
              [--plot=FILE]
Data:     a corpus of `realm corpus build`; without --corpus the demo's almanac, which is built
Needs:    the extra [bench] (torch, sentence-transformers); without it only our encoder is timed
Output:   for each size: seconds for the passages (median of rounds in which the variants take
          turns), non-padding tokens per second, `ratio_vs_sentence_transformers` (float32 /
          float32), `ratio_vs_sentence_transformers_bf16` (our bfloat16 / autocast), the largest
          difference between two float32 vectors, and a bar plot of the tokens per second
Time:     --quick (size small, three rounds) under five minutes on two cores; full half an hour

Both embed the same random passages with titles. Ours reads token ids from the corpus.
sentence-transformers tokenizes the text, sorts it by length and pads batches of 32, as usual.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from command_line import make_parser, write_report
from ml_collections import ConfigDict
from random_text import SIZES
from timing import plot_speeds, time_in_turns

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.corpus.almanac_store import build_almanac
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import VOCABULARY
from realm_jax.interop.metadata import sizes_of
from realm_jax.interop.names import to_bert_names
from realm_jax.interop.sentence_layout import write_sentence_transformers
from realm_jax.models.modules import Modules
from realm_jax.retrieval.encoder import Encoder

PASSAGES = {"tiny": 512, "small": 512, "base": 64}


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__, quick=True)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--plot", default="embed.svg")
    arguments = parser.parse_args()
    runtime.start()
    sizes = ["small"] if arguments.quick else arguments.sizes.split(",")
    rounds = 3 if arguments.quick else arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        if arguments.corpus is None:
            build_almanac(Path(folder) / "almanac")
        corpus = arguments.corpus or Path(folder) / "almanac" / "knowledge"
        report = {size: measure(size, rounds, corpus, Path(folder) / size) for size in sizes}
    speeds = {size: found["real_pieces_per_second"] for size, found in report.items()}
    plot_speeds(speeds, arguments.plot)
    write_report(report, arguments)


def measure(size: str, rounds: int, corpus: Path, folder: Path) -> dict[str, Any]:
    """Times all variants of one model size."""
    store = PassageStore.open(corpus)
    layers, hidden, heads, _ = SIZES[size]
    config = config_lib.default()
    config.model.update(layers=layers, hidden=hidden, heads=heads, mlp=4 * hidden, dropout=0.0)
    modules = Modules(config.model, store.vocabulary.size, ("embedder",))
    params = jax.device_get(modules.init(jax.random.key(0)))["embedder"]
    count = min(PASSAGES[size], len(store))
    chosen = np.random.default_rng(0).choice(len(store), count, replace=False)
    real = int(np.minimum(store.lengths()[chosen], config.lengths.passage).sum())
    vectors: dict[str, np.ndarray] = {}
    variants = jax_variants(config, store, params, chosen, vectors)
    variants |= torch_variants(config, store, params, chosen, folder, corpus, vectors)
    wall, cpu = time_in_turns(variants, rounds)
    found = {
        "passages": count,
        "real_pieces": real,
        "seconds": {name: round(seconds, 3) for name, seconds in wall.items()},
        "processor_seconds": {name: round(seconds, 3) for name, seconds in cpu.items()},
        "real_pieces_per_second": {name: round(real / seconds) for name, seconds in wall.items()},
        "ratio_bf16": round(wall["realm"] / wall["realm bf16"], 2),
    }
    if "sentence-transformers" in wall:
        peer = wall["sentence-transformers"]
        found["ratio_vs_sentence_transformers"] = round(peer / wall["realm"], 2)
        found["ratio_of_bf16_vs_sentence_transformers"] = round(peer / wall["realm bf16"], 2)
        peer = wall["sentence-transformers bf16"]
        found["ratio_vs_sentence_transformers_bf16"] = round(peer / wall["realm bf16"], 2)
        difference = np.abs(vectors["realm"] - vectors["sentence-transformers"])
        found["largest_difference"] = float(difference.max())
    return found


Variants = dict[str, Callable[[], None]]


def jax_variants(
    config: ConfigDict,
    store: PassageStore,
    params: dict[str, Any],
    chosen: np.ndarray,
    vectors: dict[str, np.ndarray],
) -> Variants:
    """Returns the index builder's encoder in both dtypes; results are written to `vectors`."""
    variants: Variants = {}
    for dtype, name in (("float32", "realm"), ("bfloat16", "realm bf16")):
        typed = ConfigDict(config.to_dict())
        typed.model.compute = dtype
        encoder = Encoder(config_lib.check(typed), store.vocabulary.size)

        def embed(encoder: Encoder = encoder, name: str = name) -> None:
            vectors[name] = encoder.embed_passages(params, store, chosen)

        variants[name] = embed
    return variants


def torch_variants(
    config: ConfigDict,
    store: PassageStore,
    params: dict[str, Any],
    chosen: np.ndarray,
    folder: Path,
    corpus: Path,
    vectors: dict[str, np.ndarray],
) -> Variants:
    """Returns `SentenceTransformer.encode` in both dtypes; `folder` gets the exported weights."""
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        sys.stderr.write(f"not compared with PyTorch: {error} (pip install -e '.[bench]')\n")
        return {}
    sizes = sizes_of(config.model, store.vocabulary.size, config.lengths.answer)
    names = to_bert_names(params)
    write_sentence_transformers(folder, names, sizes, corpus / VOCABULARY)
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = config.lengths.passage
    texts = [(store.title(row), store.body(row)) for row in chosen.tolist()]

    def encode(autocast: bool, name: str) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            vectors[name] = model.encode(texts)

    return {
        "sentence-transformers": lambda: encode(False, "sentence-transformers"),
        "sentence-transformers bf16": lambda: encode(True, "sentence-transformers bf16"),
    }


if __name__ == "__main__":
    main()
