r"""The rows of Table 2 with a small model on a sample of Wikipedia, on two CPU cores.

Data:     one folder (--data) with a Wikipedia sample (7,156 articles), CoNLL-2003, BERT's
          vocabulary, and the questions of NQ, WebQuestions, CuratedTREC and SQuAD; docs/results.md
          states which parts are used and by which rule
Command:  python experiments/table2.py --all --data=DATA --home=runs/table2
          one run: python experiments/table2.py --row=realm --seed=0 \
              --workdir=runs/table2/realm_0 --data=DATA
          tables and plots of the finished runs: python experiments/table2.py --tables
          other sizes: add --config.KEY=VALUE to any of them
Hours:    docs/results.md has the minutes of each row; an interrupted command resumes
Expect:   docs/results.md, next to the numbers of the paper
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli import exit_codes
from realm_jax.cli.jobs import until_stopped
from realm_jax.cli.launching import check_overrides
from realm_jax.errors import InputError, RealmError
from realm_jax.tagging.small_tagger import tagger_config

SEEDS = 3
RESULTS = Path(__file__).parent / "results"
RUNS = RESULTS / "table2"  # ROW_SEED.json of every run, and counts.json of the questions
PAGE = Path(__file__).parents[1] / "docs" / "results_tables.md"


def get_config(home: str = "runs/table2") -> ConfigDict:
    """The config of row `realm`; table2_small/rows.py lists what other rows change."""
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


def main() -> None:
    """Runs rows, and writes the tables of all finished runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", help="name of a row in table2_small/rows.py")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workdir", type=Path, help="folder of the run; default: HOME/ROW_SEED")
    parser.add_argument("--home", type=Path, default=Path("runs/table2"), help="folder of all runs")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data files")
    parser.add_argument(
        "--all", action="store_true", help="run all rows of the paper with every seed"
    )
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help=f"number of seeds of --all; default: {SEEDS}"
    )
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs of --all; default: 1")
    parser.add_argument("--tables", action="store_true", help="only write tables and plots")
    parser.add_argument("--no-tables", action="store_true", help="do not write tables and plots")
    arguments, overrides = parser.parse_known_args()
    try:
        check_overrides(overrides)
    except InputError as error:
        parser.error(str(error))
    failed = 0
    if arguments.all:
        failed = all_runs(arguments, overrides)
    elif arguments.row:
        workdir = arguments.workdir or arguments.home / f"{arguments.row}_{arguments.seed}"
        try:
            one_run(arguments.row, arguments.seed, workdir, arguments.data, overrides)
        except RealmError as error:
            sys.exit(str(error))
    elif not arguments.tables:
        parser.error("one of --row, --all and --tables is required")
    if not arguments.no_tables:
        write_tables()
    sys.exit(failed)


def all_runs(arguments: argparse.Namespace, overrides: list[str]) -> int:
    """Runs every row of the paper with every seed, each in a process, `jobs` at a time.

    Returns:
      0, or the exit code of a run that failed or was stopped; later runs are then not started.
    """
    from table2_small.processes import run_processes
    from table2_small.rows import PAPER, in_order, run_folder

    def command(row: str, seed: int) -> list[str]:
        workdir = run_folder(arguments.home, row, seed)
        flags = [f"--row={row}", f"--seed={seed}", f"--workdir={workdir}", "--no-tables"]
        return [sys.executable, __file__, *flags, f"--data={arguments.data}", *overrides]

    every = [(row, seed) for seed in range(arguments.seeds) for row in PAPER]
    stop = runtime.start()
    for runs in in_order([run for run in every if not metrics_file(*run).exists()]):
        failed = run_processes([command(*run) for run in runs], arguments.jobs, stop)
        if failed or stop.is_set():
            return failed or exit_codes.STOPPED
    return 0


def one_run(row: str, seed: int, workdir: Path, data: Path, overrides: list[str]) -> None:
    """Runs one row with one seed and stores its metrics, unless they exist."""
    from table2_small.rows import ROWS
    from table2_small.run_row import make_row, prepare

    if row not in ROWS:
        sys.exit(f"no row {row!r}; rows: {', '.join(ROWS)}")
    kept = metrics_file(row, seed)
    if kept.exists():
        if json.loads(kept.read_text())["overrides"] != overrides:
            sys.exit(f"{kept} is from a run with other overrides; delete it, or use the same")
        return
    stop = runtime.start()
    home = workdir.parent

    def work() -> dict[str, Any]:
        base = get_config(str(home))
        for override in overrides:
            key, _, value = override.removeprefix("--config.").partition("=")
            config_lib.set_key(base, key, value)
        prepare(home, data, base, stop)
        return make_row(row, seed, workdir, base, stop)

    metrics = until_stopped(work)
    if "exit_code" in metrics:
        sys.exit(metrics["exit_code"])
    RUNS.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(home / "questions" / "counts.json", RUNS / "counts.json")
    kept.write_text(json.dumps({**metrics, "overrides": overrides}) + "\n")


def metrics_file(row: str, seed: int) -> Path:
    """The file with the metrics of a run."""
    return RUNS / f"{row}_{seed}.json"


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
    main()
