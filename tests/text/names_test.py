"""Names from capitals: runs of capitalised words, joining words, sentence starts."""

import pytest

from realm_jax.text.names import name_spans


@pytest.mark.parametrize(
    ("sentence", "names"),
    [
        ("The Eiffel Tower is in Paris.", ["Eiffel Tower", "Paris"]),
        ("Paul Erdős met Ramón de la Sagra.", ["Paul Erdős", "Ramón de la Sagra"]),
        ("He sailed for the Republic of Ireland in May.", ["Republic of Ireland"]),
        ("Water is wet.", []),
        ('"Anarchism" is a word.', []),
        ("In Rousseau's view, Marx was right.", ["Rousseau", "Marx"]),
        ("Paris, France and the Bank of the west.", ["France", "Bank"]),
        ("", []),
        ("...", []),
    ],
)
def test_capitalised_names_are_found(sentence, names):
    assert [sentence[a:b] for a, b in name_spans(sentence)] == names
