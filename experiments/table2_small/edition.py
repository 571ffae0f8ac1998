"""The two editions of the experiment: from random weights, and from an encoder."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from table2_small import run_from_start, run_row
from table2_small.rows import PAPER, ROWS, ROWS_FROM_START, Row

Stop = threading.Event


@dataclass(frozen=True)
class Edition:
    """What differs between the editions, besides the config.

    Attributes:
      rows: by name.
      default_rows: the rows of `--all`.
      prepare: writes the corpora and questions that all runs share, from their folder, the folder
        of the data, the base config and the stop signal.
      teach_reader: trains the reader that all runs share.
      make_row: runs a row and returns its metrics.
    """

    rows: Mapping[str, Row]
    default_rows: tuple[str, ...]
    prepare: Callable[[Path, Path, ConfigDict, Stop], None]
    teach_reader: Callable[[Path, ConfigDict, Stop], Path]
    make_row: Callable[[str, int, Path, ConfigDict, Stop], dict[str, Any]]


FROM_NOTHING = Edition(ROWS, PAPER, run_row.prepare, run_row.warm_reader, run_row.make_row)


def from_start(tagger: str) -> Edition:
    """The edition that starts from an encoder; `tagger`: see `run_from_start.prepare`."""
    return Edition(
        ROWS_FROM_START,
        tuple(ROWS_FROM_START),
        partial(run_from_start.prepare, tagger=tagger),
        run_from_start.taught_reader,
        run_from_start.make_row,
    )
