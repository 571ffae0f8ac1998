"""The hand-written summary tables agree with the generated tables in docs/results_tables.md."""

import re

import documented_commands as documented
import pytest

VALUE = re.compile(r"-?\d+\.\d+(?: ± \d+\.\d+)?")


def values_by_row(page):
    """Row name -> the values of all table lines that start with or name that row."""
    found = {}
    for line in (documented.ROOT / page).read_text().splitlines():
        name = re.search(r"`(\w+)`", line)
        if line.startswith("|") and name and "−" not in line:
            found.setdefault(name[1], set()).update(VALUE.findall(line.replace("*", "")))
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_summary_values_are_in_the_generated_tables(page):
    generated = values_by_row("docs/results_tables.md")
    shown = {name: values for name, values in values_by_row(page).items() if name in generated}
    assert {"realm", "ict_only", "stale_30x"} <= shown.keys()
    for name in ("realm", "ict_only", "stale_30x"):
        with_interval = {value for value in shown[name] if "±" in value}
        assert with_interval and with_interval <= generated[name], name
