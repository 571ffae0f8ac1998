"""Sentence segmentation."""

import sentencex


def sentence_bounds(text: str, language: str = "en") -> list[tuple[int, int]]:
    """Character spans (start, stop) of the sentences of `text`, without outer white space.

    Paragraph and section breaks have no effect. The spans are in order and cover every character
    that is not white space. Blank sentences are dropped.
    """
    bounds = []
    # `sentencex.segment` returns the same sentences but drops the blank lines between some of them.
    for piece in sentencex.get_sentence_boundaries(language, text):
        sentence = piece["text"]
        body = sentence.strip()
        if body:
            first = piece["start_index"] + len(sentence) - len(sentence.lstrip())
            bounds.append((first, first + len(body)))
    return bounds
