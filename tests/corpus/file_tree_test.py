"""A folder and globs give the same files, and count what they leave out, in all versions of Python.

The expected matches are those of a shell with `**`.
"""

import json
import os
from pathlib import Path

import pytest

from realm_jax.corpus.file_tree import matches
from realm_jax.corpus.tally import Tally
from realm_jax.errors import InputError

FILES = ["a.md", "b.txt", "n1/c.md", "n1/n2/d.md", ".hid.md", ".trash/old.md", "n1/~$c.md", "n1/.e"]


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        Path("tree", name).parent.mkdir(parents=True, exist_ok=True)
        Path("tree", name).write_text("Text.")


def found(input):
    skipped = Tally()
    files = [path.as_posix().removeprefix("tree/") for path in matches(input, skipped)]
    return files, dict(skipped)


@pytest.mark.parametrize(
    ("glob", "files", "skipped"),
    [
        ("tree/**/*.md", ["a.md", "n1/c.md", "n1/n2/d.md"], {"hidden": 3}),
        ("tree/**", ["a.md", "b.txt", "n1/c.md", "n1/n2/d.md"], {"hidden": 4}),
        ("tree/n1/**", ["n1/c.md", "n1/n2/d.md"], {"hidden": 2}),
        ("tree/**/**/n2/**/*.md", ["n1/n2/d.md"], {"hidden": 1}),
        ("tree/*", ["a.md", "b.txt"], {"hidden": 2, "folder_in_glob": 1}),
        ("tree/*/*.md", ["n1/c.md"], {"hidden": 2}),
        ("tree/?.[mx]?", ["a.md"], {}),
        ("tree/.*", [".hid.md"], {"folder_in_glob": 1}),
        ("tree/**/.trash/*.md", [".trash/old.md"], {}),
        ("tree/.trash/*.md", [".trash/old.md"], {}),
        ("t*e/a.md", ["a.md"], {}),
        ("./tr[!x]e/../tree/a.md", None, {}),
        ("tree/none/*.md", None, {}),
        ("tree/A.*", None, {}),
    ],
)
def test_globs_match_as_in_a_shell(glob, files, skipped):
    if files is None:
        with pytest.raises(InputError, match="no match"):
            found(glob)
    else:
        assert found(glob) == (files, skipped)
        assert found(str(Path.cwd() / glob))[1] == skipped


def test_a_folder_and_a_glob_of_all_its_files_count_the_same(monkeypatch):
    outside = Path("outside")
    for name in ("linked/f.md", "closed/g.md", "corpus/vocab.txt", "corpus/unfinished.jsonl"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text("Text.")
    Path("tree/linked").symlink_to(Path.cwd() / "outside/linked")
    Path("tree/n1/loop").symlink_to(Path.cwd() / "tree")
    Path("tree/gone.md").symlink_to("nothing")
    (outside / "closed").rename("tree/closed")
    (outside / "corpus").rename("tree/corpus")
    Path("tree/corpus.vocab.txt").write_text("[PAD]\n[UNK]\n")
    refuse(monkeypatch, "closed")
    files, skipped = found("tree")
    assert files == ["a.md", "b.txt", "linked/f.md", "n1/c.md", "n1/n2/d.md"]
    assert skipped == {
        "hidden": 4,
        "repeated_link": 1,
        "unreadable_folder": 1,
        "broken_link": 1,
        "corpus_folder": 1,
        "learned_vocabulary": 1,
    }
    for glob in ("tree/**", "tree/**/*", "tr*/**/*"):
        assert found(glob) == (files, skipped), glob


def test_links_do_not_change_the_paths_of_files_that_are_reached_without_them():
    before, _ = found("tree")
    Path("tree/a link").symlink_to("n1")
    Path("tree/n1/a link").symlink_to(Path.cwd() / "tree/n1/n2")
    Path("tree/another link").symlink_to("a link")
    for glob in ("tree", "tree/**"):
        assert found(glob) == (before, {"hidden": 4, "repeated_link": 3}), glob
    assert found("tree/*/*.md") == (["n1/c.md"], {"hidden": 2, "repeated_link": 2})


def test_runs_below_the_input_are_left_out():
    config = dict.fromkeys(["seed", "corpus", "model", "lengths", "stages"], "")
    for name, content in {"run": json.dumps(config), "other": '{"seed": 0}', "cut": "{"}.items():
        Path("tree", name, "export").mkdir(parents=True)
        Path("tree", name, "export/README.md").write_text("Text.")
        Path("tree", name, "config.json").write_text(content)
    assert found("tree/**/*.md") == (
        ["a.md", "cut/export/README.md", "n1/c.md", "n1/n2/d.md", "other/export/README.md"],
        {"hidden": 3, "run_folder": 1},
    )
    assert found("tree/run") == (["run/config.json", "run/export/README.md"], {})


def test_folders_in_which_nothing_can_match_are_not_entered(monkeypatch):
    refuse(monkeypatch, "n1")
    assert found("tree/*.md") == (["a.md"], {"hidden": 1})


def test_a_part_of_stars_and_letters_is_refused_with_a_glob_that_works():
    for glob in ("tree/**.md", "**x/*.md"):
        with pytest.raises(InputError, match="as a whole part") as error:
            found(glob)
        assert "--input='notes/**/*.txt'" in str(error.value)


def refuse(monkeypatch, name):
    """Makes a folder unreadable, also for root."""
    scandir = os.scandir

    def refused(path):
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
