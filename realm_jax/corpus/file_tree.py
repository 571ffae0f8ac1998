"""Which files an `--input` names: a file, all files of a folder, or the matches of a glob."""

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePath

from etils import epath

from realm_jax.config import is_config
from realm_jax.corpus.glob_pattern import Glob, Reached, is_hidden
from realm_jax.corpus.store_writer import TEXT, VOCABULARY
from realm_jax.corpus.tally import Tally
from realm_jax.errors import InputError
from realm_jax.storage import files
from realm_jax.storage.layout import CONFIG, GENERATIONS, JOURNAL, MANIFEST

LEARNED = ".vocab.txt"  # end of the name of the vocabulary that a build learns, after that of --out


def matches(input: str, skipped: Tally | None = None) -> list[Path]:
    """The files of a path (file or folder) or a glob, sorted by path.

    Symbolic links are followed; a file or folder that is reached twice is read once, by its path
    without links if it has one: the ids of documents do not depend on links that come and go.
    Hidden files and folders are left out unless the glob names them, and so are corpora, finished
    or not, their learned vocabularies and run folders: these may lie beside the documents.

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
    readable = sorted(file for file in found if _is_file(file, skipped))
    if not readable:
        raise InputError(
            "no input file",
            where=f"--input {input}",
            expected="a file, a folder with files or a glob that matches some",
            found=_what(path, skipped),
        )
    return _each_once(readable, skipped)


def _matching(glob: Glob, skipped: Tally) -> Iterator[Path]:
    """The matches that are no folders; does not enter folders in which nothing can match."""
    seen = set()
    reached = {glob.folder: glob.start()}
    for parent, folders, names in _walk(glob.folder, skipped):
        here = reached.pop(Path(parent))
        place = (os.path.realpath(parent), glob.remaining(here))
        reason = _what_is_left_out(Path(parent), folders, names, glob.folder)
        if place in seen:  # reached by two links, or by a link to a folder above
            reason = "repeated_link"
        seen.add(place)
        if reason:
            skipped.add(reason, parent)
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


def _walk(folder: Path, skipped: Tally) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk` that follows links, but only after all folders that it reaches without them."""

    def unreadable(error: OSError) -> None:
        skipped.add("unreadable_folder", str(error.filename))

    waiting = [folder]
    for top in waiting:  # grows
        for parent, folders, names in os.walk(top, onerror=unreadable):
            yield parent, folders, names  # the caller removes folders that it does not enter
            waiting += filter(Path.is_symlink, (Path(parent, name) for name in folders))


def _after(
    glob: Glob, here: Reached, path: Path, is_wanted: Callable[[Reached], bool], skipped: Tally
) -> Reached:
    """`Glob.after` the name of a path; counts it if it would be wanted and is hidden."""
    hidden = is_hidden(PurePath(path.name))
    found = glob.after(here, path.name, hidden=hidden)
    if hidden and not is_wanted(found) and is_wanted(glob.after(here, path.name, hidden=False)):
        skipped.add("hidden", str(path))
    return found


def _what_is_left_out(
    parent: Path, folders: Collection[str], names: Collection[str], top: Path
) -> str | None:
    """The reason to leave out a folder that this package has written; None if it is read."""
    if VOCABULARY in names:  # compacted corpora have all texts in their generations
        finished = MANIFEST in names and (TEXT in names or GENERATIONS in folders)
        if finished or JOURNAL in names:
            return "corpus_folder"
    return "run_folder" if CONFIG in names and parent != top and _is_run(parent) else None


def _is_run(folder: Path) -> bool:
    config = folder / CONFIG
    readable = config.is_file() and os.access(config, os.R_OK)
    return readable and is_config(files.read_object(epath.Path(config)))


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
