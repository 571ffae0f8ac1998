"""Duration of an index refresh by phase, and alternatives that reuse the old index.

Command:  python benchmarks/refresh.py [--quick] [--size=small] [--rows=1000000] [--json]
Data:     the demo's almanac, which is built; and random vectors that change between two snapshots
          (--moved: the share of the within-cluster variance that is redrawn)
Output:   `parts`: seconds to restore, embed, build, check and publish one index of the almanac with
          an encoder of that size; `changed`: after 5 % of its passages are written again, seconds
          of `realm index --once`, and their share of those of `parts`; `options`: for random
          vectors, seconds and recall@8 (against exact search with the new vectors) of the unchanged
          old index, of a new index, of the old index with re-encoded rows (builder.reencode), and
          of 64 hits of the old index re-ranked by the new vectors
Time:     --quick (100,000 rows) under five minutes on two cores; full ten minutes
"""

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from command_line import make_parser, write_report
from random_text import SIZES

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.artifacts.export import publish_export
from realm_jax.artifacts.snapshots import publish_snapshot, read_snapshot
from realm_jax.corpus.almanac_store import build_almanac
from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.store import PassageStore
from realm_jax.data.rows import passage_rows
from realm_jax.index_builder.once import run_once
from realm_jax.index_builder.run import refresh
from realm_jax.models.modules import Modules
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import build_searcher, load_searcher
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir, step_name

DIMS, QUERIES, K, RERANKED = 128, 500, 8, 64


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__, quick=True)
    parser.add_argument("--size", default="small")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--moved", type=float, default=0.3)
    arguments = parser.parse_args()
    runtime.start()
    rows = 100_000 if arguments.quick else arguments.rows
    with tempfile.TemporaryDirectory() as folder:
        report = {
            "size": arguments.size,
            **seconds_by_phase(Path(folder), arguments.size),
            "rows": rows,
            "moved": arguments.moved,
            "options": options(Path(folder), rows, arguments.moved),
        }
    write_report(report, arguments)


def seconds_by_phase(folder: Path, size: str) -> dict[str, Any]:
    """Times the second of two refreshes; the first one compiles."""
    build_almanac(folder / "almanac")
    layers, hidden, heads, _ = SIZES[size]
    config = config_lib.default()
    config.model.update(layers=layers, hidden=hidden, heads=heads, mlp=4 * hidden)
    config.corpus.knowledge = str(folder / "almanac" / "knowledge")
    config.builder.recall_floor = 0.0
    store = PassageStore.open(config.corpus.knowledge)
    vocabulary = store.vocabulary.size
    probes = passage_rows(store, np.arange(config.builder.probes), config.lengths.query)
    modules = Modules(config.model, vocabulary, ("embedder", "reader"))
    run, as_json = RunDir(folder / "run"), config_lib.to_json(config_lib.check(config))
    metrics: dict[str, Any] | None = None
    for step in (0, 1):
        params = modules.init(jax.random.key(step))
        publish_snapshot(run, step, params, as_json, {}, probes=probes)
        began = time.monotonic()
        snapshot = read_snapshot(run.snapshots / step_name(step))
        restored = time.monotonic() - began
        metrics = refresh(run, snapshot, threading.Event())
    assert metrics is not None
    parts = {part: metrics[f"seconds_{part}"] for part in ("embed", "build", "check", "publish")}
    parts = {"restore": restored, **parts}
    publish_export(run, 1, 1, params, as_json)
    files.write_bytes(run.config, as_json.encode())
    return {
        "passages": metrics["passages"],
        "parts": {part: round(seconds, 3) for part, seconds in parts.items()},
        "changed": changed(run, store, sum(parts.values())),
    }


def changed(run: RunDir, store: PassageStore, whole: float) -> dict[str, float]:
    """Writes 5 % of the passages again, twice; times the second update, the first one compiles."""
    rng, seconds = np.random.default_rng(0), 0.0
    for number in range(2):
        ids = rng.choice(len(store), len(store) // 20, replace=False).tolist()
        texts = [WrittenText(i, store.title(i), f"{number}: {store.body(i)}") for i in ids]
        write_passages_generation(store.path, texts)
        began = time.monotonic()
        report = run_once(str(run.workdir), threading.Event())
        seconds = time.monotonic() - began
        assert report["replaced"] == len(ids)
    return {"passages": len(ids), "seconds": round(seconds, 3), "share": round(seconds / whole, 4)}


def random_vectors(rows: int, snapshot: int, moved: float) -> np.ndarray:
    """Returns the vectors of one snapshot, [rows, DIMS].

    All snapshots have the same cluster centres. The share `moved` of each vector's deviation from
    its centre (in variance) is different in every snapshot.
    """
    fixed, fresh = np.random.default_rng(0), np.random.default_rng([1, snapshot])
    centres = fixed.standard_normal((round(rows**0.5), DIMS), np.float32)
    vectors = centres[fixed.integers(0, len(centres), rows)]
    vectors += 0.6 * (1 - moved) ** 0.5 * fixed.standard_normal(vectors.shape, np.float32)
    vectors += 0.6 * moved**0.5 * fresh.standard_normal(vectors.shape, np.float32)
    return vectors


def options(folder: Path, rows: int, moved: float) -> dict[str, dict[str, float]]:
    """Times each way to get from the index of one snapshot to the next, and measures recall."""
    old, new = random_vectors(rows, 0, moved), random_vectors(rows, 1, moved)
    rng = np.random.default_rng(2)
    queries = new[rng.choice(rows, QUERIES, replace=False)]
    queries = queries + 0.3 * rng.standard_normal(queries.shape, np.float32)
    exact_hits = ExactSearcher(new).search(queries, K)[0]
    settings = config_lib.default().search
    stale = build_searcher("scann", old, settings)
    saved = folder / "stale"
    saved.mkdir()
    stale.save(saved)
    found = {"old index": {"seconds": 0.0, "recall_at_8": recall(stale, queries, exact_hits)}}
    hits = stale.search(queries, RERANKED)[0]
    began = time.monotonic()
    scores = np.einsum("qe,qhe->qh", queries, new[hits])
    best = np.take_along_axis(hits, np.argsort(-scores, axis=1)[:, :K], axis=1)
    found[f"{RERANKED} hits of the old index, re-ranked"] = {
        "seconds_a_query": round((time.monotonic() - began) / QUERIES, 6),
        "recall_at_8": shared(best, exact_hits),
    }
    del stale
    began = time.monotonic()
    rebuilt = build_searcher("scann", new, settings)
    found["new index"] = {
        "seconds": round(time.monotonic() - began, 2),
        "recall_at_8": recall(rebuilt, queries, exact_hits),
    }
    del rebuilt
    reencoded: Any = load_searcher(saved)
    began = time.monotonic()
    reencoded.reencode(new)
    found["old index, rows re-encoded"] = {
        "seconds": round(time.monotonic() - began, 2),
        "recall_at_8": recall(reencoded, queries, exact_hits),
    }
    return found


def recall(searcher: Any, queries: np.ndarray, exact_hits: np.ndarray) -> float:
    """Returns the share of the exact hits that the searcher finds."""
    return shared(searcher.search(queries, K)[0], exact_hits)


def shared(found: np.ndarray, expected: np.ndarray) -> float:
    """Returns the share of `expected` that is in `found`, row by row."""
    same = [len(np.intersect1d(a, b)) for a, b in zip(found, expected, strict=True)]
    return round(float(np.mean(same)) / expected.shape[1], 4)


if __name__ == "__main__":
    main()
