"""Held-out examples on the page: Table 3 of the paper, for one's own run."""

import unicodedata
from typing import Any

import numpy as np

from realm_jax.data.masked_text import MaskedText
from realm_jax.inference.answerer import Answerer
from realm_jax.report.html import Element, element, table
from realm_jax.report.predictions import Examined, chosen_examples, is_right

_PASSAGES = 3  # shown of each example, the null passage apart
_AROUND = 110  # characters of a passage shown on both sides of the answer


def examples_section(
    answerer: Answerer, text: MaskedText, seen: Examined, count: int
) -> list[Element]:
    """Some successes and as many failures, each with its passages and probabilities."""
    right = is_right(text, seen.said)
    shown = [_example(answerer, text, seen, number) for number in chosen_examples(right, count)]
    helped = float((seen.log_p > seen.log_p_y[:, 0]).mean())
    said = (
        f"Of {len(right)} held-out sentences, {int(right.sum())} blanks are filled with exactly "
        f"the hidden words; retrieval makes these words likelier in {helped:.0%}. Shown are "
        "successes and failures, half of each where there are enough, evenly drawn. p(y|x) is the "
        "probability of all the hidden words together."
    )
    return [element("p", said, class_="quiet"), element("div", shown, class_="examples")]


def _example(answerer: Answerer, text: MaskedText, seen: Examined, number: int) -> Element:
    words = answerer.store.vocabulary
    used = text.weights[number] > 0
    hidden = words.decode(text.targets[number][used])
    right = bool(is_right(text, seen.said)[number])
    said, alone = (words.decode(part[number][used]) for part in (seen.said, seen.alone))
    with_z, without = float(np.exp(seen.log_p[number])), float(np.exp(seen.log_p_y[number, 0]))
    badge = ("badge good", "right") if right else ("badge bad", "wrong")
    figures = [
        ("with retrieval", probability(with_z), said),
        ("without retrieval", probability(without), alone),
    ]
    return element(
        "article",
        element("h3", _sentence(answerer, text, number, hidden)),
        element("p", element("span", badge[1], class_=badge[0]), class_="quiet"),
        table(("", "p(y|x)", "it says"), figures, numbers=(1,)),
        _passages(answerer, text, seen, number, hidden),
        _missing(text, seen, number),
        class_="example",
    )


def _sentence(answerer: Answerer, text: MaskedText, number: int, hidden: str) -> list[Any]:
    """The sentence with what was hidden put back in and marked; several blanks stay blanks."""
    words, queries = answerer.store.vocabulary, text.queries
    ids = queries.ids[number][queries.mask[number]][1:-1]
    places = text.positions[number][text.weights[number] > 0] - 1
    if np.array_equal(places, np.arange(places[0], places[0] + len(places))):
        before, after = ids[: places[0]], ids[places[-1] + 1 :]
        blank = element("span", hidden, class_="blank")
        tail = words.decode(after)
        return [words.decode(before), " ", blank, "" if tail[:1] in ".,;:?!)" else " ", tail]
    return [words.decode(ids), " ", element("span", hidden, class_="blank")]


def _passages(
    answerer: Answerer, text: MaskedText, seen: Examined, number: int, hidden: str
) -> Element:
    """The likeliest passages, and the null passage, by p(z|x)."""
    order = np.argsort(-seen.log_p_z[number], kind="stable")
    real = [k for k in order if k > 0 and seen.valid[number, k]][:_PASSAGES]
    rows = []
    for k in [*real, *([0] if seen.valid[number, 0] else [])]:
        p_z = float(np.exp(seen.log_p_z[number, k]))
        p_y = probability(float(np.exp(seen.log_p_y[number, k])))
        passage = int(seen.chosen[number, k])
        known = passage >= 0 and passage == int(text.evidence[number])
        rows.append((_share(p_z), p_y, _quoted(answerer, passage, hidden, known=known)))
    return table(("p(z|x)", "p(y|z,x)", "passage"), rows, numbers=(1,))


def _missing(text: MaskedText, seen: Examined, number: int) -> Element | None:
    """Says when the passage that states the hidden words was not retrieved at all."""
    known = text.evidence[number]
    if known < 0 or known in seen.chosen[number]:
        return None
    among = f"the {seen.chosen.shape[1] - 1} passages retrieved"
    return element("p", f"The passage that states it is not among {among}.", class_="note")


def _share(p_z: float) -> list[Element | str]:
    bar = element("div", element("i", style=f"width:{p_z:.1%}"), class_="share")
    return [probability(p_z), bar]


def _quoted(answerer: Answerer, passage: int, hidden: str, *, known: bool) -> list[Any]:
    if passage < 0:
        return [element("span", "no passage", class_="quiet")]
    title, body = answerer.store.title(passage), answerer.store.body(passage)
    head = [element("b", title), " "] if title else []
    badge = [element("span", "states it", class_="badge good"), " "] if known else []
    at = _plain(body).find(_plain(hidden))
    if at < 0 or not hidden:
        return [*head, *badge, body[: 2 * _AROUND], "…" if len(body) > 2 * _AROUND else ""]
    first, last = max(at - _AROUND, 0), at + len(hidden) + _AROUND
    found = element("mark", body[at : at + len(hidden)])
    before, after = body[first:at], body[at + len(hidden) : last]
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
    """Lower case without accents, as the model reads it, character by character."""
    return "".join(unicodedata.normalize("NFD", char)[0].lower()[:1] for char in text)


def probability(p: float) -> str:
    """Three digits where they say something, a power of ten below."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"
