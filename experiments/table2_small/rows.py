"""The rows of the small Table 2, and more rows: what each changes in the base config.

The base config is `table2.get_config` (row `realm`) or `get_config_from_start` (`stated_names`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

PAPER = (
    "realm",
    "retriever_only",
    "encoder_only",
    "ict_only",
    "random_token",
    "random_span",
    "stale_30x",
)
# Warm starts of the reader that all runs share, in this order: copying; names and dates.
COPYING, READING = "warm_copying", "warm_reader"


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
      changes: dotted config key -> value that differs from the base config.
      times: dotted config key -> factor.
      folders: dotted config key -> folder name under the home of all runs.
      embedder_of: name of the warm start whose encoder ICT starts from; not used with --start.
      retriever_of: row whose pre-trained run is used; "": this row.
      reader_of: row whose reader fine-tuning starts from; "": this row.
    """

    changes: dict[str, Any] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    embedder_of: str = READING
    retriever_of: str = ""
    reader_of: str = ""


_ICT_ONLY = {"stages.realm.steps": 1, "stages.realm.learning_rate": 0.0}
# As many reader rows per step as `realm`, from a quarter of the queries.
_CANDIDATES_16 = {
    "retrieval.candidates": 16,
    "stages.realm.batch": 8,
    "stages.realm.learning_rate": 1e-4,
    "stages.realm.evaluate_every": 120,
    "refresh.every": 60,
}
# The masking rate of BERT and SpanBERT; spans are then longer than one or two words.
_MORE = {"masking.rate": 0.15, "lengths.masks": 6}
ROWS = {
    "realm": Row(),
    "retriever_only": Row(retriever_of="realm", reader_of="ict_only"),
    "encoder_only": Row(_ICT_ONLY, retriever_of="ict_only", reader_of="realm"),
    "ict_only": Row(_ICT_ONLY),
    "random_token": Row({"masking.scheme": "random_token"}),
    "random_span": Row({"masking.scheme": "random_span"}),
    "stale_30x": Row(times={"refresh.every": 30}),
    "ict_longer": Row(_ICT_ONLY, times={"stages.ict.steps": 4}),
    "ict_longest": Row(_ICT_ONLY, times={"stages.ict.steps": 16}),  # takes as long as `realm`
    "realm_after_longer": Row(times={"stages.ict.steps": 4}),
    "news": Row(folders={"corpus.pretraining": "news", "corpus.spans": "news_spans"}),
    "released_marginal": Row({"stages.realm.marginal": "released"}),
    "pdist": Row({"stages.realm.retriever_loss": "pdist"}),
    "fresh_queries": Row({"retrieval.search_with": "fresh", "search.kind": "mesh"}),
    "rerank_64": Row({"retrieval.rerank": 64}),
    "no_null": Row({"retrieval.null_passage": False}),
    "candidates_8": Row({"retrieval.candidates": 8}),
    "candidates_16": Row(_CANDIDATES_16),
    "random_token_16": Row({**_CANDIDATES_16, "masking.scheme": "random_token"}),
    "random_span_16": Row({**_CANDIDATES_16, "masking.scheme": "random_span"}),
    "random_token_more": Row({**_CANDIDATES_16, **_MORE, "masking.scheme": "random_token"}),
    "random_span_more": Row({**_CANDIDATES_16, **_MORE, "masking.scheme": "random_span"}),
    "float32": Row({"model.compute": "float32"}),
    "ict_before_reading": Row(_ICT_ONLY, times={"stages.ict.steps": 16}, embedder_of=COPYING),
    "realm_before_reading": Row(
        _CANDIDATES_16,
        times={"stages.ict.steps": 16, "stages.realm.steps": 2},
        embedder_of=COPYING,
    ),
    "realm_longer_before_reading": Row(
        _CANDIDATES_16,
        times={"stages.ict.steps": 16, "stages.realm.steps": 4},
        embedder_of=COPYING,
    ),
}
# Rows of the edition that starts from an encoder. The embedder of `realm` needs no ICT.
_DRAWS = {"stages.realm.draws": 8}  # of eight sentences, the first that a candidate answers
_NAMES = {"corpus.spans": "name_spans"}  # any name or date of X; else those that Z states
_ICT_FROM_START = {"stages.ict.steps": 300, **_ICT_ONLY}
# Reads what BM25 ranks first; the passages' share in an answer is the embedder's, as in all rows.
_BM25 = {"stages.qa.retriever": "bm25", "stages.qa.retriever_passages": 5}
ROWS_FROM_START = {
    "realm": Row(_DRAWS, folders=_NAMES),
    "retriever_only": Row(retriever_of="realm", reader_of="ict_only"),
    "encoder_only": Row(retriever_of="ict_only", reader_of="realm"),
    "ict_only": Row(_ICT_FROM_START),
    "random_token": Row({**_DRAWS, "masking.scheme": "random_token"}, folders=_NAMES),
    "random_span": Row({**_DRAWS, "masking.scheme": "random_span"}, folders=_NAMES),
    "stale_30x": Row(_DRAWS, times={"refresh.every": 30}, folders=_NAMES),
    "bm25": Row(_BM25, retriever_of="start", reader_of="start"),
    "start": Row(_ICT_ONLY),
    "all_names": Row(folders=_NAMES),
    "stated_names": Row(),
    "stated_names_stale": Row(times={"refresh.every": 30}),
    "stated_random_span": Row({"masking.scheme": "random_span"}),
}


def row_config(base: ConfigDict, row: Row, seed: int, home: Path) -> ConfigDict:
    """The config of a row: the base config with the row's changes; not locked.

    Raises:
      KeyError: a row with an unknown config key.
    """
    config = ConfigDict(base.to_dict())
    config.seed = seed
    folders = {key: str(home / folder) for key, folder in row.folders.items()}
    for key, value in {**row.changes, **folders}.items():
        owner, leaf = _owner(config, key)
        owner[leaf] = value
    for key, factor in row.times.items():
        owner, leaf = _owner(config, key)
        owner[leaf] = owner[leaf] * factor
    if row.reader_of:
        config.stages.qa.reader_from = str(run_folder(home, row.reader_of, seed))
    return config


def in_order(runs: list[tuple[str, int]], rows: Mapping[str, Row]) -> list[list[tuple[str, int]]]:
    """Groups runs (row, seed) so that the runs of a group can be executed in parallel.

    The first group has one run, which writes the corpora and warm starts of all runs. The second
    has the first run of every other seed. Rows that combine two other rows come last.
    """
    runs = sorted(runs, key=lambda run: bool(rows[run[0]].retriever_of))
    firsts = list({seed: (row, seed) for row, seed in reversed(runs)}.values())[::-1]
    rest = [run for run in runs if run not in firsts]
    plain = [run for run in rest if not rows[run[0]].retriever_of]
    mixed = [run for run in rest if rows[run[0]].retriever_of]
    return [group for group in (firsts[:1], firsts[1:], plain, mixed) if group]


def run_folder(home: Path, name: str, seed: int) -> Path:
    """The folder of a run."""
    return home / f"{name}_{seed}"


def _owner(config: ConfigDict, key: str) -> tuple[ConfigDict, str]:
    *parents, leaf = key.split(".")
    for name in parents:
        config = config[name]
    if leaf not in config:
        raise KeyError(key)
    return config, leaf
