"""Globs that are matched name by name during a walk, so that folders without matches are not read.

`Path.glob` differs between versions of Python (a last `**` gives files from 3.13 on), and does not
say what it leaves out.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from realm_jax.errors import InputError

Reached = frozenset[int]  # numbers of the parts of a glob that the next name may match


def is_hidden(path: PurePath) -> bool:
    """Whether a part begins with a dot, holds the metadata of macOS, or is a lock file of Word."""
    return any(
        (part.startswith((".", "~$")) and part not in (".", "..")) or part == "__MACOSX"
        for part in path.parts
    )


@dataclass(frozen=True)
class Glob:
    """A folder, and what the names below it must match.

    Attributes:
      folder: the leading parts without wildcards.
      parts: the others: `**` for any number of folders, or a name with `*`, `?` or `[...]`. As in a
        shell, only a part that is hidden itself, such as `.*`, matches a hidden name.
    """

    folder: Path
    parts: tuple[str, ...]

    @classmethod
    def of(cls, pattern: Path) -> "Glob":
        """Parses a glob.

        Raises:
          InputError: a part holds `**` and other characters.
        """
        parts = pattern.parts
        fixed = next((i for i, part in enumerate(parts) if set("*?[") & set(part)), len(parts))
        for part in parts[fixed:]:
            if "**" in part and part != "**":
                raise InputError(
                    "the glob is not valid",
                    where=f"--input {pattern}",
                    expected="** as a whole part of the path",
                    found=part,
                    fix="for all text files of a folder: --input='notes/**/*.txt'",
                )
        return cls(Path(*parts[:fixed]), parts[fixed:])

    def start(self) -> Reached:
        """For the names in `folder`."""
        return self._with_skipped({0})

    def after(self, reached: Reached, name: str, *, hidden: bool) -> Reached:
        """For the names below `name`; empty if nothing there can match.

        Args:
          reached: for the folder of `name`.
          name: of a file or folder.
          hidden: whether only parts that are hidden themselves match it.
        """
        found = set()
        for number in self.remaining(reached):
            part = self.parts[number]
            if hidden and not is_hidden(PurePath(part)):
                continue
            if part == "**":
                found.add(number)
            elif fnmatchcase(name, part):
                found.add(number + 1)
        return self._with_skipped(found)

    def is_match(self, reached: Reached) -> bool:
        """Whether the last name ended a match."""
        return len(self.parts) in reached

    def remaining(self, reached: Reached) -> Reached:
        """The parts that names below the last one may match; empty if none can match."""
        return reached - {len(self.parts)}

    def _with_skipped(self, found: set[int]) -> Reached:
        """Adds the parts after each `**`, which also matches no folder."""
        for number, part in enumerate(self.parts):
            if number in found and part == "**":
                found.add(number + 1)
        return frozenset(found)
