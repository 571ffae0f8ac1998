"""Requests and replies of the JSON API, as its OpenAPI document shows them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from realm_jax.serve.live_run import MOST_QUESTIONS

Text = Annotated[str, StringConstraints(max_length=100_000)]
Question = Annotated[Text, Field(description="A question.", examples=["What is X called in Y?"])]
Count = Annotated[
    int | None,
    Field(
        ge=1,
        description="Passages to read per question, at most `most_passages` of /api/health; the "
        "default is the number used in fine-tuning.",
    ),
]
Retriever = Annotated[
    Literal["dense", "bm25", "hybrid"] | None,
    Field(
        description="How passages are found: by vectors, by words (BM25) or by both; the default "
        "is that of the server. Weights p(z|x) are those of the vectors in any case."
    ),
]
PassageId = Annotated[int, Field(ge=0, description="The id of a passage in an answer.")]
EditsVersion = Annotated[
    int,
    Field(description="Number of changes to passages since the server started, by any process."),
]
IndexStep = Annotated[
    int, Field(description="Training step of the embedder that the passage index was built with.")
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Ask(_Request):
    """A question."""

    question: Question
    k: Count = None
    retriever: Retriever = None


class Batch(_Request):
    """Many questions, answered in one batch."""

    questions: Annotated[list[Question], Field(min_length=1, max_length=MOST_QUESTIONS)]
    k: Count = None
    retriever: Retriever = None


class Fill(_Request):
    """A sentence with one blank."""

    text: Annotated[Text, Field(description="A sentence with exactly one `[MASK]`.")]
    answer: Annotated[
        Text | None,
        Field(description="Text to compute the probability of; by default the most likely text."),
    ] = None
    retriever: Retriever = None


class NewPassage(_Request):
    """A passage to add."""

    title: Text = ""
    text: Text


class EditedPassage(NewPassage):
    """The new text of an existing passage."""

    id: PassageId


class PassageChoice(_Request):
    """A passage by id."""

    id: PassageId


class Evidence(BaseModel):
    """A passage that the model read."""

    id: Annotated[int, Field(description="-1 is the null passage (no passage).")]
    title: str
    text: str
    p_z: Annotated[
        float, Field(description="p(z|x): probability that the retriever gives to this passage.")
    ]
    p_answer: Annotated[float, Field(description="Probability of the answer given this passage.")]
    span: Annotated[
        tuple[int, int] | None,
        Field(description="The answer in `text`, in Unicode code points: start, stop."),
    ]
    document_id: Annotated[
        str, Field(description="Id of the document as its source gives it; empty if none.")
    ]
    edit: Annotated[
        str | None, Field(description="`added` or `edited` since the server started, or null.")
    ]


class ClosedBook(BaseModel):
    """How the pre-trained reader fills `question [MASK]` without any passage."""

    answer: str
    probability: float


class Answered(BaseModel):
    """An answer with its evidence."""

    question: str
    answer: str
    probability: Annotated[
        float,
        Field(description="Probability of all spans with this text, over all passages read."),
    ]
    closed_book: Annotated[
        ClosedBook | None,
        Field(description="null: the run has no reader, or there is no room for a `[MASK]`."),
    ]
    index_step: IndexStep
    edits_version: EditsVersion
    passages: list[Evidence]


class AllAnswered(BaseModel):
    """Answers in the order of the questions."""

    answers: list[Answered]


class Filled(BaseModel):
    """The text for the blank, with and without retrieval."""

    text: str
    answer: str
    probability: Annotated[float, Field(description="p(y|x) of `answer`.")]
    without_retrieval: Annotated[
        float, Field(description="Probability of `answer` with the null passage only.")
    ]
    answer_without_retrieval: str
    index_step: IndexStep
    edits_version: EditsVersion
    passages: list[Evidence]


class Examples(BaseModel):
    """Inputs to try."""

    examples: Annotated[
        list[str],
        Field(description="Questions of the run, or sentences with one `[MASK]`; may be empty."),
    ]


class Changed(BaseModel):
    """The effect of one change."""

    id: Annotated[int | None, Field(description="null: every passage.")]
    edit: str | None
    index_step: IndexStep
    edits_version: EditsVersion


class ChangedPassage(BaseModel):
    """An added or edited passage as it is now; a removed one as it was before its removal."""

    id: int
    title: str
    text: str
    edit: Annotated[str, Field(description="`added`, `edited` or `removed`.")]


class Changes(BaseModel):
    """The passages that differ from those when the server started, at most 1,000."""

    passages: list[ChangedPassage]
    index_step: IndexStep
    edits_version: EditsVersion


class Health(BaseModel):
    """The run that is served."""

    status: str
    version: Annotated[str, Field(description="Version of realm-jax.")]
    step: Annotated[int, Field(description="Training steps of the networks that answer.")]
    index_step: IndexStep
    passages: Annotated[int, Field(description="Passages that can be retrieved.")]
    answers_questions: Annotated[bool, Field(description="false: the run only fills blanks.")]
    k: Annotated[int, Field(description="Default number of passages to read per question.")]
    most_passages: Annotated[int, Field(description="Largest `k` of a request.")]
    retriever: Annotated[str, Field(description="Default of `retriever` in requests.")]
    edits_version: EditsVersion
    read_only: Annotated[bool, Field(description="true: passages cannot be changed.")]


class Problem(BaseModel):
    """What is wrong with a request."""

    problem: str
    where: str | None = None
    expected: str | None = None
    found: str | None = None
    fix: str | None = None


class Refused(BaseModel):
    """The reply to a request that is refused."""

    error: Problem
