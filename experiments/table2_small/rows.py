"""The rows of Table 2 in miniature, and some more: what each changes of `realm`."""

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
# What the reader learns before all runs, in this order: language and copying; names and dates.
COPYING, READING = "warm_copying", "warm_reader"


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
      changes: dotted keys of the config and their values, where they differ from `realm`.
      times: dotted keys and what they are multiplied by.
      folders: dotted keys and the folders under the home of all runs that they name.
      embedder_of: the run of the reader whose encoder ICT starts from, by its name.
      retriever_of: the row whose pre-trained run is taken; "" is its own.
      reader_of: the row whose reader fine-tuning starts from; "" is its own.
    """

    changes: dict[str, Any] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    embedder_of: str = READING
    retriever_of: str = ""
    reader_of: str = ""


_ICT_ONLY = {"stages.realm.steps": 1, "stages.realm.learning_rate": 0.0}
# As many rows of the reader a step as `realm`, of a quarter of the queries.
_CANDIDATES_16 = {
    "retrieval.candidates": 16,
    "stages.realm.batch": 8,
    "stages.realm.learning_rate": 1e-4,
    "stages.realm.evaluate_every": 120,
    "refresh.every": 60,
}
# As much as BERT and SpanBERT hide, so that spans are longer than the word or two of a name.
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
    "ict_longest": Row(_ICT_ONLY, times={"stages.ict.steps": 16}),  # as much time as `realm` takes
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


def row_config(base: ConfigDict, name: str, seed: int, home: Path) -> ConfigDict:
    """The config of a row: `base`, which is that of `realm`, with the row's changes; not locked.

    Raises:
      KeyError: no such row, or a row that names a key which configs have not.
    """
    row = ROWS[name]
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


def in_order(runs: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """Runs, as (row, seed), in groups of which none makes what another one of its group makes.

    The first makes what all share, the first of each seed what its rows share; mixed rows come
    last, for they take two others.
    """
    runs = sorted(runs, key=lambda run: bool(ROWS[run[0]].retriever_of))
    firsts = list({seed: (row, seed) for row, seed in reversed(runs)}.values())[::-1]
    rest = [run for run in runs if run not in firsts]
    plain = [run for run in rest if not ROWS[run[0]].retriever_of]
    mixed = [run for run in rest if ROWS[run[0]].retriever_of]
    return [group for group in (firsts[:1], firsts[1:], plain, mixed) if group]


def run_folder(home: Path, name: str, seed: int) -> Path:
    """Where the run of a row lies."""
    return home / f"{name}_{seed}"


def _owner(config: ConfigDict, key: str) -> tuple[ConfigDict, str]:
    *parents, leaf = key.split(".")
    for name in parents:
        config = config[name]
    if leaf not in config:
        raise KeyError(key)
    return config, leaf
