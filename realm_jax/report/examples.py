"""Held-out examples on the report page: Table 3 of the REALM paper for this run."""

import unicodedata
from typing import Any

import numpy as np

from realm_jax.data.masked_text import MaskedText
from realm_jax.inference.answerer import Answerer
from realm_jax.report.html import Element, element, table
from realm_jax.report.predictions import Predictions, choose_examples, is_right

_PASSAGES = 3  # passages per example, besides the null passage
_CONTEXT = 110  # characters of a passage on each side of the answer


def examples_section(
    answerer: Answerer, text: MaskedText, predictions: Predictions, count: int
) -> list[Element]:
    """Successes and failures, half of each where possible, with passages and probabilities."""
    right = is_right(text, predictions.predicted)
    examples = [
        _example(answerer, text, predictions, number) for number in choose_examples(right, count)
    ]
    helped = float((predictions.log_p > predictions.log_p_y[:, 0]).mean())
    summary = (
        f"The model fills {int(right.sum())} of {len(right)} held-out sentences with exactly the "
        f"masked words. In {helped:.0%} of the sentences, retrieval makes the masked words more "
        "probable. Below are successes and failures, half of each where possible. p(y|x) is the "
        "probability of all masked words of a sentence together."
    )
    return [element("p", summary, class_="quiet"), element("div", examples, class_="examples")]


def _example(
    answerer: Answerer, text: MaskedText, predictions: Predictions, number: int
) -> Element:
    vocabulary = answerer.store.vocabulary
    used = text.weights[number] > 0
    masked = vocabulary.decode(text.targets[number][used])
    right = bool(is_right(text, predictions.predicted)[number])
    with_retrieval = vocabulary.decode(predictions.predicted[number][used])
    without_retrieval = vocabulary.decode(predictions.predicted_without_retrieval[number][used])
    p_with, p_without = np.exp(predictions.log_p[number]), np.exp(predictions.log_p_y[number, 0])
    badge = ("badge good", "right") if right else ("badge bad", "wrong")
    rows = [
        ("with retrieval", probability(float(p_with)), with_retrieval),
        ("without retrieval", probability(float(p_without)), without_retrieval),
    ]
    return element(
        "article",
        element("h3", _sentence(answerer, text, number, masked)),
        element("p", element("span", badge[1], class_=badge[0]), class_="quiet"),
        table(("", "p(y|x)", "prediction"), rows, numbers=(1,)),
        _passages(answerer, text, predictions, number, masked),
        _missing(text, predictions, number),
        class_="example",
    )


def _sentence(answerer: Answerer, text: MaskedText, number: int, masked: str) -> list[Any]:
    """The sentence with the masked words marked; if they are apart, they follow the sentence."""
    vocabulary, queries = answerer.store.vocabulary, text.queries
    ids = queries.ids[number][queries.mask[number]][1:-1]
    positions = text.positions[number][text.weights[number] > 0] - 1
    if np.array_equal(positions, np.arange(positions[0], positions[0] + len(positions))):
        before, after = ids[: positions[0]], ids[positions[-1] + 1 :]
        blank = element("span", masked, class_="blank")
        tail = vocabulary.decode(after)
        return [vocabulary.decode(before), " ", blank, "" if tail[:1] in ".,;:?!)" else " ", tail]
    return [vocabulary.decode(ids), " ", element("span", masked, class_="blank")]


def _passages(
    answerer: Answerer, text: MaskedText, predictions: Predictions, number: int, masked: str
) -> Element:
    """A table of the passages with the largest p(z|x), and the null passage."""
    order = np.argsort(-predictions.log_p_z[number], kind="stable")
    real = [k for k in order if k > 0 and predictions.valid[number, k]][:_PASSAGES]
    rows = []
    for k in [*real, *([0] if predictions.valid[number, 0] else [])]:
        p_z = float(np.exp(predictions.log_p_z[number, k]))
        p_y = probability(float(np.exp(predictions.log_p_y[number, k])))
        passage = int(predictions.candidates[number, k])
        known = passage >= 0 and passage == int(text.evidence[number])
        rows.append((_share(p_z), p_y, _excerpt(answerer, passage, masked, known=known)))
    return table(("p(z|x)", "p(y|z,x)", "passage"), rows, numbers=(1,))


def _missing(text: MaskedText, predictions: Predictions, number: int) -> Element | None:
    """A note if the passage that contains the masked words was not retrieved."""
    known = text.evidence[number]
    if known < 0 or known in predictions.candidates[number]:
        return None
    count = predictions.candidates.shape[1] - 1
    note = f"The passage with the answer is not among the {count} retrieved passages."
    return element("p", note, class_="note")


def _share(p_z: float) -> list[Element | str]:
    bar = element("div", element("i", style=f"width:{p_z:.1%}"), class_="share")
    return [probability(p_z), bar]


def _excerpt(answerer: Answerer, passage: int, masked: str, *, known: bool) -> list[Any]:
    if passage < 0:
        return [element("span", "no passage", class_="quiet")]
    title, body = answerer.store.title(passage), answerer.store.body(passage)
    head = [element("b", title), " "] if title else []
    badge = [element("span", "has the answer", class_="badge good"), " "] if known else []
    at = _plain(body).find(_plain(masked))
    if at < 0 or not masked:
        return [*head, *badge, body[: 2 * _CONTEXT], "…" if len(body) > 2 * _CONTEXT else ""]
    first, last = max(at - _CONTEXT, 0), at + len(masked) + _CONTEXT
    found = element("mark", body[at : at + len(masked)])
    before, after = body[first:at], body[at + len(masked) : last]
    return [
        *head,
        *badge,
        "…" if first else "",
        before,
        found,
        after,
        "…" if last < len(body) else "",
    ]


def _plain(text: str) -> str:
    """Lower case without accents, as in BERT uncased; keeps the number of characters."""
    return "".join(unicodedata.normalize("NFD", char)[0].lower()[:1] for char in text)


def probability(p: float) -> str:
    """Formats a probability with three digits; below 0.001 in scientific notation."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"
