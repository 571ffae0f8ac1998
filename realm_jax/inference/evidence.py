"""Passages that were read for an answer, and how answers show themselves to people."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Evidence:
    """A passage that was read. `span` holds the answer's characters in `text`, or None."""

    id: int
    title: str
    text: str
    p_z: float
    p_answer: float
    span: tuple[int, int] | None


class Shown(ABC):
    """What answers and filled blanks share: text for a terminal, HTML for a notebook."""

    passages: list[Evidence]
    index_step: int

    @property
    @abstractmethod
    def headline(self) -> str:
        """The answer and its probability, in a line."""

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
    return f"p(z|x) {passage.p_z:.3f} {bar:<20} {passage.title}\n    {text}\n"


def _row(passage: Evidence) -> str:
    before, found, after = map(escape, _parts(passage, ("", "", "")))
    marked = f"<mark>{found}</mark>" if found else ""
    return (
        f'<tr><td style="vertical-align: top">{passage.p_z:.3f}<br>'
        f'<meter min="0" max="1" value="{passage.p_z:.4f}"></meter></td>'
        f'<td style="text-align: left"><b>{escape(passage.title)}</b><br>'
        f"{before}{marked}{after}</td></tr>"
    )


def _parts(passage: Evidence, marks: tuple[str, str, str]) -> Sequence[str]:
    """Before the span, the span between two marks, after it."""
    if passage.span is None:
        return passage.text, marks[0], marks[0]
    start, stop = passage.span
    text = passage.text
    return text[:start], f"{marks[1]}{text[start:stop]}{marks[2]}", text[stop:]
