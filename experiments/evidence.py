r"""Does REALM help an encoder that already knows language? Judged collections, no labels used.

Data:     one folder (--data) with an archive NAME.tar.xz, or a folder NAME, for each collection in
          evidence_runs/collections.py: corpus.jsonl, queries.jsonl and qrels.tsv in BEIR's form.
          Nothing is trained on queries or judgements
Command:  python experiments/evidence.py --all --data=DATA --home=runs/evidence \
              --start=sentence-transformers/all-MiniLM-L6-v2
          one record: python experiments/evidence.py --collection=trecqa --system=realm --seed=0 \
              --data=DATA --home=runs/evidence --start=...
          tables and plots of the finished records: python experiments/evidence.py --tables
          another recipe: add --config.KEY=VALUE or --rare-spans, and --label=NAME to keep its
          records apart
          another encoder: add --label=NAME and another --home; records of two encoders are refused
          in one folder
Hours:    docs/evidence.md has the minutes of each record; an interrupted command resumes
Expect:   docs/evidence.md
"""

import argparse
import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.cli.scripts import exit_with, parse_script, script_parser
from realm_jax.errors import InputError

SEEDS = 3
RESULTS = Path(__file__).parent / "results"
RECORDS = RESULTS / "evidence"  # COLLECTION.SYSTEM.SEED.json
ROWS = RESULTS / "table2_from_start"  # ROW_SEED.json, of experiments/table2.py --start=FOLDER
PAGES = [Path(__file__).parents[1] / "docs" / name for name in ("evidence.md", "results.md")]


def get_config() -> ConfigDict:
    """The runs that search whole documents; trained systems use the recipe `own_corpus`."""
    config = config_lib.from_file("as_is")
    config.lengths.update(query=256, passage=256, joint=512)
    config.report.max_passages = 0  # report.html does not embed the documents again
    return config


def main() -> int:
    """Measures systems on collections, and writes the tables of all finished records."""
    parser = script_parser(__doc__)
    parser.add_argument("--collection", action="append", help="may be repeated; default: all")
    parser.add_argument("--system", action="append", help="may be repeated; default: all")
    parser.add_argument("--seed", type=int, action="append", help=f"default: 0 to {SEEDS - 1}")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the archives")
    parser.add_argument("--home", type=Path, default=Path("runs/evidence"), help="folder of runs")
    parser.add_argument("--start", help="folder or ORG/NAME of the encoder")
    parser.add_argument(
        "--label", default="", help="name of another recipe or encoder; its table is not made"
    )
    rare = "hide only words in at least 2 and at most 1 %% of the passages"
    parser.add_argument("--rare-spans", action="store_true", help=rare)
    parser.add_argument("--records", type=Path, default=RECORDS, help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help="measure what has no record yet")
    parser.add_argument("--tables", action="store_true", help="only write tables and plots")
    arguments, overrides = parse_script(parser)
    if (overrides or arguments.rare_spans) and not arguments.label:
        parser.error("another recipe needs a --label: records without one are those of the tables")
    if arguments.all or arguments.system or arguments.collection:
        if not arguments.start:
            parser.error("--start is required")
        measure(arguments, overrides)
    elif not arguments.tables:
        parser.error("one of --all, --collection, --system and --tables is required")
    if arguments.records == RECORDS and not arguments.label:
        write_tables()
    return 0


def measure(arguments: argparse.Namespace, overrides: list[str]) -> None:
    """Writes every chosen record that is missing; systems that share a run share its commands."""
    from evidence_runs.collections import COLLECTIONS, unpack
    from evidence_runs.measure import Measurement
    from evidence_runs.systems import SYSTEMS, trained

    collections = arguments.collection or list(COLLECTIONS)
    systems = arguments.system or list(SYSTEMS)
    for kind, chosen, known in (
        ("collection", collections, COLLECTIONS),
        ("system", systems, SYSTEMS),
    ):
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise InputError(f"no such {kind}", expected=", ".join(known), found=unknown[0])
    seeds = arguments.seed or range(SEEDS)
    if 0 not in seeds and not any(map(trained, systems)):
        raise InputError(
            "systems without training do not differ between seeds",
            where="--seed",
            expected="0, the seed of their records",
            found=", ".join(map(str, seeds)),
            fix="leave out --seed, or give --system=realm or another trained one",
        )
    for seed in seeds:
        for collection in collections:
            folder = unpack(arguments.data, collection, arguments.home)
            for system in systems:
                if trained(system) or seed == 0:
                    Measurement(
                        folder,
                        system,
                        seed,
                        start=arguments.start,
                        home=arguments.home,
                        label=arguments.label,
                        overrides=overrides,
                        rare_spans=arguments.rare_spans,
                    ).write(arguments.records)


def summary() -> dict[str, Any]:
    """The content of evidence.json, from the records."""
    from evidence_runs.aggregate import aggregate
    from evidence_runs.recipes import aggregate_recipes
    from evidence_runs.rows import aggregate_rows
    from evidence_runs.rule import aggregate_rule

    other = {"recipes": aggregate_recipes(RECORDS), "rule": aggregate_rule(RECORDS)}
    return aggregate(RECORDS) | other | aggregate_rows(ROWS)


def write_tables() -> None:
    """Writes evidence.json from the records, then the pages and their plots from that file."""
    from evidence_runs.plots import plots
    from evidence_runs.tables import with_tables

    made = summary()
    (RESULTS / "evidence.json").write_text(json.dumps(made, indent=1) + "\n")
    for page in PAGES:
        page.write_text(with_tables(page.read_text(), made))
    for name, drawing in plots(made).items():
        (PAGES[0].parent / name).write_text(drawing)


if __name__ == "__main__":
    exit_with(main)
