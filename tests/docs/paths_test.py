"""Every repository path that a document names in code font exists."""

import re

import documented_commands as documented
import pytest

PAGES = [
    documented.ROOT / "WORKSPACE.md",
    *sorted((documented.ROOT / "benchmarks").glob("*.md")),
    *documented.PAGES,
]
PATH = re.compile(r"`((?:realm_jax|tests|experiments|launch|benchmarks|docs)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_a_document_exist(page):
    paths = set(PATH.findall(page.read_text()))
    assert [path for path in sorted(paths) if not (documented.ROOT / path).exists()] == []


def test_the_pattern_finds_paths():
    assert PATH.findall("`tests/faults` and `docs/no_such_file.md`") == [
        "tests/faults",
        "docs/no_such_file.md",
    ]
