"""An index of segments against one index over the same rows: recall, speed, time and memory.

Command:  python benchmarks/segments.py [--quick] [--rows=1000000,13350000] [--segments=1,4,16]
              [--searcher=NAME] [--hosts=1] [--queries=1000] [--folder=DIR] [--json]
              [--seconds=2]
Data:     random vectors of 128 dimensions around sqrt(N) cluster centres of different weight;
          queries are rows with noise. Rows are drawn again for each segment, not kept on disk
Output:   `rows`: {rows, segments, hosts, share_searched, recall_at_8, qps, latency_ms, build_s,
          build_peak_bytes, bytes, load_s, loaded_bytes}; and `against_one`, for each number of
          segments: {recall_ratio, qps_ratio} to one index, with the same share of leaves searched
Time:     on two idle cores, as building an index: --quick (100,000 rows) a few minutes, 1 M a
          quarter of an hour for each number of segments, 13.35 M two hours. Finished
          measurements are kept in DIR, so that the same command resumes after an interruption

With --hosts=4, as many processes load a part of the segments each, and search every query;
`loaded_bytes` is then the largest of them. Segments are built one after the other in one process,
which holds one of them at a time: `build_peak_bytes` is the memory of an index builder without its
encoder. The `*_bytes` are anonymous memory, without memory-mapped files (the vectors of a segment);
`bytes` is on disk. `share_searched` is the share of the leaves of each segment; null: all rows.
100 million rows in 50 segments on 4 hosts: --rows=100000000 --segments=50 --hosts=4 --queries=200
--searcher="faiss int8 coarse codes"; the index needs 17 GB of disk and, on all hosts together, of
memory.
"""

import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from command_line import make_parser, write_report
from search import BLOCK, DIMS, OURS, SECONDS, K, PeakMemory, anonymous_bytes, speed

from realm_jax import config as config_lib
from realm_jax.cli.scripts import exit_with, require_same_settings
from realm_jax.index_builder.built_segments import segment_search
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.mapped_array import temporary_array
from realm_jax.retrieval.saved_searcher import SavedSearcher
from realm_jax.retrieval.searcher import Part, Searcher, build_searcher, load_searcher
from realm_jax.retrieval.segmented_searcher import (
    SegmentedSearcher,
    merge_hits,
    segment_folders,
)

QUICK = "100000"
# Searchers, with one that has 168 bytes a row in memory instead of 200 ("faiss int8").
COARSE = {"kind": "faiss", "rescore": "int8", "dims_per_code": 2, "reorder": 200}
SEARCHERS = OURS | {"faiss int8 coarse codes": COARSE}
SHARES = (0.025, 0.05, 0.1, 0.2)  # of the leaves of each segment that are searched


def main() -> int:
    """Measures and prints."""
    parser = make_parser(__doc__, quick=True)
    parser.add_argument("--rows", default="1000000,13350000")
    parser.add_argument("--segments", default="1,4,16")
    parser.add_argument("--searcher", default="scann bfloat16", choices=SEARCHERS)
    parser.add_argument("--hosts", type=int, default=1, help="processes that share the segments")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a speed measurement")
    parser.add_argument("--folder", type=Path, default=Path("runs/segments"))
    parser.add_argument("--part", nargs=4, metavar=("PART", "ROWS", "SEGMENTS", "HOSTS"))
    arguments = parser.parse_args()
    if arguments.part:
        part, *numbers = arguments.part
        measure = {"build": measure_build, "search": measure_search}[part]
        sys.stdout.write(json.dumps(measure(arguments, *map(int, numbers))) + "\n")
        return 0
    settings = {"queries": arguments.queries, "seconds": arguments.seconds}
    require_same_settings(arguments.folder, settings)
    rows = []
    for size in map(int, (QUICK if arguments.quick else arguments.rows).split(",")):
        make_queries(arguments.folder, size, arguments.queries)
        for segments in map(int, arguments.segments.split(",")):
            rows += measured(arguments, size, segments)
    write_report({"rows": rows, "against_one": against_one(rows)}, arguments)
    return 0


def measured(arguments: Any, size: int, segments: int) -> list[dict[str, Any]]:
    """The rows of one number of segments: one for each width of the search."""
    place = index_folder(arguments.folder, arguments.searcher, size, segments)
    hosts = min(arguments.hosts, segments)
    built = kept(place.with_suffix(".json"), arguments, "build", size, segments, hosts)
    searched = kept(Path(f"{place}_{hosts}.json"), arguments, "search", size, segments, hosts)
    points = searched.pop("points")
    return [
        {"rows": size, "segments": segments, "hosts": hosts, **point, **built, **searched}
        for point in points
    ]


def kept(path: Path, arguments: Any, part: str, *numbers: int) -> dict[str, Any]:
    """The measurement in a file; if it does not exist, runs the part in a new process first."""
    if not path.exists():
        command = [sys.executable, __file__, f"--folder={arguments.folder}"]
        command += [f"--searcher={arguments.searcher}", f"--seconds={arguments.seconds}"]
        command += ["--part", part, *map(str, numbers)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        path.write_text(done.stdout.splitlines()[-1])
        sys.stderr.write(f"{part} {numbers}: {path.read_text()}\n")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def index_folder(folder: Path, name: str, size: int, segments: int) -> Path:
    """Where the index is saved."""
    return folder / f"{name.replace(' ', '_')}_{size}_{segments}"


class Rows:
    """The rows of the data, drawn in blocks; the same block has the same rows each time."""

    def __init__(self, size: int):
        self.size, rng = size, np.random.default_rng(size)
        self._centres = rng.normal(size=(round(size**0.5), DIMS)).astype(np.float32)
        self._weights = rng.dirichlet(np.full(len(self._centres), 2.0))

    def block(self, number: int) -> np.ndarray:
        """The rows of a block."""
        rng = np.random.default_rng((self.size, number))
        count = min(BLOCK, self.size - number * BLOCK)
        near = self._centres[rng.choice(len(self._centres), count, p=self._weights)]
        rows: np.ndarray = near + 0.6 * rng.standard_normal((count, DIMS), np.float32)
        return rows

    def range(self, start: int, stop: int) -> np.ndarray:
        """Rows from `start` to before `stop`, memory-mapped."""
        rows = temporary_array((stop - start, DIMS))
        for number in range(start // BLOCK, -(-stop // BLOCK)):
            first = number * BLOCK
            block = self.block(number)[max(0, start - first) : stop - first]
            begin = max(start, first) - start
            rows[begin : begin + len(block)] = block
        return rows


def make_queries(folder: Path, size: int, count: int) -> None:
    """Writes queries and their exact hits, unless these files exist."""
    folder.mkdir(parents=True, exist_ok=True)
    exact_hits = folder / f"right_{size}.npy"
    if exact_hits.exists():
        return
    rows, numbers = Rows(size), range(-(-size // BLOCK))
    rng = np.random.default_rng((size, len(numbers)))
    chosen = np.sort(rng.choice(size, min(count, size), replace=False))
    queries = np.concatenate(
        [rows.block(number)[chosen[chosen // BLOCK == number] % BLOCK] for number in numbers]
    )
    queries += 0.3 * rng.standard_normal(queries.shape, np.float32)
    best = None
    for number in numbers:
        block = rows.block(number)
        found, scores = ExactSearcher(block).search(queries, min(K, len(block)))
        hits = (found + np.int32(number * BLOCK), scores)
        best = hits if best is None else merge_hits([best, hits], K)
    assert best is not None
    np.save(folder / f"queries_{size}.npy", queries)
    np.save(exact_hits, best[0])


def measure_build(arguments: Any, size: int, segments: int, _: int) -> dict[str, Any]:
    """Builds and saves the segments, one after the other; skips those of before an interruption."""
    index = index_folder(arguments.folder, arguments.searcher, size, segments)
    config, rows = config_lib.default(), Rows(size)
    config.search.update(SEARCHERS[arguments.searcher], segment_passages=-(-size // segments))
    options = segment_search(config, size)
    folders = segment_folders(index, segments)
    before, parts = anonymous_bytes(), []
    for number, to in enumerate(folders):
        path = index / f"built_{number}.json"
        if not path.exists():
            to.mkdir(parents=True, exist_ok=True)
            bounds = number * size // segments, (number + 1) * size // segments
            built = build_segment(rows.range(*bounds), options, to, before)
            path.write_text(json.dumps(built))
        parts.append(json.loads(path.read_text()))
    SegmentedSearcher([SavedSearcher(one) for one in folders]).save(index)
    on_disk = sum(file.stat().st_size for file in index.rglob("*") if file.is_file())
    seconds = round(sum(part["seconds"] for part in parts), 1)
    highest = max(part["peak_bytes"] for part in parts)
    return {"build_s": seconds, "build_peak_bytes": highest, "bytes": on_disk}


def build_segment(vectors: np.ndarray, options: Any, to: Path, before: int) -> dict[str, Any]:
    """Builds and saves one; `before`: anonymous memory in bytes before the first one."""
    left, began = anonymous_bytes() - before, time.monotonic()  # memory not given back
    with PeakMemory() as peak:
        build_searcher(options.kind, vectors, options).save(to)
    return {"seconds": time.monotonic() - began, "peak_bytes": left + peak.bytes}


def measure_search(arguments: Any, size: int, segments: int, hosts: int) -> dict[str, Any]:
    """Loads the segments in as many processes as there are hosts; recall and speed."""
    folder, seconds = arguments.folder, arguments.seconds
    queries, right = (np.load(folder / f"{what}_{size}.npy") for what in ("queries", "right"))
    index = index_folder(folder, arguments.searcher, size, segments)
    with Hosts(index, hosts) as searcher:
        points = []
        for share in SHARES if searcher.has_leaves else (None,):
            searcher.set_share(share)
            found = searcher.search(queries)
            same = [len(np.intersect1d(a, b)) for a, b in zip(found, right, strict=True)]
            recall = float(np.mean(same)) / K
            latencies = [speed(searcher.search, queries[n : n + 1], seconds) for n in range(5)]
            points.append(
                {
                    "share_searched": share,
                    "recall_at_8": round(recall, 4),
                    "qps": round(speed(searcher.search, queries, seconds)),
                    "latency_ms": round(1000 / statistics.median(latencies), 3),
                }
            )
        loaded = {"load_s": searcher.load_s, "loaded_bytes": searcher.loaded_bytes}
    return {"points": points, **loaded}


class Hosts:
    """Processes that have loaded parts of an index; with one host, this process is it."""

    def __init__(self, index: Path, hosts: int):
        context = multiprocessing.get_context("spawn")
        self._connections: list[Connection] = []
        self._processes = []
        for number in range(hosts - 1):
            ours, its = context.Pipe()
            given = (its, index, Part(number + 1, hosts))
            self._processes.append(context.Process(target=answer, args=given, daemon=True))
            self._processes[-1].start()
            self._connections.append(ours)
        self._own, self.load_s, self.loaded_bytes = load_part(index, Part(0, hosts))
        for connection in self._connections:
            seconds, used = connection.recv()
            self.load_s = max(self.load_s, seconds)
            self.loaded_bytes = max(self.loaded_bytes, used)
        self.has_leaves = bool(leaves_of(self._own))

    def set_share(self, share: float | None) -> None:
        """Sets the share of the leaves of each segment that is searched."""
        for connection in self._connections:
            connection.send(("share", share))
        set_share(self._own, share)

    def search(self, queries: np.ndarray) -> np.ndarray:
        """Rows of the hits, merged over all hosts."""
        for connection in self._connections:
            connection.send(("search", queries))
        found = [self._own.search(queries, K)]
        found += [connection.recv() for connection in self._connections]
        rows: np.ndarray = merge_hits(found, K)[0]
        return rows

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def answer(connection: Connection, index: Path, part: Part) -> None:
    """The work of one host besides the first."""
    searcher, seconds, used = load_part(index, part)
    connection.send((seconds, used))
    while True:
        what, given = connection.recv()
        if what == "search":
            connection.send(searcher.search(given, K))
        else:
            set_share(searcher, given)


def load_part(index: Path, part: Part) -> tuple[Searcher, float, int]:
    """The searcher of a part, the seconds of loading and its memory in bytes."""
    before, began = anonymous_bytes(), time.monotonic()
    searcher = load_searcher(index, None, part)
    return searcher, round(time.monotonic() - began, 2), anonymous_bytes() - before


def leaves_of(searcher: Any) -> int:
    """Partitions of all segments."""
    return sum(getattr(one, "plan", {}).get("leaves", 0) for one in searcher.segments)


def set_share(searcher: Any, share: float | None) -> None:
    """Sets how many leaves each segment searches."""
    for one in searcher.segments:
        if share is not None:
            one.plan["leaves_searched"] = max(1, round(share * one.plan["leaves"]))


def against_one(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Recall and speed of each row, divided by those of one segment with the same share."""
    ones = {(row["rows"], row["share_searched"]): row for row in rows if row["segments"] == 1}
    found = []
    for row in rows:
        one = ones.get((row["rows"], row["share_searched"]))
        if one is not None and row is not one:
            ratios = {
                "recall_ratio": round(row["recall_at_8"] / one["recall_at_8"], 4),
                "qps_ratio": round(row["qps"] / one["qps"], 3),
            }
            same = ("rows", "segments", "hosts", "share_searched")
            found.append({**{key: row[key] for key in same}, **ratios})
    return found


if __name__ == "__main__":
    exit_with(main)
