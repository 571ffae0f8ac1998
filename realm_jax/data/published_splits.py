"""Published splits of the QA benchmarks: their sizes, and the split of a question.

ORQA (Lee et al., 2019) split the training questions of WebQuestions and CuratedTREC into train and
dev by a fingerprint of the question. The same fingerprint gives the published 3,417 and 361 of
WebQuestions' 3,778 questions. It does not give the dev split of Natural Questions, which has its
own file.
"""

from realm_jax.errors import InputError, RealmError

PARTS = ("all", "train", "dev")
# Questions per split: ORQA's dataset statistics, and the files of SQuAD v1.1.
COUNTS = {
    "nq": {"train": 79_168, "dev": 8_757, "train and dev": 87_925, "test": 3_610},
    "webquestions": {"train": 3_417, "dev": 361, "train and dev": 3_778, "test": 2_032},
    "trec": {"train": 1_353, "dev": 133, "train and dev": 1_486, "test": 694},
    "squad": {"train": 87_599, "dev": 10_570},
}
FINGERPRINTED = ("webquestions", "trec")


def compared(format: str, count: int) -> str:
    """One line that compares a number of questions with the published splits."""
    known = COUNTS.get(format)
    if known is None:
        return f"{count:,} questions"
    same = [part for part, published in known.items() if published == count]
    if same:
        return f"{count:,} questions, as published ({same[0]})"
    listed = ", ".join(f"{part} {published:,}" for part, published in known.items())
    return f"{count:,} questions, which matches no published split ({listed})"


def check_part(part: str, format: str) -> None:
    """Checks that a split exists for a format.

    Raises:
      InputError: the format has no such split.
    """
    if part not in PARTS or format not in FINGERPRINTED:
        raise InputError(
            "no such split of these questions",
            where=f"format {format}",
            expected=f"all, or train or dev of {' or '.join(FINGERPRINTED)}",
            found=part,
        )


def part_of(question: str) -> str:
    """`dev` for questions whose fingerprint modulo 100,000 ends in 0 (a tenth), else `train`.

    Raises:
      RealmError: the package `farmhash` is not installed.
    """
    try:
        import farmhash
    except ImportError as error:
        raise RealmError(
            "published splits need a package that is not installed", fix="pip install -e '.[qa]'"
        ) from error
    return "dev" if farmhash.fingerprint64(question) % 100_000 % 10 == 0 else "train"
