"""Tables and plots of the small Table 2 experiment equal those made from its runs."""

import json

import pytest
import table2
from table2_small import aggregate, plots, questions, tables

EXAMPLE = {"sentence": "in ___ is", "hidden": "oslo", "with": 0.5, "without": 0.001}


def test_the_committed_tables_and_plots_equal_the_scripts_output():
    made = aggregate.aggregate(table2.RUNS)
    assert json.loads((table2.RESULTS / "table2.json").read_text()) == made
    page = table2.PAGE.read_text()
    assert tables.with_tables(page, made) == page
    for name, drawing in plots.plots(made).items():
        assert (table2.PAGE.parent / name).read_text() == drawing


def a_run(row, seed, recall):
    return {
        "row": row,
        "seed": seed,
        **dict.fromkeys(aggregate.METRICS, 0.5),
        "recall_at_5": recall,
        "recall_of": {**dict.fromkeys(questions.EVALUATED, 0.25), "nq_dev": recall},
        "exact_match_of": {**dict.fromkeys(questions.ANSWERED, 0.125), "nq_dev": recall},
        "curve": [[50, 0.1], [100, 0.1 + seed]],
        "own_curve": [[50, 0.5]],
        "seconds": {"realm": 60.0, "qa": 30.0},
        "examples": {
            "sentences": 50,
            "much_likelier": 0.1,
            "much_rarer": 0.02,
            "rises": [dict(EXAMPLE, passage="Oslo | city")],
            "falls": [dict(EXAMPLE, passage="")],
        },
    }


def test_tables_and_plots_show_means_and_intervals_of_the_runs(tmp_path):
    for seed, recall in enumerate((0.1, 0.2, 0.3)):
        (tmp_path / f"realm_{seed}.json").write_text(json.dumps(a_run("realm", seed, recall)))
    for row, recall in (("ict_only", 0.05), ("random_span", 0.0)):
        (tmp_path / f"{row}_0.json").write_text(json.dumps(a_run(row, 0, recall)))
    read = {"read": 8757, "not_in_dev": 8757, "said": 2262}
    counts = {name: {**read, "kept": 1000} for name in questions.EVALUATED}
    counts["nq_dev"]["kept"] = 4000  # of 8000
    (tmp_path / "counts.json").write_text(json.dumps(counts))
    made = aggregate.aggregate(tmp_path)
    realm = made["rows"]["realm"]
    # computed by hand: mean 0.2, standard deviation 0.1, t(0.975, 2) = 4.3027
    assert realm["recall_at_5"]["mean"] == pytest.approx(0.2)
    assert realm["recall_at_5"]["high"] == pytest.approx(0.2 + 4.30265 * 0.1 / 3**0.5, abs=1e-5)
    assert realm["recall_at_5"]["seeds"] == [0.1, 0.2, 0.3]
    assert realm["curve"] == [[50, 0.1], [100, 1.1]]
    assert made["rows"]["ict_only"]["recall_at_5"]["low"] is None
    page = tables.with_tables("a\n<!-- table rows -->\nold\n<!-- end -->\nb", made)
    assert "| `realm` | 20.0 ± 24.8 | 38.5 |" in page and "old" not in page
    assert "| `stale_30x` | – | 15.1 | – | 28.7 | – | – | not run |" in page
    # 4,000 of 8,000 questions at 10, 20 and 30 %, the rest at 25 %: 17.5, 22.5 and 27.5 %
    assert realm["recall_of"]["all"]["seeds"] == pytest.approx([0.175, 0.225, 0.275])
    first = made["differences"][0]  # of the one seed that both have
    assert (first["row"], first["less"]) == ("realm", "ict_only")
    assert first["recall_of"]["nq_dev"]["seeds"] == pytest.approx([0.05])
    text = tables.tables(made)["differences"]
    zeros = " | ".join(["0.0"] * 4)
    same = "2.5 | 0.0 | 0.0 | 0.0 | 0.000"
    assert f"| `realm` − `ict_only` | 5.0 | {zeros} | {same} | 2.00 | 1.17 | 1 |" in text
    assert made["differences"][1]["times"]["nq_dev"] is None and "| 0.000 | – | 1.40 | 1 |" in text
    answers = tables.tables(made)["answers"]
    assert "| `ict_only` | 5.0 | 12.5 | 12.5 | 12.5 | 50.0 | 50.0 | 50.0 |" in answers
    text = tables.tables(made)["examples"]
    assert "| in ___ is | oslo | 5.0e-01 | 1.0e-03 | Oslo / city |" in text
    assert "likelier in 10.0%" in text and text.endswith("| none |")
    drawings = plots.plots(made)
    assert set(drawings) == {f"table2_{name}.svg" for name in ("utility", "own_recall", "rows")}
    assert all(drawing.startswith("<svg ") and "realm" in drawing for drawing in drawings.values())
    assert drawings["table2_rows.svg"].count('class="c0"') == 1 + 3 + 1 + 1  # key, seeds of rows
