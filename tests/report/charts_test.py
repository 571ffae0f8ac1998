"""Charts and scales: round ticks, coordinates inside the chart, no non-finite values."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from realm_jax.report import charts
from realm_jax.report.charts import Line, bar_chart, line_chart
from realm_jax.report.html import element, page
from realm_jax.report.predictions import choose_examples
from realm_jax.report.run_data import drop_repeated
from realm_jax.report.scale import scale, tick_text


@pytest.mark.parametrize(
    ("values", "zero", "ticks"),
    [
        ([0.1, 0.97], True, "0 0.2 0.4 0.6 0.8 1.0"),
        ([2.0, 4.7], True, "0 1 2 3 4 5"),
        ([100.0, 104.0], False, "100 101 102 103 104"),
        ([-1.0, 1.0], False, "-1.0 -0.5 0 0.5 1.0"),
        ([5.0, 5.0], False, "2 3 4 5 6 7 8"),
        ([0.0, 0.0], True, "0 0.2 0.4 0.6 0.8 1.0"),
        ([0.0, 200_000.0], False, "0 50k 100k 150k 200k"),
        ([0.0, 3e-5], True, "0 1e-05 2e-05 3e-05"),
        ([], False, "0 0.2 0.4 0.6 0.8 1.0"),
    ],
)
def test_ticks_are_round_and_cover_all_values(values, zero, ticks):
    axis = scale(values, 0.0, 100.0, count=5, zero=zero)
    assert " ".join(tick_text(tick, axis.ticks) for tick in axis.ticks) == ticks
    assert all(0 <= axis(value) <= 100 for value in values)


def check_coordinates(drawing, width, height):
    """Checks that all coordinates lie inside the chart."""
    for part in drawing.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert -1 <= float(part.get(name, 0)) <= width, part.attrib
        for name in ("y", "y1", "y2", "cy"):
            assert -1 <= float(part.get(name, 0)) <= height, part.attrib
        found = [float(n) for n in re.findall(r"-?[\d.]+", part.get("d", ""))]
        assert all(-1 <= number <= width for number in found)


@pytest.mark.parametrize(
    "points",
    [
        [(0.0, 1.0)],
        [(25.0, 3.0), (50.0, math.nan), (75.0, math.inf), (100.0, -2.0)],
        [(float(n), 1e6 * math.sin(n)) for n in range(5000)],
        [(0.0, 0.0), (1.0, 0.0)],
    ],
)
def test_lines_stay_inside_the_chart(points):
    figure = line_chart("t", "u", [Line("a", points, dots=True)], marks=[1.0], last=120.0)
    drawing = figure.find("svg")
    _, _, width, height = map(float, drawing.get("viewBox").split())
    check_coordinates(drawing, width, height)
    text = ElementTree.tostring(figure, encoding="unicode")
    assert "nan" not in text and "inf" not in text
    assert len(text) < 30_000


def test_a_long_line_is_drawn_with_means_of_neighbouring_points():
    points = [(float(n), float(n % 2)) for n in range(1000)]  # three of them make a point
    drawn = charts._downsample(points)
    assert len(drawn) == 334 and drawn[:2] == [(1.0, 1 / 3), (4.0, 2 / 3)]
    assert charts._downsample(points[:400]) == points[:400]


@pytest.mark.parametrize(("count", "drawn"), [(60, 60), (61, 0)])
def test_many_swaps_are_not_marked(count, drawn):
    line, steps = Line("a", [(0.0, 1.0), (99.0, 2.0)]), [float(n) for n in range(count)]
    figure = line_chart("t", "u", [line], marks=steps)
    marks = [part.get("class") for part in figure.iter("line")].count("swap")
    keys = ["new index" in (part.text or "") + (part.tail or "") for part in figure.iter()]
    assert (marks, any(keys)) == (drawn, drawn > 0)


def test_bars_stay_inside_the_chart():
    bars = [("a", 0.5, "50 %"), ("b", -2.0, "-2"), ("c", math.nan, "?"), ("d", 4.0, "4")]
    figure = bar_chart("t", "u", bars)
    _, _, width, height = map(float, figure.find("svg").get("viewBox").split())
    check_coordinates(figure.find("svg"), width, height)
    assert len(list(figure.iter("rect"))) == 3


def test_without_values_there_is_no_chart():
    assert line_chart("t", "u", [Line("a", []), Line("b", [(1.0, math.nan)])]) is None
    assert bar_chart("t", "u", []) is None


def test_characters_forbidden_in_html_are_replaced():
    document = page("t", "", [element("p", "a\x00b\ud800c\x1bd", title="\x07")]).decode()
    assert '<p title="�">a�b�c�d</p>' in document


def test_half_of_the_examples_are_failures_if_there_are_enough():
    right = np.array([True] * 90 + [False] * 10)
    assert [int(right[n]) for n in choose_examples(right, 10)] == [1] * 5 + [0] * 5
    assert sorted(choose_examples(right[:90], 4)) == [0, 30, 59, 89]
    assert len(choose_examples(right[:3], 10)) == 3
    few = right[88:]
    assert [int(few[n]) for n in choose_examples(few, 10)] == [1] * 2 + [0] * 8
    assert choose_examples(right[:0], 10) == []


def test_steps_that_a_resumed_run_repeats_are_counted_once():
    pairs = ((1, 1), (1, 2), (1, 3), (2, 2), (2, 4))
    records = [{"step": step, "process": process} for process, step in pairs]
    kept = [(record["process"], record["step"]) for record in drop_repeated(records)]
    assert kept == [(1, 1), (1, 2), (2, 2), (2, 4)]
