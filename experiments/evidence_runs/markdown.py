"""Markdown tables."""

from collections.abc import Sequence

NOT_RUN = "–"


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table; each line has as many cells as the head."""
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))
