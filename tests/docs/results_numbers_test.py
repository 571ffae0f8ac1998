"""Hand-written summary tables agree with the generated tables and with evidence.json."""

import json
import re

import documented_commands as documented

MEASURES, SETS = ("recall_at_5", "exact_match"), ("nq_dev", "triviaqa_dev")
VALUE = re.compile(r"-?\d+\.\d+(?: ± \d+\.\d+)?")


def values_by_row(page):
    """Row name -> the values of all table lines that start with or name that row."""
    found = {}
    for line in (documented.ROOT / page).read_text().splitlines():
        name = re.search(r"`(\w+)`", line)
        if line.startswith("|") and name and "−" not in line:
            found.setdefault(name[1], set()).update(VALUE.findall(line.replace("*", "")))
    return found


def test_summary_values_are_in_the_generated_tables():
    generated = values_by_row("docs/results_tables.md")
    found = values_by_row("docs/results_random_weights.md")
    shown = {name: values for name, values in found.items() if name in generated}
    assert {"realm", "ict_only", "stale_30x"} <= shown.keys()
    for name in ("realm", "ict_only", "stale_30x"):
        with_interval = {value for value in shown[name] if "±" in value}
        assert with_interval and with_interval <= generated[name], name


def test_rows_from_an_encoder_in_the_readme_are_those_of_the_records():
    evidence = documented.ROOT / "experiments" / "results" / "evidence.json"
    rows = json.loads(evidence.read_text())["rows"]
    shown = 0
    for line in (documented.ROOT / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = re.search(r"`(\w+)`", cells[0])
        if line.startswith("|") and name:
            own = rows[name[1]]
            figures = [own[measure][one] for measure in MEASURES for one in SETS]
            assert cells[1:5] == [f"{100 * figure['mean']:.1f}" for figure in figures], line
            assert int(cells[5]) == len(figures[0]["seeds"])
            shown += 1
    assert shown == 6
