"""Quantities: numbers with units."""

import time

import pytest

from realm_jax.text.quantities import quantity_spans


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a plate of 3.5 mm and 2-mm holes", ["3.5 mm", "2-mm"]),
        ("between 200 and 300 psi at 1,200 rpm", ["300 psi", "1,200 rpm"]),
        ("200–300 °C or 5 to 7 hours", ["200–300 °C", "5 to 7 hours"]),
        ("cost $4.2 million, then €30", ["$4.2 million", "€30"]),
        ("it rose 12 % and then 7.5%", ["12 %", "7.5%"]),
        ("a 60 W lamp, 12 V", ["60 W", "12 V"]),
        ("9.8 m/s in 0.5 seconds", ["9.8 m/s", "0.5 seconds"]),
        ("1990s, 5s, 747s, version 2.0", []),
        ("mach 2, figure 3, in 1999", []),
        ("A4 B52 x100 mm3", []),
        ("10 metering pumps", []),
    ],
)
def test_quantities_of_a_sentence(text, found):
    assert [text[a:b] for a, b in quantity_spans(text)] == found


@pytest.mark.parametrize("text", ["1," * 50_000, "1" * 100_000, "1 - " * 25_000, "$ " * 50_000])
def test_time_is_linear_in_the_text(text):
    began = time.process_time()
    quantity_spans(text)
    assert time.process_time() - began < 5
