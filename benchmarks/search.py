"""Compares searchers: recall, speed, build time, memory, and bytes on disk.

Command:  python benchmarks/search.py [--quick] [--rows=1000000,13350000] [--only=NAME,...]
              [--vectors=FILE.npy --queries=FILE.npy] [--folder=DIR] [--json] [--plot=FILE]
              [--seconds=2]
Data:     random vectors of 128 dimensions around sqrt(N) cluster centres of different weight;
          queries are rows with noise. Or two float32 arrays of your own, for example from a trained
          embedder; they need a separate --folder
Needs:    the extra [bench] for FAISS; without it only our searchers are measured
Output:   rows of {searcher, rows, leaves_searched, recall_at_8, qps, qps_under_load, latency_ms,
          build_s, load_s, bytes, build_peak_bytes, load_peak_bytes, loaded_bytes}, and a plot of
          queries per second over 1 - recall
Time:     --quick (100,000 rows) under five minutes on two cores; 1 M a quarter of an hour; 13.35 M
          two hours and 15 GB of disk. Vectors, exact hits and finished measurements are kept in
          DIR, so that the same command resumes after an interruption

Each searcher is built in one process and loaded and searched in another, so that memory peaks
belong to one phase. `bytes` is on disk. The other `*_bytes` are anonymous memory of the process,
without memory-mapped files. `qps_under_load` is measured with one busy process per core.
"""

import hashlib
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
from command_line import make_parser, write_report

from realm_jax import config as config_lib
from realm_jax.cli.scripts import exit_with, require_same_settings
from realm_jax.retrieval.searcher import build_searcher, load_searcher

DIMS, QUERIES, K, BLOCK = 128, 1000, 8, 1 << 18
SECONDS = 2.0  # default of --seconds
QUICK = "100000"
LEAVES_SEARCHED = (3, 5, 10, 25, 50, 100, 200)
# name -> changes to config.search
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
LEAST_MISSED = 1e-4  # smallest 1 - recall in the plot
FINER = {"scann bfloat16 finer": 2}  # factor for the default number of leaves
PEERS = {"faiss flat": "Flat", "faiss hnsw32": "HNSW32,Flat"}  # FAISS factory strings
MAX_ROWS = {"faiss hnsw32": 2_000_000}  # larger indexes take hours to build


def main() -> int:
    """Measures and prints."""
    parser = make_parser(__doc__, quick=True)
    parser.add_argument("--rows", default="1000000,13350000")
    parser.add_argument("--vectors", type=Path, help="[N, 128], searched instead of random rows")
    parser.add_argument("--queries", type=Path, help="[B, 128], with --vectors")
    parser.add_argument("--only", default="", help="comma-separated searchers; default: all")
    parser.add_argument("--folder", type=Path, default=Path("runs/search"))
    parser.add_argument("--plot", default="search.svg")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a speed measurement")
    parser.add_argument("--part", nargs=3, metavar=("PART", "NAME", "ROWS"), help="internal")
    arguments = parser.parse_args()
    if arguments.part:
        sys.stdout.write(json.dumps(measure_part(arguments, *arguments.part)) + "\n")
        return 0
    rows = []
    sizes = list(map(int, (QUICK if arguments.quick else arguments.rows).split(",")))
    if bool(arguments.vectors) != bool(arguments.queries):
        parser.error("--vectors and --queries go together")
    data = []
    for path in filter(None, (arguments.vectors, arguments.queries)):
        with path.open("rb") as file:
            data.append(hashlib.file_digest(file, "sha256").hexdigest())
    require_same_settings(arguments.folder, {"data": data, "seconds": arguments.seconds})
    if arguments.vectors:
        sizes = [copy_data(arguments.folder, arguments.vectors, arguments.queries)]
    for size in sizes:
        make_data(arguments.folder, size)
        for name in arguments.only.split(",") if arguments.only else (*OURS, *PEERS):
            if size <= MAX_ROWS.get(name, size):
                rows += measure_searcher(arguments, name, size)
    plot(rows, arguments.plot)
    write_report({"rows": rows}, arguments)
    return 0


def measure_searcher(arguments: Any, name: str, size: int) -> list[dict[str, Any]]:
    """Returns the rows of one searcher; an empty list if its package is not installed."""
    kept = arguments.folder / f"{name.replace(' ', '_')}_{size}.json"
    if not kept.exists():
        build = run_part(arguments, "build", name, size)
        found = build and run_part(arguments, "search", name, size)
        if not build or not found:
            return []
        loaded = {key: found[key] for key in ("load_s", "load_peak_bytes", "loaded_bytes")}
        row = {"searcher": name, "rows": size, **build, **loaded}
        kept.write_text(json.dumps([{**row, **point} for point in found["points"]]))
    rows: list[dict[str, Any]] = json.loads(kept.read_text())
    for row in rows:
        sys.stderr.write(f"{json.dumps(row)}\n")
    return rows


def run_part(arguments: Any, part: str, name: str, size: int) -> dict[str, Any] | None:
    """Runs "build" or "search" in a new process; returns its report, or None if it fails."""
    command = [sys.executable, __file__, f"--folder={arguments.folder}"]
    command += [f"--seconds={arguments.seconds}", "--part", part, name, str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"{name}, {size} rows, {part}: exit code {done.returncode}\n")
        return None
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def measure_part(arguments: Any, part: str, name: str, size: str) -> dict[str, Any]:
    """The work of the process that `run_part` starts."""
    if part == "build":
        return measure_build(arguments.folder, name, int(size))
    return measure_search(arguments.folder, name, int(size), arguments.seconds)


def copy_data(folder: Path, vectors: Path, queries: Path) -> int:
    """Copies the user's arrays to `folder`, adds the exact hits, and returns the row count."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, asked = np.load(vectors, mmap_mode="r"), np.load(queries)
    exact_hits = build_searcher("exact", rows, None).search(asked, K)[0]
    for name, array in (("vectors", rows), ("queries", asked), ("right", exact_hits)):
        np.save(folder / f"{name}_{len(rows)}.npy", array)
    return len(rows)


def make_data(folder: Path, size: int) -> None:
    """Writes random vectors, queries and their exact hits, unless these files exist."""
    folder.mkdir(parents=True, exist_ok=True)
    exact_hits = folder / f"right_{size}.npy"
    if exact_hits.exists():
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
    np.save(exact_hits, exact.search(queries, K)[0])


def load_data(folder: Path, name: str, size: int) -> np.ndarray:
    """Memory-maps an array that `make_data` wrote."""
    return np.load(folder / f"{name}_{size}.npy", mmap_mode="r")


def measure_build(folder: Path, name: str, size: int) -> dict[str, Any]:
    """Builds and saves a searcher; returns build seconds, peak memory, and bytes on disk."""
    vectors = load_data(folder, "vectors", size)
    to = folder / f"{name.replace(' ', '_')}_{size}"
    to.mkdir(exist_ok=True)
    with PeakMemory() as peak:
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


def measure_search(folder: Path, name: str, size: int, seconds: float) -> dict[str, Any]:
    """Loads a searcher; returns its memory, and recall and speed at each search width."""
    source = folder / f"{name.replace(' ', '_')}_{size}"
    queries = np.array(load_data(folder, "queries", size))
    exact_hits = load_data(folder, "right", size)
    load, points = (load_searcher, our_widths) if name in OURS else (load_faiss, faiss_widths)
    before, began = anonymous_bytes(), time.monotonic()
    with PeakMemory() as peak:
        searcher = load(source)
    loaded = {"load_s": round(time.monotonic() - began, 2), "load_peak_bytes": peak.bytes}
    found = []
    for width, search in points(searcher):
        rows, few = search(queries), queries[:64]
        same = [len(np.intersect1d(a, b)) for a, b in zip(rows, exact_hits, strict=True)]
        batch = queries if speed(search, few, seconds) > QUERIES / seconds else few
        with BusyCores():
            under_load = speed(search, batch, seconds)
        found.append(
            {
                "leaves_searched": width,
                "recall_at_8": round(float(np.mean(same)) / K, 4),
                "qps": round(speed(search, batch, seconds)),
                "qps_under_load": round(under_load),
                "latency_ms": round(1000 / speed(search, queries[:1], seconds), 3),
            }
        )
    return {**loaded, "loaded_bytes": anonymous_bytes() - before, "points": found}


Point = tuple[int | None, Callable[[np.ndarray], np.ndarray]]


def our_widths(searcher: Any) -> Iterator[Point]:
    """Yields (leaves searched, search function) of one of our searchers."""
    plan = getattr(searcher, "plan", {})
    for width in LEAVES_SEARCHED if plan.get("leaves") else (None,):
        if width:
            plan["leaves_searched"] = min(width, plan["leaves"])
        yield width, lambda queries: searcher.search(queries, K)[0]


def load_faiss(source: Path) -> Any:
    """Reads a FAISS index."""
    import faiss

    return faiss.read_index(str(source / "index.faiss"))


def faiss_widths(index: Any) -> Iterator[Point]:
    """Yields (efSearch, search function) of an HNSW index; one pair of a flat index."""
    import faiss

    graph = isinstance(index, faiss.IndexHNSW)
    for width in (32, 64, 128, 256) if graph else (None,):
        wanted = faiss.SearchParametersHNSW(efSearch=width) if graph else None
        yield width, lambda queries, wanted=wanted: index.search(queries, K, params=wanted)[1]


def speed(search: Callable[[np.ndarray], np.ndarray], queries: np.ndarray, seconds: float) -> float:
    """Returns the median queries per second of searches for the same batch, for some seconds."""
    search(queries)
    spent: list[float] = []
    while sum(spent) < seconds or len(spent) < 3:
        began = time.perf_counter()
        search(queries)
        spent.append(time.perf_counter() - began)
    return len(queries) / statistics.median(spent)


class BusyCores:
    """Runs one busy process per core inside a `with` block."""

    def __enter__(self) -> None:
        context = multiprocessing.get_context("spawn")
        cores = os.cpu_count() or 1
        self._busy = [context.Process(target=spin, daemon=True) for _ in range(cores)]
        for process in self._busy:
            process.start()
        time.sleep(1.0)  # until the processes are busy

    def __exit__(self, *_: object) -> None:
        for process in self._busy:
            process.kill()
            process.join()


def spin() -> None:
    """Multiplies matrices forever."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    some = np.ones((256, 256), np.float32)
    while True:
        some = np.tanh(some @ some)


class PeakMemory:
    """Samples the growth of this process's anonymous memory; `bytes` is the maximum."""

    def __enter__(self) -> "PeakMemory":
        self._before, self.bytes, self._over = anonymous_bytes(), 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.bytes = max(self.bytes, anonymous_bytes() - self._before)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def anonymous_bytes() -> int:
    """Returns the anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("RssAnon"))
    return 1024 * int(line.split()[1])


def plot(rows: list[dict[str, Any]], path: str) -> None:
    """Plots queries per second over 1 - recall, by row count and searcher."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        sys.stderr.write(f"no plot: {error} (pip install -e '.[bench]')\n")
        return
    sizes = sorted({row["rows"] for row in rows})
    colours = dict(zip((*OURS, *PEERS), plt.get_cmap("tab20").colors, strict=False))
    _, axes = plt.subplots(1, len(sizes), figsize=(6 * len(sizes), 4.5), squeeze=False)
    for axis, size in zip(axes[0], sizes, strict=True):
        here = [row for row in rows if row["rows"] == size]
        for name in dict.fromkeys(row["searcher"] for row in here):
            points = [row for row in here if row["searcher"] == name]
            missed = [max(1 - row["recall_at_8"], LEAST_MISSED) for row in points]
            speeds = [row["qps"] for row in points]
            axis.plot(missed, speeds, marker="o", label=name, color=colours[name])
        axis.set(title=f"{size:,} rows", xlabel="1 - recall@8", ylabel="queries per second")
        axis.set(xscale="log", yscale="log")
        axis.invert_xaxis()
        axis.legend(fontsize=7)
    plt.tight_layout()
    plt.savefig(path)


if __name__ == "__main__":
    exit_with(main)
