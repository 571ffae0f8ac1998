"""What a refresh of the index takes, by part, and what is gained by keeping some of the last one.

Command:  python benchmarks/refresh.py [--quick] [--size=small] [--rows=1000000] [--json]
Data:     the almanac of the demo, which is built; and drawn vectors that move from one snapshot to
          the next (--moved, the share of the noise within a cluster that is drawn anew)
Output:   `parts`: seconds to restore, embed, build, check and publish one index of the almanac with
          an embedder of that size; `options`: for drawn vectors, seconds and recall@8 against exact
          search with the new vectors of: the old index as it is, a new one, the old one with its
          rows encoded again (builder.reencode), and 64 hits of the old one ranked by new vectors
Time:     --quick (100,000 rows) under five minutes on two cores; full ten minutes
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from step import SIZES

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.artifacts.snapshots import publish_snapshot, read_snapshot
from realm_jax.corpus.almanac_store import build_almanac
from realm_jax.corpus.store import PassageStore
from realm_jax.index_builder.run import refresh
from realm_jax.models.modules import Modules
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import build_searcher, load_searcher
from realm_jax.storage.layout import RunDir, step_name

DIMS, QUERIES, K, RERANKED = 128, 500, 8, 64


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="small")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--moved", type=float, default=0.3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="one line")
    arguments = parser.parse_args()
    runtime.start()
    rows = 100_000 if arguments.quick else arguments.rows
    with tempfile.TemporaryDirectory() as folder:
        report = {
            "size": arguments.size,
            **by_part(Path(folder), arguments.size),
            "rows": rows,
            "moved": arguments.moved,
            "options": options(Path(folder), rows, arguments.moved),
        }
    sys.stdout.write(json.dumps(report, indent=None if arguments.json else 1) + "\n")


def by_part(folder: Path, size: str) -> dict[str, Any]:
    """One refresh of the product, the second: the first compiles."""
    build_almanac(folder / "almanac")
    layers, hidden, heads, _ = SIZES[size]
    config = config_lib.default()
    config.model.update(layers=layers, hidden=hidden, heads=heads, mlp=4 * hidden)
    config.corpus.knowledge = str(folder / "almanac" / "knowledge")
    config.builder.recall_floor = 0.0
    vocabulary = PassageStore.open(config.corpus.knowledge).vocabulary.size
    modules = Modules(config.model, vocabulary, ("embedder", "reader"))
    run, as_json = RunDir(folder / "run"), config_lib.to_json(config_lib.check(config))
    figures: dict[str, Any] | None = None
    for step in (0, 1):
        publish_snapshot(run, step, modules.init(jax.random.key(step)), as_json, {})
        began = time.monotonic()
        snapshot = read_snapshot(run.snapshots / step_name(step))
        restored = time.monotonic() - began
        figures = refresh(run, snapshot, threading.Event())
    assert figures is not None
    parts = {part: figures[f"seconds_{part}"] for part in ("embed", "build", "check", "publish")}
    parts = {"restore": restored, **parts}
    return {
        "passages": figures["passages"],
        "parts": {part: round(seconds, 3) for part, seconds in parts.items()},
    }


def drawn(rows: int, snapshot: int, moved: float) -> np.ndarray:
    """Vectors of one snapshot: the same clusters, `moved` of each row's own place drawn anew."""
    fixed, fresh = np.random.default_rng(0), np.random.default_rng([1, snapshot])
    centres = fixed.standard_normal((round(rows**0.5), DIMS), np.float32)
    vectors = centres[fixed.integers(0, len(centres), rows)]
    vectors += 0.6 * (1 - moved) ** 0.5 * fixed.standard_normal(vectors.shape, np.float32)
    vectors += 0.6 * moved**0.5 * fresh.standard_normal(vectors.shape, np.float32)
    return vectors


def options(folder: Path, rows: int, moved: float) -> dict[str, dict[str, float]]:
    """Seconds and recall of each way to come from the index of one snapshot to the next."""
    old, new = drawn(rows, 0, moved), drawn(rows, 1, moved)
    rng = np.random.default_rng(2)
    queries = new[rng.choice(rows, QUERIES, replace=False)]
    queries = queries + 0.3 * rng.standard_normal(queries.shape, np.float32)
    right = ExactSearcher(new).search(queries, K)[0]
    settings = config_lib.default().search
    stale = build_searcher("scann", old, settings)
    saved = folder / "stale"
    saved.mkdir()
    stale.save(saved)
    found = {"old index": {"seconds": 0.0, "recall_at_8": recall(stale, queries, right)}}
    hits = stale.search(queries, RERANKED)[0]
    began = time.monotonic()
    scores = np.einsum("qe,qhe->qh", queries, new[hits])
    best = np.take_along_axis(hits, np.argsort(-scores, axis=1)[:, :K], axis=1)
    found[f"{RERANKED} hits of it ranked anew"] = {
        "seconds_a_query": round((time.monotonic() - began) / QUERIES, 6),
        "recall_at_8": share(best, right),
    }
    del stale
    began = time.monotonic()
    anew = build_searcher("scann", new, settings)
    found["new index"] = {
        "seconds": round(time.monotonic() - began, 2),
        "recall_at_8": recall(anew, queries, right),
    }
    del anew
    again: Any = load_searcher(saved)
    began = time.monotonic()
    again.reencode(new)
    found["rows encoded again"] = {
        "seconds": round(time.monotonic() - began, 2),
        "recall_at_8": recall(again, queries, right),
    }
    return found


def recall(searcher: Any, queries: np.ndarray, right: np.ndarray) -> float:
    """Share of the exact hits that a searcher finds."""
    return share(searcher.search(queries, K)[0], right)


def share(found: np.ndarray, right: np.ndarray) -> float:
    """Share of `right` that is in `found`, row by row."""
    same = [len(np.intersect1d(a, b)) for a, b in zip(found, right, strict=True)]
    return round(float(np.mean(same)) / right.shape[1], 4)


if __name__ == "__main__":
    main()
