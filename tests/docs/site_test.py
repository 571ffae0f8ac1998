"""The documentation site builds without warnings and loads nothing from other servers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import documented_commands as documented
import pytest

pytest.importorskip("mkdocs", reason="needs the extra [docs]")
pytest.importorskip("mkdocstrings", reason="needs the extra [docs]")
# URLs that a browser loads without a click
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|link)\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=documented.ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_all_pages_exist_and_the_api_pages_show_docstrings(site):
    for page in documented.PAGES[1:]:
        assert (site / page.relative_to(documented.ROOT / "docs").with_suffix(".html")).is_file()
    api = (site / "reference/api/run.html").read_text()
    for name in ("realm_jax.open", "Run.retrieve", "Run.encode_document", "RealmError"):
        assert name in api
    assert "InputError" in api and "not fine-tuned" in re.sub(r"\s+", " ", api)
    shown = re.sub("<[^>]+>", "", (site / "reference/config.html").read_text())
    assert re.search(r"retrieval\.candidates\s+8\b", shown)


@pytest.mark.slow
def test_pages_load_nothing_from_other_servers(site):
    assert _LOADED.findall(
        '<link rel=x href="https://a.b/c.css"><script src=//a.b/c></script>'
    ) == [
        "https://a.b/c.css",
        "//a.b/c",
    ]
    for page in Path(site).rglob("*.html"):
        assert not _LOADED.findall(page.read_text()), page
    for sheet in Path(site).rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet
