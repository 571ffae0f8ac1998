"""The systems, and the commands that make their runs."""

from dataclasses import dataclass

# Documents are kept whole. The encoders embed their first 256 word pieces, BM25 counts all words.
DOCUMENT_PIECES = 4096
AS_IS = [
    "--config=as_is",
    "--config.lengths.query=256",
    "--config.lengths.passage=256",
    "--config.lengths.joint=512",
    "--config.report.max_passages=0",  # report.html does not embed the documents again
]
# For training, documents are cut into passages of whole sentences.
PASSAGE_PIECES = 64
# Flags of each trained run; the recipe is `own_corpus`.
TRAINED = {
    "ict": [
        "--config.stages.reader.steps=0",
        "--config.stages.ict.title_share=0",
        "--config.stages.ict.distance_penalty=0",
        "--config.stages.realm.steps=0",
        "--config.stages.realm.publish_start=True",
    ],
    "realm": [],
}


@dataclass(frozen=True)
class System:
    """A run and the retriever that is asked.

    Attributes:
      run: `start`, or a key of `TRAINED`.
      about: for the page.
      flags: of `realm eval`.
      index: run whose passages are searched; `""`: `run`.
    """

    run: str
    about: str
    flags: tuple[str, ...] = ()
    index: str = ""


DENSE, HYBRID = ("--retriever=dense",), ("--retriever=hybrid",)
SYSTEMS = {
    "bm25": System("start", "BM25", ("--retriever=bm25",)),
    "start": System("start", "the encoder as it comes", DENSE),
    "start_hybrid": System("start", "the encoder as it comes and BM25", HYBRID),
    "start_reciprocal_ranks": System(
        "start", "the same by reciprocal ranks", (*HYBRID, "--fusion=reciprocal_rank")
    ),
    "ict": System("ict", "the encoder after ICT on the documents", DENSE),
    "ict_hybrid": System("ict", "the encoder after ICT and BM25", HYBRID),
    "realm": System("realm", "the encoder after REALM on the documents", DENSE),
    "realm_hybrid": System("realm", "the encoder after REALM and BM25", HYBRID),
    "realm_queries": System("realm", "queries of `realm`, passages of `start`", index="start"),
    "realm_passages": System("start", "queries of `start`, passages of `realm`", index="realm"),
}
# Another fusion than that of the package, in a table of its own.
OTHER_FUSION = "start_reciprocal_ranks"
# One encoder for the queries and another for the passages: which of them has learned what?
CROSSED = ("realm_queries", "realm_passages")


def trained(system: str) -> bool:
    """Whether it differs between seeds."""
    return not {SYSTEMS[system].run, SYSTEMS[system].index}.isdisjoint(TRAINED)
