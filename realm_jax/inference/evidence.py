"""The passages read for an answer, and the display of answers in terminals and notebooks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Evidence:
    """A passage that was read.

    Attributes:
      id: of the passage; -1: the null passage.
      title: its title.
      text: its body.
      p_z: p(z|x), normalised over the passages read.
      p_answer: p(y|z, x) of the answer.
      span: start and stop of the answer in `text`, in characters; None: not in this passage.
      document_id: id of its document as the source gives it (`_id`, `id`); "" if there is none.
    """

    id: int
    title: str
    text: str
    p_z: float
    p_answer: float
    span: tuple[int, int] | None
    document_id: str = ""

    @property
    def heading(self) -> str:
        """Title and document id; the number of the passage if it has neither."""
        id = f"[{self.document_id}]" if self.document_id else ""
        return " ".join(filter(None, (self.title, id))) or f"passage {self.id}"


class Displayable(ABC):
    """Formats an answer as text for a terminal and as HTML for a notebook."""

    passages: list[Evidence]
    index_step: int

    @property
    @abstractmethod
    def headline(self) -> str:
        """One line with the answer and its probability."""

    def __str__(self) -> str:
        lines = "".join(map(_line, self.passages))
        return f"{self.headline}\n\n{lines}\nindex of step {self.index_step}"

    def _repr_html_(self) -> str:
        rows = "".join(map(_row, self.passages))
        return (
            f"<p><b>{escape(self.headline)}</b></p><table>{rows}</table>"
            f"<p>index of step {self.index_step}</p>"
        )


def _line(passage: Evidence) -> str:
    bar = "#" * round(20 * passage.p_z)
    text = "".join(_parts(passage, ("", ">>", "<<")))
    return f"p(z|x) {passage.p_z:.3f} {bar:<20} {passage.heading}\n    {text}\n"


def _row(passage: Evidence) -> str:
    before, found, after = map(escape, _parts(passage, ("", "", "")))
    marked = f"<mark>{found}</mark>" if found else ""
    return (
        f'<tr><td style="vertical-align: top">{passage.p_z:.3f}<br>'
        f'<meter min="0" max="1" value="{passage.p_z:.4f}"></meter></td>'
        f'<td style="text-align: left"><b>{escape(passage.heading)}</b><br>'
        f"{before}{marked}{after}</td></tr>"
    )


def _parts(passage: Evidence, marks: tuple[str, str, str]) -> Sequence[str]:
    """Splits the text into before the span, the span between two marks, and after it."""
    if passage.span is None:
        return passage.text, marks[0], marks[0]
    start, stop = passage.span
    text = passage.text
    return text[:start], f"{marks[1]}{text[start:stop]}{marks[2]}", text[stop:]
