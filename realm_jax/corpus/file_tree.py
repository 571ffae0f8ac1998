"""Which files an `--input` names: a file, all files of a folder, or the matches of a glob."""

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePath

from realm_jax.corpus.glob_pattern import Glob, Reached, is_hidden
from realm_jax.corpus.store_writer import TEXT, VOCABULARY
from realm_jax.corpus.tally import Tally
from realm_jax.errors import InputError
from realm_jax.storage.layout import JOURNAL, MANIFEST

LEARNED = ".vocab.txt"  # end of the name of the vocabulary that a build learns, after that of --out


def matches(input: str, skipped: Tally | None = None) -> list[Path]:
    """The files of a path (file or folder) or a glob, sorted by path.

    Symbolic links are followed; a file or folder that is reached twice is read once. Hidden files
    and folders are left out unless the glob names them, and so are corpora, finished or not, and
    their learned vocabularies: a corpus may lie beside the files that it is built from.

    Args:
      input: the path or glob.
      skipped: counts what is left out, by reason.

    Raises:
      InputError: no file matches.
    """
    path, skipped = Path(input), Tally() if skipped is None else skipped
    if path.is_file():
        return [path]
    glob = Glob(path, ("**",)) if path.is_dir() else Glob.of(path)
    if glob.parts:
        found = list(_matching(glob, skipped)) if glob.folder.is_dir() else []
    else:
        found = [path] if path.is_symlink() or path.exists() else []
    files = sorted(file for file in found if _is_file(file, skipped))
    if not files:
        raise InputError(
            "no input file",
            where=f"--input {input}",
            expected="a file, a folder with files or a glob that matches some",
            found=_what(path, skipped),
        )
    return _each_once(files, skipped)


def _matching(glob: Glob, skipped: Tally) -> Iterator[Path]:
    """The matches that are no folders; does not enter folders in which nothing can match."""
    seen = set()
    reached = {glob.folder: glob.start()}

    def unreadable(error: OSError) -> None:
        skipped.add("unreadable_folder", str(error.filename))

    for parent, folders, names in os.walk(glob.folder, followlinks=True, onerror=unreadable):
        here = reached.pop(Path(parent))
        place = (os.path.realpath(parent), glob.remaining(here))
        if place in seen:  # reached by two links, or by a link to a folder above
            skipped.add("repeated_link", parent)
            folders.clear()
            continue
        seen.add(place)
        if _is_corpus(names):
            skipped.add("corpus_folder", parent)
            folders.clear()
            continue
        for name in names:
            if glob.is_match(_after(glob, here, Path(parent, name), glob.is_match, skipped)):
                yield Path(parent, name)
        below = {one: _after(glob, here, Path(parent, one), bool, skipped) for one in folders}
        for name in folders:
            if glob.is_match(below[name]) and not glob.remaining(below[name]):
                skipped.add("folder_in_glob", str(Path(parent, name)))
        folders[:] = sorted(name for name in folders if glob.remaining(below[name]))
        reached |= {Path(parent, name): below[name] for name in folders}


def _after(
    glob: Glob, here: Reached, path: Path, is_wanted: Callable[[Reached], bool], skipped: Tally
) -> Reached:
    """`Glob.after` the name of a path; counts it if it would be wanted and is hidden."""
    hidden = is_hidden(PurePath(path.name))
    found = glob.after(here, path.name, hidden=hidden)
    if hidden and not is_wanted(found) and is_wanted(glob.after(here, path.name, hidden=False)):
        skipped.add("hidden", str(path))
    return found


def _is_corpus(names: Collection[str]) -> bool:
    """Whether a folder with these files is a corpus, or one that is being built."""
    return VOCABULARY in names and (JOURNAL in names or (MANIFEST in names and TEXT in names))


def _is_learned_vocabulary(path: Path) -> bool:
    if not path.name.endswith(LEARNED):
        return False
    with path.open("rb") as file:
        return file.readline(16).rstrip() == b"[PAD]"  # always the first piece


def _is_file(path: Path, skipped: Tally) -> bool:
    if path.is_file():
        if not os.access(path, os.R_OK):
            skipped.add("unreadable_file", str(path))
        elif _is_learned_vocabulary(path):
            skipped.add("learned_vocabulary", str(path))
        else:
            return True
    elif path.is_dir():
        skipped.add("folder_in_glob", str(path))
    else:
        skipped.add("broken_link" if path.is_symlink() else "no_regular_file", str(path))
    return False


def _each_once(files: list[Path], skipped: Tally) -> list[Path]:
    """Leaves out links to files that are in the list."""
    owners: dict[str, Path] = {}
    for path in sorted(files, key=Path.is_symlink):  # stable: files before links to them
        owner = owners.setdefault(os.path.realpath(path), path)
        if owner is not path:
            skipped.add("repeated_link", str(path))
    return sorted(owners.values())


def _what(path: Path, skipped: Tally) -> str:
    left_out = f" (left out: {dict(skipped)})" if skipped else ""
    if path.is_dir():
        return f"a folder without files{left_out}" if skipped else "an empty folder"
    return f"no match{left_out}"
