"""The words of the JSON API, as its OpenAPI document shows them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from realm_jax.serve.live_run import MOST_PASSAGES, MOST_QUESTIONS

Text = Annotated[str, StringConstraints(max_length=100_000)]
Question = Annotated[Text, Field(description="A question.", examples=["What is X called in Y?"])]
Count = Annotated[
    int | None,
    Field(ge=1, le=MOST_PASSAGES, description="Passages to read; by default as in fine-tuning."),
]
PassageId = Annotated[int, Field(ge=0, description="As given in the passages of an answer.")]
EditsVersion = Annotated[int, Field(description="Changes to passages made before this answer.")]
IndexStep = Annotated[int, Field(description="Training step of the published index that answered.")]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Ask(_Request):
    """A question."""

    question: Question
    k: Count = None


class Batch(_Request):
    """Many questions, answered in one pass."""

    questions: Annotated[list[Question], Field(min_length=1, max_length=MOST_QUESTIONS)]
    k: Count = None


class Fill(_Request):
    """A sentence with one blank."""

    text: Annotated[Text, Field(description="With exactly one `[MASK]`.")]
    answer: Annotated[
        Text | None, Field(description="How likely is this in the blank? By default the likeliest.")
    ] = None


class NewPassage(_Request):
    """A passage as written by a person."""

    title: Text = ""
    text: Text


class EditedPassage(NewPassage):
    """A passage to replace."""

    id: PassageId


class PassageChoice(_Request):
    """A passage by id."""

    id: PassageId


class Evidence(BaseModel):
    """A passage that was read."""

    id: Annotated[int, Field(description="-1: no passage.")]
    title: str
    text: str
    p_z: Annotated[float, Field(description="p(z|x): how far the model relies on this passage.")]
    p_answer: Annotated[float, Field(description="p(answer given this passage).")]
    span: Annotated[
        tuple[int, int] | None,
        Field(description="The answer in `text`, in Unicode code points: start, stop."),
    ]
    edit: Annotated[str | None, Field(description="`added` or `edited` since the start.")]


class ClosedBook(BaseModel):
    """What the pre-trained reader says to `question [MASK]` without a passage."""

    answer: str
    probability: float


class Answered(BaseModel):
    """An answer with its evidence."""

    question: str
    answer: str
    probability: Annotated[float, Field(description="Share of all spans read that say the same.")]
    closed_book: Annotated[
        ClosedBook | None, Field(description="null: the question leaves no room for a blank.")
    ]
    index_step: IndexStep
    edits_version: EditsVersion
    passages: list[Evidence]


class AllAnswered(BaseModel):
    """Answers in the order of the questions."""

    answers: list[Answered]


class Filled(BaseModel):
    """What goes into the blank, with and without retrieval."""

    text: str
    answer: str
    probability: Annotated[float, Field(description="p(y|x) of `answer`.")]
    without_retrieval: Annotated[float, Field(description="The same beside no passage.")]
    answer_without_retrieval: str
    index_step: IndexStep
    edits_version: EditsVersion
    passages: list[Evidence]


class Changed(BaseModel):
    """What a change did."""

    id: Annotated[int | None, Field(description="null: every passage.")]
    edit: str | None
    index_step: IndexStep
    edits_version: EditsVersion


class ChangedPassage(BaseModel):
    """A passage as it stands after the change, or as it was before its removal."""

    id: int
    title: str
    text: str
    edit: Annotated[str, Field(description="`added`, `edited` or `removed`.")]


class Changes(BaseModel):
    """All passages changed since the start."""

    passages: list[ChangedPassage]
    index_step: IndexStep
    edits_version: EditsVersion


class Health(BaseModel):
    """What is served."""

    status: str
    version: str
    step: Annotated[int, Field(description="Training steps behind the networks that answer.")]
    index_step: IndexStep
    passages: int
    answers_questions: Annotated[bool, Field(description="false: it only fills blanks.")]
    k: int
    edits_version: EditsVersion


class Problem(BaseModel):
    """What was wrong with a request."""

    problem: str
    where: str | None = None
    expected: str | None = None
    found: str | None = None
    fix: str | None = None


class Refused(BaseModel):
    """Every refusal has this form."""

    error: Problem
