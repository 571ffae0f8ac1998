"""Puts generated tables into a page."""

import re
from collections.abc import Mapping
from functools import partial


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """The page with new content between each `<!-- table NAME -->` and `<!-- end -->`."""
    for name, content in tables.items():
        between = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = between.sub(partial(_filled, content), page)
    return page


def _filled(content: str, found: re.Match[str]) -> str:
    return f"{found[1]}\n{content}\n\n{found[2]}"
