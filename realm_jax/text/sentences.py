"""Sentence segmentation."""

import re

import sentencex

# sentencex 1.0.32 panics on a capital letter, one of these, and a full stop: it steps back from the
# full stop by one byte. Its panic is no Exception: it ends the process.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f](?=\.)")


def sentence_bounds(text: str, language: str = "en") -> list[tuple[int, int]]:
    """Character spans (start, stop) of the sentences of `text`, without outer white space.

    Paragraph and section breaks have no effect. The spans are in order and cover every character
    that is not white space. Blank sentences are dropped.
    """
    bounds = []
    text = _WIDE_SPACE.sub(" ", text)  # one character for one, so that positions stay the same
    # `sentencex.segment` returns the same sentences but drops the blank lines between some of them.
    for piece in sentencex.get_sentence_boundaries(language, text):
        sentence = piece["text"]
        body = sentence.strip()
        if body:
            first = piece["start_index"] + len(sentence) - len(sentence.lstrip())
            bounds.append((first, first + len(body)))
    return bounds
