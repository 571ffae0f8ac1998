"""Finds names by capitalisation: a heuristic that replaces the trained tagger in a first run.

A name is a run of capitalised words; joining words may stand inside ("Republic of Ireland"). The
first word of a sentence is always capitalised. There a common word is dropped, and a single word
is not a name. The heuristic finds most names of English Wikipedia. It gives no entity types and
misses lower-case names.
"""

import re

# Adjacent lower-case words are one match, which makes the scan faster.
_SMALL = r"[a-z]+(?: [a-z]+)*(?![\w’'&-])"
_WORD = re.compile(rf"{_SMALL}|[^\W\d_](?:[\w’'&-]*\w)?|[^\w\s]")
_JOINING_WORDS = "of the de la del della di da van der von bin ibn al du le"
_COMMON_WORDS = """A After All Also Although An And Another Any Are As At Because Before Both But By
Can Did Do Does During Each Early Even Few First For From Further He Her Here His How However I If
In Is It Its Last Later Like Many More Most Much New Nevertheless No Nor Not Now Of Often On Once
One Only Or Other Others Our Over She Since So Some Such Than That The Their Them Then There These
They This Those Though Three Through Thus To Today Two Under Unlike Until Up Upon Was We Were What
When Where Whether Which While Who Whose Why With Within Without You"""
_CALENDAR_WORDS = """January February March April May June July August September October November
December Monday Tuesday Wednesday Thursday Friday Saturday Sunday BC AD BCE CE"""
_JOINING = frozenset(_JOINING_WORDS.split())
_COMMON = frozenset(_COMMON_WORDS.split())
_CALENDAR = frozenset(_CALENDAR_WORDS.split())


def name_spans(sentence: str) -> list[tuple[int, int]]:
    """Character spans (start, stop) of the names in one sentence, in order."""
    spans: list[tuple[int, int]] = []
    run: list[tuple[int, int]] = []
    reach = 0  # end of the run; the next word must follow after one space
    for match in _WORD.finditer(sentence):
        word = match.group()
        if not run and not word[0].isupper():
            continue
        begin = match.start()
        if run and sentence[reach:begin] != " ":
            spans += _close(sentence, run)
            run = []
        if _is_capital(word):
            run.append(match.span())
        elif not (run and _JOINING.issuperset(word.split(" "))):
            spans += _close(sentence, run)
            run = []
        reach = match.end()
    return spans + _close(sentence, run)


def _is_capital(word: str) -> bool:
    return word[0].isupper() and word not in _CALENDAR


def _close(sentence: str, run: list[tuple[int, int]]) -> list[tuple[int, int]]:
    opens = bool(run) and not any(c.isalnum() for c in sentence[: run[0][0]])
    while run and sentence[slice(*run[0])] in _COMMON:
        run, opens = run[1:], False
    if not run or (opens and len(run) == 1):
        return []
    begin, stop = run[0][0], run[-1][1]
    if sentence[stop - 2 : stop] in ("'s", "’s"):
        stop -= 2
    return [(begin, stop)]
