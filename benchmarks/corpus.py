"""Speed and memory of building a corpus and of reading passages from it.

Command:  python benchmarks/corpus.py --data=FOLDER [--quick] [--workers=2]
Data:     FOLDER holds enwiki-2018-sample.wikiextractor.tar.xz (WikiExtractor files) and
          bert-base-uncased-vocab.txt
Output:   `builds`: `realm corpus build` on parts of the sample, each in a new process, with
          wall-clock and CPU time (more reliable on a busy machine); `fetch`: milliseconds to make
          embedder rows and reader rows of 512 x 7 random passages
Time:     three minutes on two cores; --quick (an eighth of the sample, once) twenty seconds
"""

import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from command_line import make_parser, write_report
from corpus_build import timed_build

from realm_jax import runtime
from realm_jax.corpus.store import PassageStore
from realm_jax.data.rows import NULL_PASSAGE, joint_rows, passage_rows, query_rows

SAMPLE = "enwiki-2018-sample.wikiextractor.tar.xz"
VOCABULARY = "bert-base-uncased-vocab.txt"
QUERIES, FETCHED = 512, 7
LENGTHS = {"query": 96, "passage": 288, "joint": 384}
REPEATS = 100


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__, quick=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    runtime.start()  # as in both jobs; malloc then keeps freed memory, which halves a fetch
    shares = [1 / 8] if arguments.quick else [1 / 4, 1 / 2, 1]
    with tempfile.TemporaryDirectory() as folder:
        files = unpack(arguments.data / SAMPLE, Path(folder) / "sample")
        report: dict[str, Any] = {"builds": []}
        for share in shares:
            part = files[: round(share * len(files))]
            out = Path(folder) / f"corpus-{share}"
            build = build_corpus(part, out, arguments.data / VOCABULARY, arguments.workers)
            report["builds"].append({"share": share, **build})
        report["fetch"] = fetch(PassageStore.open(out))
    write_report(report, arguments)


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Extracts the sample and returns its files, sorted by name."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def build_corpus(files: list[Path], out: Path, vocabulary: Path, workers: int) -> dict[str, Any]:
    """Runs `realm corpus build`, which also marks spans, in a new process."""
    folder = out.parent / f"{out.name}.in"
    folder.mkdir()
    for number, path in enumerate(files):
        (folder / f"{number:03}").symlink_to(path)
    report = timed_build(
        format="wikiextractor", input=folder, vocab=vocabulary, out=out, workers=workers
    )
    cpu = report["cpu_seconds"]
    return {
        "passages": report["passages"],
        "seconds": report["seconds"],
        "passages_per_second": report["passages_per_second"],
        "cpu_seconds": cpu,
        "passages_per_cpu_second": report["passages"] / cpu,
        "peak_memory_bytes": report["peak_memory_bytes"],
        "store_bytes": sum(path.stat().st_size for path in out.rglob("*")),
    }


def fetch(store: PassageStore) -> dict[str, Any]:
    """Times the rows of 512 x 7 passages; each repetition draws other passages."""
    rng = np.random.default_rng(0)
    rows = rng.integers(len(store), size=QUERIES)
    queries = query_rows(
        [store.body_ids(int(row))[:90] for row in rows], LENGTHS["query"], store.vocabulary
    )
    null = np.full((QUERIES, 1), NULL_PASSAGE)

    def draw() -> np.ndarray:
        return rng.integers(len(store), size=(QUERIES, FETCHED))

    def joint(chosen: np.ndarray) -> Any:
        return joint_rows(queries, store, np.concatenate([null, chosen], 1), LENGTHS["joint"])

    return {
        "passages_in_store": len(store),
        "passage_rows": milliseconds(lambda p: passage_rows(store, p, LENGTHS["passage"]), draw),
        "joint_rows_and_null": milliseconds(joint, draw),
    }


def milliseconds(
    work: Callable[[np.ndarray], Any], draw: Callable[[], np.ndarray]
) -> dict[str, float]:
    """Returns minimum and median of many runs, in wall-clock and CPU milliseconds."""
    clock, cpu = [], []
    for _ in range(REPEATS):
        chosen = draw()
        began, began_cpu = time.perf_counter(), time.process_time()
        work(chosen)
        clock.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - began_cpu))
    return {
        "best": min(clock),
        "median": float(np.median(clock)),
        "cpu_best": min(cpu),
        "cpu_median": float(np.median(cpu)),
    }


if __name__ == "__main__":
    main()
