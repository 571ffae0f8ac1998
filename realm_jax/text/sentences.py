"""Where sentences begin and end."""

import sentencex


def sentence_bounds(text: str, language: str = "en") -> list[tuple[int, int]]:
    """Character spans of the sentences of `text`, outer white space trimmed, blank ones dropped.

    The whole text is one stream (REALM corpus: paragraph and section breaks are not special). The
    spans are in order and cover every character that is not white space.
    """
    bounds = []
    # `segment` would return the same sentences without the blank lines between some of them.
    for piece in sentencex.get_sentence_boundaries(language, text):
        sentence = piece["text"]
        body = sentence.strip()
        if body:
            first = piece["start_index"] + len(sentence) - len(sentence.lstrip())
            bounds.append((first, first + len(body)))
    return bounds
