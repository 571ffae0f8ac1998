"""Which segments of an index this host loads (`search.placement`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax.parallel import hosts
from realm_jax.retrieval.search_process import load_in_subprocess
from realm_jax.retrieval.searcher import Searcher
from realm_jax.retrieval.spread_searcher import is_of_other_host, load_spread

Placement = tuple[Callable[[Path, Any], Searcher], Callable[[str], bool]]


def is_spread(search: ConfigDict) -> bool:
    """Whether the hosts of this job load different segments; `search` is `config.search`."""
    return search.placement == "hosts" and search.kind != "mesh" and hosts.process_count() > 1


def placement(search: ConfigDict) -> Placement:
    """How to load a saved searcher, and which files of its folder need not be read.

    Args:
      search: `config.search`.
    """
    if is_spread(search):
        return load_spread, is_of_other_host
    return load_in_subprocess, lambda name: False
