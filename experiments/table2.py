r"""The rows of Table 2 with a small model on a sample of Wikipedia, on two CPU cores.

Data:     one folder (--data) with a Wikipedia sample (7,156 articles), CoNLL-2003, BERT's
          vocabulary, and the questions of NQ, WebQuestions, CuratedTREC and SQuAD;
          docs/results_random_weights.md states which parts are used and by which rule. With --start
          also Simple English Wikipedia and the questions of TriviaQA (docs/evidence.md)
Command:  python experiments/table2.py --all --data=DATA --home=runs/table2
          one run: python experiments/table2.py --row=realm --seed=0 \
              --workdir=runs/table2/realm_0 --data=DATA
          from an encoder that knows language: add --start=FOLDER to either, with another --home
          the encoder, BM25 and both, untrained: python experiments/table2.py --untrained \
              --start=FOLDER --data=DATA --home=runs/table2_from_start
          tables and plots of the finished runs: python experiments/table2.py --tables
          other sizes: add --config.KEY=VALUE to any of them, and --records=FOLDER: records of
          other sizes are refused in one folder. Those of the tables with --start have
          --config.lengths.fitted=False --config.search.kind=mesh
Hours:    docs/results.md has the minutes of a row; an interrupted command resumes
Expect:   docs/results_random_weights.md, next to the numbers of the paper; with --start
          docs/evidence.md
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli import exit_codes
from realm_jax.cli.jobs import until_stopped
from realm_jax.cli.scripts import exit_with, parse_script, require_same_settings, script_parser
from realm_jax.tagging.small_tagger import start_tagger_config, tagger_config

if TYPE_CHECKING:
    from table2_small.edition import Edition

SEEDS = 3
RESULTS = Path(__file__).parent / "results"
RUNS = RESULTS / "table2"  # ROW_SEED.json of every run, and counts.json of the questions
RUNS_FROM_START = RESULTS / "table2_from_start"  # the same of the runs with --start
PAGE = Path(__file__).parents[1] / "docs" / "results_tables.md"


def get_config(home: str = "runs/table2") -> ConfigDict:
    """The base config, that of row `realm`; table2_small/rows.py lists what rows change."""
    config = config_lib.default()
    config.corpus.knowledge = f"{home}/knowledge"
    config.corpus.pretraining = f"{home}/wikipedia"
    config.corpus.spans = f"{home}/text_spans"

    config.model.update(layers=2, hidden=128, heads=4, mlp=512, positions=96, dropout=0.0)
    config.model.init_stddev = 0.08
    config.model.compute = "bfloat16"  # a third more steps per second on two cores than float32
    config.lengths.update(query=32, passage=64, joint=96, masks=3, answer=8)
    config.retrieval.candidates = 4
    # Without bias correction, b2 = 0.999 would make the first few hundred updates too large.
    config.optimizer.b2 = 0.98
    config.search.kind = "exact"

    tagger = tagger_config()
    stages = config.stages
    stages.ict.update(steps=200, batch=64, learning_rate=1e-3)
    stages.ict.update(mask_share=0.1, removal_share=0.7)
    stages.reader.update(steps=10_000, batch=32, learning_rate=2e-3)
    stages.reader.update(neighbour_share=0.3, null_share=0.05)
    stages.reader.update(permuted_share=0.3, hidden_mask_share=0.1)
    stages.realm.update(steps=960, batch=32, learning_rate=3e-4, evaluate_every=60)
    stages.qa.update(steps=200, batch=16, learning_rate=3e-4)
    stages.qa.update(reader_passages=5, retriever_passages=20)
    stages.tagger.update(tagger.stages.tagger)

    config.refresh.update(mode="sync", every=30, keep=3, alarm_steps=1000)
    config.checkpoint.update(every=120, keep=1)
    config.builder.update(shard=8192, batch_pieces=8192, poll_seconds=0.1)
    config.evaluation.queries = 256
    config.report.update(every=30, writers="", max_passages=0)
    return config


def get_config_from_start(home: str = "runs/table2_from_start") -> ConfigDict:
    """The base config with --start, that of row `stated_names`, in the form of the encoder.

    Only the spans of `stated_names` have evidence, which teaching the reader and measuring
    retrieval utility need.
    """
    config = config_lib.default()
    config.corpus.knowledge = f"{home}/knowledge"
    config.corpus.pretraining = f"{home}/wikipedia"
    config.corpus.spans = f"{home}/text_spans"

    config.model.update(like_start=True, compute="bfloat16", dropout=0.0)
    config.lengths.update(query=40, passage=64, joint=96, masks=6, answer=10)
    config.retrieval.candidates = 5
    config.optimizer.b2 = 0.98
    config.search.kind = "exact"

    stages = config.stages
    stages.reader.update(steps=1000, batch=64, learning_rate=3e-4)
    stages.reader.update(neighbour_share=0.3, null_share=0.1, hidden_mask_share=0.1)
    stages.ict.update(steps=0, batch=32, learning_rate=2e-5)
    stages.realm.update(steps=300, batch=16, learning_rate=2e-5, evaluate_every=100)
    stages.qa.update(steps=500, batch=32, learning_rate=5e-5)
    stages.qa.update(reader_passages=5, retriever_passages=20)
    stages.tagger.update(start_tagger_config().stages.tagger)

    config.refresh.update(mode="sync", every=100, keep=3)
    config.checkpoint.update(every=100, keep=1)
    config.evaluation.queries = 256
    config.report.update(every=30, writers="", max_passages=0)
    return config


def main() -> int:
    """Runs rows, and writes the tables of all finished runs."""
    parser = script_parser(__doc__)
    parser.add_argument("--row", help="name of a row in table2_small/rows.py")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workdir", type=Path, help="folder of the run; default: HOME/ROW_SEED")
    parser.add_argument("--home", type=Path, help="folder of all runs; default: runs/table2")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data files")
    parser.add_argument("--start", help="folder or ORG/NAME of an encoder; default: random weights")
    parser.add_argument(
        "--tagger",
        default="",
        help="with --start: what marks X: a tagger's workdir, or `rules`; default: HOME/tagger, "
        "which is trained from the encoder",
    )
    parser.add_argument("--records", type=Path, help="of the runs; default: those of the tables")
    parser.add_argument("--warm", action="store_true", help="only corpora, questions and reader")
    parser.add_argument(
        "--untrained", action="store_true", help="with --start: recall of untrained retrievers"
    )
    parser.add_argument("--all", action="store_true", help="run all rows with every seed")
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help=f"number of seeds of --all; default: {SEEDS}"
    )
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs of --all; default: 1")
    parser.add_argument("--tables", action="store_true", help="only write tables and plots")
    parser.add_argument("--no-tables", action="store_true", help="do not write tables and plots")
    arguments, overrides = parse_script(parser)
    from table2_small.records import require_same_overrides

    default_records = RUNS_FROM_START if arguments.start else RUNS
    arguments.records = arguments.records or default_records
    arguments.home = arguments.home or Path("runs") / default_records.name
    failed = 0
    arguments.of_start = start_fields(arguments)
    if arguments.row or arguments.all:
        require_same_overrides(arguments.records, overrides)
    if arguments.all:
        failed = all_runs(arguments, overrides)
    elif arguments.untrained and arguments.start:
        untrained(arguments, overrides)
    elif arguments.row or arguments.warm:
        one_run(arguments, overrides)
    elif not arguments.tables:
        parser.error(
            "one of --row, --warm, --all, --tables, and --untrained with --start, is required"
        )
    if not arguments.no_tables and arguments.records == default_records:
        write_evidence() if arguments.start else write_tables()
    return failed


def start_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of new records that say what they start from; {} for random weights.

    Raises:
      MismatchError: there are records of another encoder or tagger.
    """
    from table2_small.records import described, require_same_start

    fields = described(arguments.start, arguments.tagger)
    if not arguments.tables:
        require_same_start(arguments.records, fields)
    return fields


def all_runs(arguments: argparse.Namespace, overrides: list[str]) -> int:
    """Runs every row of the paper with every seed, each in a process, `jobs` at a time.

    Returns:
      0, or the exit code of a run that failed or was stopped; later runs are then not started.
    """
    from table2_small.processes import run_processes
    from table2_small.records import is_recorded, metrics_file
    from table2_small.rows import in_order, run_folder

    edition = edition_of(arguments)

    def command(row: str, seed: int) -> list[str]:
        workdir = run_folder(arguments.home, row, seed)
        flags = [f"--row={row}", f"--seed={seed}", f"--workdir={workdir}", "--no-tables"]
        flags += [f"--data={arguments.data}", f"--records={arguments.records}"]
        flags += [f"--start={arguments.start}"] if arguments.start else []
        flags += [f"--tagger={arguments.tagger}"] if arguments.tagger else []
        return [sys.executable, __file__, *flags, *overrides]

    every = [(row, seed) for seed in range(arguments.seeds) for row in edition.default_rows]
    records = {run: metrics_file(arguments.records, *run) for run in every}
    missing = [run for run, kept in records.items() if not is_recorded(kept, overrides)]
    stop = runtime.start()
    for runs in in_order(missing, edition.rows):
        failed = run_processes([command(*run) for run in runs], arguments.jobs, stop)
        if failed or stop.is_set():
            return failed or exit_codes.STOPPED
    return 0


def edition_of(arguments: argparse.Namespace) -> "Edition":
    """The edition that the flags choose."""
    from table2_small.edition import FROM_NOTHING, from_start

    return from_start(arguments.tagger) if arguments.start else FROM_NOTHING


def base_config(home: Path, start: str | None, overrides: list[str]) -> ConfigDict:
    """The base config, with `--config.KEY=VALUE` of the command line; not locked."""
    base = get_config_from_start(str(home)) if start else get_config(str(home))
    pairs = (override.removeprefix("--config.").partition("=") for override in overrides)
    given = {key: value for key, _, value in pairs}
    for key, value in given.items():
        config_lib.set_key(base, key, value)
    if start:
        from realm_jax.interop.start_config import make_like
        from realm_jax.interop.warm_start import weights_folder
        from realm_jax.interop.weights import open_weights

        base.model.start = start
        make_like(base, open_weights(weights_folder(start)).sizes, given)
    return base


def one_run(arguments: argparse.Namespace, overrides: list[str]) -> None:
    """Runs one row with one seed and stores its metrics, unless they exist.

    With `--warm` only what the rows share: corpora, questions and the reader.
    """
    from table2_small.records import is_recorded, metrics_file, store
    from table2_small.rows import COPYING, READING

    row, seed, edition = arguments.row, arguments.seed, edition_of(arguments)
    if row and row not in edition.rows:
        sys.exit(f"no row {row!r}; rows: {', '.join(edition.rows)}")
    records = arguments.records
    kept = metrics_file(records, row, seed)
    if row and is_recorded(kept, overrides):
        return
    stop = runtime.start()
    workdir = arguments.workdir or arguments.home / f"{row}_{seed}"
    home = workdir.parent
    settings = {"start": arguments.start, "tagger": arguments.tagger, "overrides": overrides}
    require_same_settings(home, settings)

    def work() -> dict[str, Any]:
        base = base_config(home, arguments.start, overrides)
        edition.prepare(home, arguments.data, base, stop)
        if row:
            return edition.make_row(row, seed, workdir, base, stop)
        return {"reader": str(edition.teach_reader(home, base, stop))}

    began = time.monotonic()
    metrics = until_stopped(work)
    if row:
        store(kept, metrics, arguments.of_start, overrides, began)
    elif "exit_code" in metrics:
        sys.exit(metrics["exit_code"])
    records.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(home / "questions" / "counts.json", records / "counts.json")
    if not row:
        for name in (COPYING, READING):
            shutil.copyfile(home / name / "logs" / "reader.jsonl", records / f"{name}.jsonl")


def untrained(arguments: argparse.Namespace, overrides: list[str]) -> None:
    """Stores the recall of untrained retrievers, unless the record exists."""
    from evidence_runs.rows import UNTRAINED
    from table2_small.records import is_recorded, store
    from table2_small.run_from_start import prepare
    from table2_small.untrained import measure_untrained

    kept = arguments.records / UNTRAINED
    if is_recorded(kept, overrides):
        return
    stop = runtime.start()
    settings = {"start": arguments.start, "tagger": arguments.tagger, "overrides": overrides}
    require_same_settings(arguments.home, settings)

    def work() -> dict[str, Any]:
        base = base_config(arguments.home, arguments.start, overrides)
        prepare(arguments.home, arguments.data, base, stop, arguments.tagger)
        return measure_untrained(arguments.home, base, stop)

    began = time.monotonic()
    store(kept, until_stopped(work), arguments.of_start, overrides, began)


def write_evidence() -> None:
    """Writes the tables of the runs with --start, with those of `experiments/evidence.py`."""
    import evidence

    evidence.write_tables()


def write_tables() -> None:
    """Writes `table2.json` from the runs, then tables and plots from that file."""
    from table2_small.aggregate import aggregate
    from table2_small.plots import plots
    from table2_small.tables import with_tables

    summary = aggregate(RUNS)
    (RESULTS / "table2.json").write_text(json.dumps(summary, indent=1) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), summary))
    for name, drawing in plots(summary).items():
        (PAGE.parent / name).write_text(drawing)


if __name__ == "__main__":
    exit_with(main)
