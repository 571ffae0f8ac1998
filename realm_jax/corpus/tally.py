"""Counts by reason, with the first names of what was counted."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

FIRST = 5  # names kept of each reason


class Tally(Counter[str]):
    """A counter of reasons that also keeps the first names of each.

    Attributes:
      names: reason -> the first `FIRST` names: files, members of archives, or file and line.
    """

    def __init__(
        self,
        counts: Mapping[str, int] | None = None,
        names: Mapping[str, list[str]] | None = None,
    ):
        super().__init__(counts or {})
        self.names: dict[str, list[str]] = {key: list(few) for key, few in (names or {}).items()}

    def add(self, reason: str, name: str) -> None:
        """Counts one thing of this name."""
        self[reason] += 1
        self._keep(reason, [name])

    def merge(self, other: "Tally") -> None:
        """Adds the counts of another tally, whose names come after the present ones."""
        for reason, count in other.items():
            self[reason] += count
            self._keep(reason, other.names.get(reason, []))

    def take(self, reason: str) -> "Tally":
        """Removes a reason; returns its count and names as a tally, empty if there is none."""
        count, names = self.pop(reason, 0), self.names.pop(reason, [])
        return Tally({reason: count}, {reason: names}) if count else Tally()

    def _keep(self, reason: str, names: list[str]) -> None:
        kept = self.names.setdefault(reason, [])
        kept += names[: FIRST - len(kept)]

    def to_json(self) -> dict[str, Any]:
        """`{"counts": {reason: n}, "names": {reason: [...]}}`, sorted by reason."""
        return {
            "counts": dict(sorted(self.items())),
            "names": {reason: self.names.get(reason, []) for reason in sorted(self)},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Tally":
        """The tally that `to_json` described."""
        return cls(content["counts"], content["names"])

    def lines(self) -> list[str]:
        """One line per reason, most frequent first: count, reason, first names."""
        return [
            f"{count:>8,} {reason}: {', '.join(self.names.get(reason, []))}"
            + (", …" if count > FIRST else "")
            for reason, count in self.most_common()
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        # Counter's own loses the names.
        return (Tally, (dict(self), self.names))


class Skipped(Tally):
    """What a reader did not read, by reason.

    Attributes:
      decoded: files by the encoding that was detected for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.decoded = Tally()
