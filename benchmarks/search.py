"""Searchers beside each other: recall, speed, time to build, memory, bytes on disk.

Command:  python benchmarks/search.py [--quick] [--rows=1000000,13350000] [--only=NAME,...]
              [--vectors=FILE.npy --queries=FILE.npy] [--folder=DIR] [--json] [--plot=FILE]
Data:     made up: vectors of 128 dimensions around sqrt(N) centres of unlike sizes; queries are
          rows with noise, as fresh query vectors are near old passage vectors. Or your own two
          arrays of float32, say of a trained embedder; take a folder of its own for them
Needs:    the extra [bench] for FAISS; without it our own searchers alone are measured
Output:   rows of {searcher, rows, leaves_searched, recall_at_8, qps, qps_beside_load, latency_ms,
          build_s, load_s, bytes, build_peak_bytes, load_peak_bytes, loaded_bytes}, and a plot of
          speed over the share that is missed
Time:     --quick (100,000 rows) under five minutes on two cores; 1 M a quarter of an hour; 13.35 M
          two hours and 15 GB of disk. Rows and exact hits are kept in DIR, each figure too: the
          same command goes on where it was stopped

Every searcher is built in one process and loaded and searched in another, so that peaks are its
own. `*_bytes` of memory is what the process itself holds, without files that are mapped. Beside
load means: as many busy processes as there are cores.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from realm_jax import config as config_lib
from realm_jax.retrieval.searcher import build_searcher, load_searcher

DIMS, QUERIES, K, BLOCK = 128, 1000, 8, 1 << 18
SECONDS = 2.0  # that a speed is measured for
QUICK = "100000"
LEAVES_SEARCHED = (3, 5, 10, 25, 50, 100, 200)
# name -> what it changes of config.search
OURS: dict[str, dict[str, Any]] = {
    "mesh float32": {"kind": "mesh", "dtype": "float32"},
    "mesh bfloat16": {"kind": "mesh", "dtype": "bfloat16"},
    "scann float32": {"kind": "scann", "rescore": "float32"},
    "scann bfloat16": {"kind": "scann", "rescore": "bfloat16"},
    "scann int8": {"kind": "scann", "rescore": "int8"},
    "scann bfloat16 soar": {"kind": "scann", "rescore": "bfloat16", "soar": True},
    "scann bfloat16 finer": {"kind": "scann", "rescore": "bfloat16"},
    "scann bfloat16 coarse codes": {"kind": "scann", "dims_per_code": 2, "reorder": 400},
    "faiss float32": {"kind": "faiss", "rescore": "float32"},
    "faiss bfloat16": {"kind": "faiss", "rescore": "bfloat16"},
    "faiss int8": {"kind": "faiss", "rescore": "int8"},
}
LEAST_MISSED = 1e-4  # that the plot tells from nothing
FINER = {"scann bfloat16 finer": 2}  # times the usual leaves
PEERS = {"faiss flat": "Flat", "faiss hnsw32": "HNSW32,Flat"}  # FAISS as its users take it
MOST_ROWS = {"faiss hnsw32": 2_000_000}  # a build of hours beyond


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1000000,13350000")
    parser.add_argument("--vectors", type=Path, help="[N, 128], searched instead of made-up rows")
    parser.add_argument("--queries", type=Path, help="[B, 128], with --vectors")
    parser.add_argument("--only", default="", help="names of searchers, by commas; all of them")
    parser.add_argument("--folder", type=Path, default=Path("runs/search"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="one line")
    parser.add_argument("--plot", default="search.svg")
    parser.add_argument("--part", nargs=3, metavar=("PART", "NAME", "ROWS"), help="in a process")
    arguments = parser.parse_args()
    if arguments.part:
        part, name, size = arguments.part
        made = {"build": built, "search": searched}[part](arguments.folder, name, int(size))
        sys.stdout.write(json.dumps(made) + "\n")
        return
    rows = []
    sizes = list(map(int, (QUICK if arguments.quick else arguments.rows).split(",")))
    if bool(arguments.vectors) != bool(arguments.queries):
        parser.error("--vectors and --queries go together")
    if arguments.vectors:
        sizes = [take_data(arguments.folder, arguments.vectors, arguments.queries)]
    for size in sizes:
        make_data(arguments.folder, size)
        for name in arguments.only.split(",") if arguments.only else (*OURS, *PEERS):
            if size <= MOST_ROWS.get(name, size):
                rows += figures(arguments.folder, name, size)
    plot(rows, arguments.plot)
    sys.stdout.write(json.dumps({"rows": rows}, indent=None if arguments.json else 1) + "\n")


def figures(folder: Path, name: str, size: int) -> list[dict[str, Any]]:
    """The rows of one searcher; none where its package is missing."""
    kept = folder / f"{name.replace(' ', '_')}_{size}.json"
    if not kept.exists():
        build = in_process(folder, "build", name, size)
        found = build and in_process(folder, "search", name, size)
        if not build or not found:
            return []
        loaded = {key: found[key] for key in ("load_s", "load_peak_bytes", "loaded_bytes")}
        row = {"searcher": name, "rows": size, **build, **loaded}
        kept.write_text(json.dumps([{**row, **point} for point in found["points"]]))
    rows: list[dict[str, Any]] = json.loads(kept.read_text())
    for row in rows:
        sys.stderr.write(f"{json.dumps(row)}\n")
    return rows


def in_process(folder: Path, part: str, name: str, size: int) -> dict[str, Any] | None:
    """What one part says, from a process of its own."""
    command = [sys.executable, __file__, f"--folder={folder}", "--part", part, name, str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"{name}, {size} rows, {part}: ended with {done.returncode}\n")
        return None
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def take_data(folder: Path, vectors: Path, queries: Path) -> int:
    """Vectors and queries of the user, by their exact hits; how many vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, asked = np.load(vectors, mmap_mode="r"), np.load(queries)
    right = build_searcher("exact", rows, None).search(asked, K)[0]
    for name, array in (("vectors", rows), ("queries", asked), ("right", right)):
        np.save(folder / f"{name}_{len(rows)}.npy", array)
    return len(rows)


def make_data(folder: Path, size: int) -> None:
    """Vectors, queries and their exact hits, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    right = folder / f"right_{size}.npy"
    if right.exists():
        return
    rng = np.random.default_rng(size)
    centres = rng.normal(size=(round(size**0.5), DIMS)).astype(np.float32)
    weights = rng.dirichlet(np.full(len(centres), 2.0))
    vectors = np.lib.format.open_memmap(
        folder / f"vectors_{size}.npy", "w+", np.float32, (size, DIMS)
    )
    for start in range(0, size, BLOCK):
        count = min(BLOCK, size - start)
        noise = rng.standard_normal((count, DIMS), np.float32)
        vectors[start : start + count] = (
            centres[rng.choice(len(centres), count, p=weights)] + 0.6 * noise
        )
    asked = vectors[np.sort(rng.choice(size, QUERIES, replace=False))]
    queries = asked + 0.3 * rng.standard_normal(asked.shape, np.float32)
    np.save(folder / f"queries_{size}.npy", queries)
    exact = build_searcher("exact", vectors, None)
    np.save(right, exact.search(queries, K)[0])


def data(folder: Path, what: str, size: int) -> np.ndarray:
    """An array of `make_data`, mapped."""
    return np.load(folder / f"{what}_{size}.npy", mmap_mode="r")


def built(folder: Path, name: str, size: int) -> dict[str, Any]:
    """Builds and saves; seconds of the build, its peak of memory, and bytes on disk."""
    vectors = data(folder, "vectors", size)
    to = folder / f"{name.replace(' ', '_')}_{size}"
    to.mkdir(exist_ok=True)
    with Peak() as peak:
        began = time.monotonic()
        if name in OURS:
            options = config_lib.default().search
            options.update(OURS[name], leaves=round(FINER.get(name, 0) * size**0.5))
            searcher = build_searcher(options.kind, vectors, options)
            seconds = time.monotonic() - began
            searcher.save(to)
        else:
            import faiss

            index = faiss.index_factory(DIMS, PEERS[name], faiss.METRIC_INNER_PRODUCT)
            for start in range(0, size, BLOCK):
                index.add(np.ascontiguousarray(vectors[start : start + BLOCK]))
            seconds = time.monotonic() - began
            faiss.write_index(index, str(to / "index.faiss"))
    on_disk = sum(file.stat().st_size for file in to.iterdir())
    return {"build_s": round(seconds, 1), "build_peak_bytes": peak.bytes, "bytes": on_disk}


def searched(folder: Path, name: str, size: int) -> dict[str, Any]:
    """Loads and searches: recall and speed at each width."""
    source, queries = folder / f"{name.replace(' ', '_')}_{size}", data(folder, "queries", size)
    queries, right = np.array(queries), data(folder, "right", size)
    load, points = (load_searcher, ours) if name in OURS else (load_peer, peers)
    before, began = own_bytes(), time.monotonic()
    with Peak() as peak:
        searcher = load(source)
    loaded = {"load_s": round(time.monotonic() - began, 2), "load_peak_bytes": peak.bytes}
    found = []
    for width, search in points(searcher):
        rows, few = search(queries), queries[:64]
        same = [len(np.intersect1d(a, b)) for a, b in zip(rows, right, strict=True)]
        batch = queries if speed(search, few) > QUERIES / SECONDS else few
        with Load():
            beside = speed(search, batch)
        found.append(
            {
                "leaves_searched": width,
                "recall_at_8": round(float(np.mean(same)) / K, 4),
                "qps": round(speed(search, batch)),
                "qps_beside_load": round(beside),
                "latency_ms": round(1000 / speed(search, queries[:1]), 3),
            }
        )
    return {**loaded, "loaded_bytes": own_bytes() - before, "points": found}


Point = tuple[int | None, Callable[[np.ndarray], np.ndarray]]


def ours(searcher: Any) -> Iterator[Point]:
    """One of our searchers at each width that its partitions allow."""
    plan = getattr(searcher, "plan", {})
    for width in LEAVES_SEARCHED if plan.get("leaves") else (None,):
        if width:
            plan["leaves_searched"] = min(width, plan["leaves"])
        yield width, lambda queries: searcher.search(queries, K)[0]


def load_peer(source: Path) -> Any:
    """FAISS's index."""
    import faiss

    return faiss.read_index(str(source / "index.faiss"))


def peers(index: Any) -> Iterator[Point]:
    """FAISS at each width of its graph; flat at one."""
    import faiss

    graph = isinstance(index, faiss.IndexHNSW)
    for width in (32, 64, 128, 256) if graph else (None,):
        wanted = faiss.SearchParametersHNSW(efSearch=width) if graph else None
        yield width, lambda queries, wanted=wanted: index.search(queries, K, params=wanted)[1]


def speed(search: Callable[[np.ndarray], np.ndarray], queries: np.ndarray) -> float:
    """Median of queries a second, the batch asked again and again."""
    search(queries)
    taken: list[float] = []
    while sum(taken) < SECONDS or len(taken) < 3:
        began = time.perf_counter()
        search(queries)
        taken.append(time.perf_counter() - began)
    return len(queries) / statistics.median(taken)


class Load:
    """As many busy processes as cores."""

    def __enter__(self) -> None:
        context = multiprocessing.get_context("spawn")
        cores = os.cpu_count() or 1
        self._busy = [context.Process(target=spin, daemon=True) for _ in range(cores)]
        for process in self._busy:
            process.start()
        time.sleep(1.0)  # until they spin

    def __exit__(self, *_: object) -> None:
        for process in self._busy:
            process.kill()
            process.join()


def spin() -> None:
    """Products of matrices without end."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    some = np.ones((256, 256), np.float32)
    while True:
        some = np.tanh(some @ some)


class Peak:
    """The most memory of its own that this process held meanwhile, sampled."""

    def __enter__(self) -> "Peak":
        self._before, self.bytes, self._over = own_bytes(), 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.bytes = max(self.bytes, own_bytes() - self._before)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def own_bytes() -> int:
    """Anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("RssAnon"))
    return 1024 * int(line.split()[1])


def plot(rows: list[dict[str, Any]], path: str) -> None:
    """Queries a second over the share that is missed, by number of rows and searcher."""
    import matplotlib.pyplot as plt

    sizes = sorted({row["rows"] for row in rows})
    colours = dict(zip((*OURS, *PEERS), plt.get_cmap("tab20").colors, strict=False))
    _, axes = plt.subplots(1, len(sizes), figsize=(6 * len(sizes), 4.5), squeeze=False)
    for axis, size in zip(axes[0], sizes, strict=True):
        here = [row for row in rows if row["rows"] == size]
        for name in dict.fromkeys(row["searcher"] for row in here):
            own = [row for row in here if row["searcher"] == name]
            missed = [max(1 - row["recall_at_8"], LEAST_MISSED) for row in own]
            speeds = [row["qps"] for row in own]
            axis.plot(missed, speeds, marker="o", label=name, color=colours[name])
        axis.set(title=f"{size:,} rows", xlabel="1 - recall@8", ylabel="queries a second")
        axis.set(xscale="log", yscale="log")
        axis.invert_xaxis()
        axis.legend(fontsize=7)
    plt.tight_layout()
    plt.savefig(path)


if __name__ == "__main__":
    main()
