"""Filling blanks: p(y|x) is a mixture over passages, the null passage first."""

import numpy as np
import pytest

from realm_jax.errors import InputError
from realm_jax.inference.fill_mask import MaskFiller

TEXT = "The Café in [MASK] is old."


@pytest.fixture(scope="module")
def filler(answerer):
    return MaskFiller(answerer)


@pytest.mark.parametrize("answer", [None, "ora", "1850", "é"])
def test_p_y_is_the_mixture_over_passages(filler, answer):
    filling = filler.fill(TEXT, answer)
    assert filling.passages[0].id == -1
    assert sum(p.p_z for p in filling.passages) == pytest.approx(1, abs=1e-5)
    mixed = sum(p.p_z * p.p_answer for p in filling.passages)
    assert filling.probability == pytest.approx(mixed, rel=1e-4)
    assert filling.without_retrieval == pytest.approx(filling.passages[0].p_answer, rel=1e-4)


def test_probabilities_of_one_token_answers_sum_to_at_most_one(filler):
    total = sum(filler.fill(TEXT, piece).probability for piece in "abcdefghij0123456789")
    assert 0 < total <= 1 + 1e-5


@pytest.fixture
def tries(filler, monkeypatch):
    """Width, mean log probability per token, and filling of each try."""
    tries = []
    filled = filler._filled

    def watched(text, answer, width):
        tries.append((width, *filled(text, answer, width)))
        return tries[-1][1:]

    monkeypatch.setattr(filler, "_filled", watched)
    return tries


def test_all_widths_are_tried_and_the_best_mean_log_probability_wins(filler, answerer, tries):
    filling = filler.fill(TEXT)
    assert [width for width, _, _ in tries] == list(range(1, answerer.config.lengths.masks + 1))
    for width, mean, tried in tries:
        assert mean == pytest.approx(np.log(tried.probability) / width, rel=1e-3)
    assert filling == max(tries, key=lambda t: t[1])[2]
    of_one_piece = tries[0][2].probability
    assert all(filler.fill(TEXT, c).probability <= of_one_piece * (1 + 1e-4) for c in "aeo190")


def test_only_widths_that_fit_the_row_are_tried(filler, answerer, tries):
    most = answerer.config.lengths.query - 2
    filler.fill("a " * (most - 2) + "[MASK]")
    assert [width for width, _, _ in tries] == [1, 2]
    with pytest.raises(InputError, match=rf"at most {most} [\s\S]*found: +{most + 1}\b"):
        filler.fill("a " * most + "[MASK]")


def test_the_probability_of_a_word_is_the_product_over_its_tokens(filler, answerer):
    """Computes p(y|x) of one candidate set directly: sum_z p(z|x) prod_j p(y_j|z, x)."""
    filling = filler.fill(TEXT, "ab")
    parts = np.array([[p.p_z, p.p_answer] for p in filling.passages])
    assert (parts >= 0).all()
    assert filling.probability == pytest.approx(float((parts[:, 0] * parts[:, 1]).sum()), rel=1e-4)
    assert filling.probability < filler.fill(TEXT, "a").probability


@pytest.mark.parametrize(
    ("text", "answer", "words"),
    [
        ("no blank", None, "one [MASK]"),
        ("[MASK] and [MASK]", None, "one [MASK]"),
        ("river " * 30 + "[MASK]", None, "too long"),
        (TEXT, "", "does not fit into the mask"),
        (TEXT, "abcdefghij", "does not fit into the mask"),
    ],
)
def test_invalid_blanks_are_refused(filler, text, answer, words):
    with pytest.raises(InputError, match=words.replace("[", r"\[")):
        filler.fill(text, answer)
