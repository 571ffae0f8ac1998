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
        "--config.stages.ict.steps=300",
        "--config.stages.ict.batch=32",
        "--config.stages.ict.learning_rate=2e-5",
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
      retriever: of `realm eval`.
      about: for the page.
    """

    run: str
    retriever: str
    about: str


SYSTEMS = {
    "bm25": System("start", "bm25", "BM25"),
    "start": System("start", "dense", "the encoder as it comes"),
    "start_hybrid": System("start", "hybrid", "the encoder as it comes and BM25"),
    "ict": System("ict", "dense", "the encoder after ICT on the documents"),
    "realm": System("realm", "dense", "the encoder after REALM on the documents"),
    "realm_hybrid": System("realm", "hybrid", "the encoder after REALM and BM25"),
}
