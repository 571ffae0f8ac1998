"""The training step of REALM on real tokens: packed, padded, and as Hugging Face's classes run it.

Command:  python benchmarks/step.py --corpus=FOLDER [--quick] [--sizes=small,base] [--json]
Data:     a folder of `realm corpus build` on WikiExtractor files, vocabulary of BERT-base
Needs:    the extra [bench] (torch, transformers 4.40.2); without it only our own forms are timed
Output:   for each size, seconds of a step (median of rounds that take turns), real pieces a second,
          and the ratios `ratio_vs_torch` (float32), `ratio_vs_torch_bf16` (ours in bfloat16 against
          autocast), `ratio_vs_padded` (our own padded rows), `padding_share` (of our streams)
Time:     --quick (small size, three rounds) five minutes on two cores; full size half an hour

A step is forward, backward and AdamW, lengths 96/288/384, eight candidates drawn at random: lengths
of passages, and so padding, are those of the corpus. Peers get the same rows, padded to those
lengths as their tokenizer pads them, and the null passage as a row like any other.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.data.masked_text import MaskedText, MaskedTextSource
from realm_jax.data.packing import padding_share
from realm_jax.data.rows import Rows
from realm_jax.exchange.layout import RunDir
from realm_jax.parallel.sharding import batch_sharding, make_mesh
from realm_jax.testing.padded import padded_realm_loss, padded_rows
from realm_jax.trainer.index_in_use import IndexInUse
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

SIZES = {  # layers, hidden, heads, queries a step
    "small": (4, 256, 4, 4),
    "base": (12, 768, 12, 2),
}
Step = Callable[[], None]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="one line")
    arguments = parser.parse_args()
    runtime.start()
    store = PassageStore.open(arguments.corpus)
    spans = SpanStore.open(f"{arguments.corpus}/spans", store)
    names = ["small"] if arguments.quick else arguments.sizes.split(",")
    rounds = 3 if arguments.quick else arguments.rounds
    report = {name: measured(name, store, spans, rounds) for name in names}
    sys.stdout.write(json.dumps(report, indent=None if arguments.json else 1) + "\n")


def measured(name: str, store: PassageStore, spans: SpanStore, rounds: int) -> dict[str, Any]:
    """Figures of one size."""
    config = sized(name)
    text = MaskedTextSource(store, spans, config)
    size = config.stages.realm.batch
    batch = text.batch(0, size)
    drawn = np.random.default_rng(0).integers(0, len(store), (size, config.retrieval.candidates))
    passages, joint, _ = padded_rows(config, store, batch, drawn)
    real = sum(int(rows.mask.sum()) for rows in (batch.queries, passages, joint))
    steps, share = ours(config, store, text, batch, drawn)
    steps |= theirs(config, store.vocabulary.size, batch, passages, joint)
    seconds = {form: statistics.median(taken) for form, taken in in_turns(steps, rounds).items()}
    rows = 2 * config.retrieval.candidates + 1
    found = {
        "real_pieces": real,
        "queries": size,
        "padding_share": round(share, 3),
        "padding_share_of_padded": round(
            1 - real / (batch.queries.ids.size + passages.ids.size + joint.ids.size), 3
        ),
        "seconds": {form: round(taken, 3) for form, taken in seconds.items()},
        "real_pieces_per_second": {form: round(real / taken) for form, taken in seconds.items()},
        "ratio_vs_padded": round(seconds["padded"] / seconds["packed"], 2),
        "rows_per_query": rows,
    }
    if "torch" in seconds:
        found["ratio_vs_torch"] = round(seconds["torch"] / seconds["packed"], 2)
        found["ratio_vs_torch_bf16"] = round(seconds["torch_bf16"] / seconds["packed_bf16"], 2)
    return found


def sized(name: str) -> ConfigDict:
    """The paper's lengths at one of the sizes; no dropout, so that forms can be compared."""
    layers, hidden, heads, queries = SIZES[name]
    config = config_lib.default()
    config.model.update(layers=layers, hidden=hidden, heads=heads, mlp=4 * hidden, dropout=0.0)
    config.stages.realm.update(steps=1000, batch=queries)
    return config


def ours(
    config: ConfigDict,
    store: PassageStore,
    text: MaskedTextSource,
    batch: MaskedText,
    drawn: np.ndarray,
) -> tuple[dict[str, Step], float]:
    """Packed rows in both precisions, padded ones in float32; and the padding of the streams."""
    forms: dict[str, Step] = {}
    for form in ("packed", "packed_bf16", "padded"):
        own = ConfigDict(config.to_dict())
        own.model.compute = "bfloat16" if form.endswith("bf16") else "float32"
        index = IndexInUse(RunDir("/nonexistent"), own, store.corpus_hash, [], set)
        stage = (PaddedStage if form == "padded" else RealmStage)(own, store, text, text, index)
        made = stage.with_candidates(batch, drawn)
        forms[form] = trained(own, stage, made)
        if form == "packed":
            share = 1 - sum(
                (1 - padding_share(p)) * p.ids.size for p in (made.embedded, made.read)
            ) / (made.embedded.ids.size + made.read.ids.size)
    return forms, share


class PaddedStage(RealmStage):
    """REALM with every row as wide as the longest may be."""

    def with_candidates(self, text: MaskedText, hits: np.ndarray, groups: int = 1) -> Any:
        """Text, passages [B, K, P], joint [B, K, J], valid."""
        return (text, *padded_rows(self._config, self._store, text, hits))

    def loss(self, networks: Any, batch: Any, key: Any) -> Any:
        """See `realm_jax.testing.padded`."""
        return padded_realm_loss(networks, self._config, *batch)


def trained(config: ConfigDict, stage: RealmStage, batch: Any) -> Step:
    """A step of ours on this batch, again and again."""
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    optimizer = make_optimizer(config.optimizer, stage.settings)
    state = make_state(stage.modules, optimizer, mesh, config.seed, {})
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    function = make_step(stage, optimizer, mesh, places, config.seed)
    placed = jax.device_put(batch, batch_sharding(mesh))
    kept = [state]

    def step() -> None:
        kept[0], metrics = function(kept[0], placed)
        jax.block_until_ready(metrics)

    return step


def theirs(
    config: ConfigDict, vocabulary: int, batch: MaskedText, passages: Rows, joint: Rows
) -> dict[str, Step]:
    """RealmScorer and RealmKnowledgeAugEncoder as their documentation trains them."""
    try:
        import torch
        from transformers import RealmConfig, RealmKnowledgeAugEncoder, RealmScorer
    except ImportError as error:
        sys.stderr.write(f"without peers: {error} (pip install -e '.[bench]')\n")
        return {}
    model = config.model
    size = RealmConfig(
        vocab_size=vocabulary,
        hidden_size=model.hidden,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        intermediate_size=model.mlp,
        retriever_proj_size=model.embedding,
        num_candidates=config.retrieval.candidates,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    names = ("input_ids", "attention_mask", "token_type_ids")

    def tensors(rows: Rows, prefix: str = "") -> dict[str, Any]:
        parts = (rows.ids, rows.mask, rows.segments)
        pairs = zip(names, parts, strict=True)
        return {prefix + name: torch.tensor(part.astype(np.int64)) for name, part in pairs}

    labels, counted = np.zeros((2, *batch.queries.ids.shape[:1], joint.ids.shape[-1]), np.int64)
    np.put_along_axis(labels, batch.positions, batch.targets, 1)
    np.put_along_axis(counted, batch.positions, batch.weights.astype(np.int64), 1)
    asked = tensors(batch.queries) | tensors(passages, "candidate_")
    read = tensors(joint) | {"labels": torch.tensor(labels), "mlm_mask": torch.tensor(counted)}

    def trained(autocast: bool) -> Step:
        torch.manual_seed(0)
        scorer, encoder = RealmScorer(size), RealmKnowledgeAugEncoder(size)
        parameters = [*scorer.parameters(), *encoder.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=1e-4)

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                relevance = scorer(**asked).relevance_score
                loss = encoder(**read, relevance_score=relevance).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()

        return step

    return {"torch": trained(False), "torch_bf16": trained(True)}


def in_turns(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, taken in turns so that other load falls on all; the first does not count."""
    taken: dict[str, list[float]] = {form: [] for form in steps}
    for number in range(rounds + 1):
        for form, step in steps.items():
            began = time.perf_counter()
            step()
            if number:
                taken[form].append(time.perf_counter() - began)
    return taken


if __name__ == "__main__":
    main()
