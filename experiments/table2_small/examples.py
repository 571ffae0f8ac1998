"""Table 3 for a run: sentences that retrieval makes much likelier, and some that it makes rarer."""

from typing import Any

import numpy as np

from realm_jax.data.masked_text import MaskedText
from realm_jax.inference.answerer import Answerer
from realm_jax.report.predictions import Predictions, predict

MUCH = 100.0  # the factor by which p(y|x) rises in the examples of the paper
SHOWN = 4  # of either kind


def examples(answerer: Answerer, text: MaskedText) -> dict[str, Any]:
    """What retrieval does to p(y|x) of masked sentences, beside the same encoder without it.

    Args:
      answerer: of a finished run.
      text: sentences that were not trained on.

    Returns:
      `sentences`; `much_likelier`: the share of them whose p(y|x) rises by a factor of `MUCH` at
      least, and `much_rarer`: falls so; `rises`: evenly drawn from the first kind, and `falls`: the
      worst there are.
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
    words, used = answerer.store.vocabulary, text.weights[number] > 0
    ids = text.queries.ids[number][text.queries.mask[number]][1:-1]
    places = text.positions[number][used] - 1
    before, after = words.decode(ids[: places[0]]), words.decode(ids[places[-1] + 1 :])
    likeliest = int(seen.candidates[number, seen.log_p_z[number].argmax()])
    return {
        "sentence": f"{before} ___ {after}".strip(),
        "hidden": words.decode(text.targets[number][used]),
        "with": float(np.exp(seen.log_p[number])),
        "without": float(np.exp(seen.log_p_y[number, 0])),
        "passage": answerer.store.title(likeliest) if likeliest >= 0 else "",
    }
