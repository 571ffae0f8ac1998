"""How answers are judged: exact match and recall (REALM section 4.2, REALM_FACTS 1.8)."""

import re
import string
import unicodedata

import numpy as np
from jaxtyping import Bool, Int64

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """Unicode NFD, lower case, no ASCII punctuation, no articles, single spaces."""
    text = unicodedata.normalize("NFD", text).lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answers: list[str]) -> bool:
    """Whether the prediction equals any of the answers once both are normalised."""
    return normalise_answer(prediction) in {normalise_answer(answer) for answer in answers}


def recall_at(
    hits: Int64[np.ndarray, "B K"], gold: Int64[np.ndarray, "B"], k: int
) -> Bool[np.ndarray, "B"]:
    """Whether the gold passage id is among the first k hits."""
    return (hits[:, :k] == gold[:, None]).any(1)
