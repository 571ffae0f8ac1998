"""How many questions the benchmarks' published splits have, and which part a question is in.

ORQA (Lee et al. 2019) made development parts of WebQuestions and CuratedTREC out of their training
parts by a fingerprint of the question; the same fingerprint gives the published 3,417 and 361 of
WebQuestions' 3,778. It does not give the development part of Natural Questions: use its file.
"""

from realm_jax.errors import InputError, RealmError

PARTS = ("all", "train", "dev")
# REALM_FACTS 1.8; SQuAD v1.1.
COUNTS = {
    "nq": {"train": 79_168, "dev": 8_757, "train and dev": 87_925, "test": 3_610},
    "webquestions": {"train": 3_417, "dev": 361, "train and dev": 3_778, "test": 2_032},
    "trec": {"train": 1_353, "dev": 133, "train and dev": 1_486, "test": 694},
    "squad": {"train": 87_599, "dev": 10_570},
}
FINGERPRINTED = ("webquestions", "trec")


def compared(format: str, count: int) -> str:
    """A sentence: what a number of questions is beside the published ones."""
    known = COUNTS.get(format)
    if known is None:
        return f"{count:,} questions"
    same = [part for part, published in known.items() if published == count]
    if same:
        return f"{count:,} questions, as published ({same[0]})"
    listed = ", ".join(f"{part} {published:,}" for part, published in known.items())
    return f"{count:,} questions, which no published part has ({listed})"


def check_part(part: str, format: str) -> None:
    """Refuses parts that cannot be told from a question.

    Raises:
      InputError: no such part of this format.
    """
    if part not in PARTS or format not in FINGERPRINTED:
        raise InputError(
            "no such part of these questions",
            where=f"format {format}",
            expected=f"all, or train or dev of {' or '.join(FINGERPRINTED)}",
            found=part,
        )


def part_of(question: str) -> str:
    """`train` or `dev`: the tenth of all questions whose bucket of 100,000 ends in 0.

    Raises:
      RealmError: the package that makes the fingerprints is not installed.
    """
    try:
        import farmhash
    except ImportError as error:
        raise RealmError(
            "published parts need a package that is not installed", fix="pip install -e '.[qa]'"
        ) from error
    return "dev" if farmhash.fingerprint64(question) % 100_000 % 10 == 0 else "train"
