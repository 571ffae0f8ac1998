"""Config keys that hold paths of a run's inputs, and how a config file keeps paths inside the run.

A path inside the run folder is written relative to it, as in `{workdir}/corpus/knowledge`, so a run
can be copied or moved with the corpus that it holds. All other paths are kept as they were given.
"""

import os
from pathlib import Path

RUN = "{workdir}"  # stands for the run folder in config files
KEYS = (
    "corpus.knowledge",
    "corpus.pretraining",
    "corpus.held_out",
    "corpus.spans",
    "corpus.questions",
    "corpus.questions_without",
    "model.start",
    "stages.qa.reader_from",
    "stages.tagger.train_file",
    "stages.tagger.held_out_file",
    "stages.tagger.vocabulary",
)


def to_kept(path: str, workdir: str | os.PathLike[str]) -> str:
    """A path as config files keep it; relative paths start at the current folder."""
    folder = os.fspath(workdir)
    if not path or "://" in path or "://" in folder:
        return path
    for canonical in (os.path.abspath, os.path.realpath):  # the folder may be a symbolic link
        inside = Path(canonical(path))
        if inside.is_relative_to(canonical(folder)):
            return f"{RUN}/{inside.relative_to(canonical(folder)).as_posix()}"
    return path


def from_kept(path: str, workdir: str | os.PathLike[str]) -> str:
    """The inverse of `to_kept`, for the folder in which the run is now."""
    if not path.startswith(f"{RUN}/"):
        return path  # a corpus is always on a local disk
    return str(Path(workdir, path.removeprefix(f"{RUN}/")))
