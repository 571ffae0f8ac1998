"""Table 3 for a run: masked sentences for which retrieval raises or lowers p(y|x) most."""

from typing import Any

import numpy as np

from realm_jax.data.masked_text import MaskedText
from realm_jax.inference.answerer import Answerer
from realm_jax.report.predictions import Predictions, predict

MUCH = 100.0  # factor of p(y|x) from which a sentence counts as much likelier or rarer
SHOWN = 4  # examples of each kind


def examples(answerer: Answerer, text: MaskedText) -> dict[str, Any]:
    """Compares p(y|x) with p(y|null, x) of the same reader on masked sentences.

    Args:
      answerer: the model of a finished run.
      text: held-out sentences.

    Returns:
      `sentences`: their number; `much_likelier` and `much_rarer`: shares whose p(y|x) rises or
      falls by at least the factor `MUCH`; `rises`: examples, evenly spaced over the first kind;
      `falls`: the sentences with the largest decrease.
    """
    seen = predict(answerer, text)
    gained = seen.log_p - seen.log_p_y[:, 0]
    best_first = np.argsort(-gained, kind="stable")
    likelier = best_first[gained[best_first] >= np.log(MUCH)]
    places = np.linspace(0, max(len(likelier) - 1, 0), SHOWN).round().astype(int)
    rises = likelier[np.unique(places)] if len(likelier) else likelier
    falls = [n for n in best_first[::-1][:SHOWN] if gained[n] < 0]
    return {
        "sentences": len(gained),
        "much_likelier": float((gained >= np.log(MUCH)).mean()),
        "much_rarer": float((gained <= -np.log(MUCH)).mean()),
        "rises": [_example(answerer, text, seen, int(n)) for n in rises],
        "falls": [_example(answerer, text, seen, int(n)) for n in falls],
    }


def _example(
    answerer: Answerer, text: MaskedText, seen: Predictions, number: int
) -> dict[str, Any]:
    vocabulary, used = answerer.store.vocabulary, text.weights[number] > 0
    ids = text.queries.ids[number][text.queries.mask[number]][1:-1]
    places = text.positions[number][used] - 1
    before, after = vocabulary.decode(ids[: places[0]]), vocabulary.decode(ids[places[-1] + 1 :])
    likeliest = int(seen.candidates[number, seen.log_p_z[number].argmax()])
    return {
        "sentence": f"{before} ___ {after}".strip(),
        "hidden": vocabulary.decode(text.targets[number][used]),
        "with": float(np.exp(seen.log_p[number])),
        "without": float(np.exp(seen.log_p_y[number, 0])),
        "passage": answerer.store.title(likeliest) if likeliest >= 0 else "",
    }
