"""docs/tour.ipynb: its cells run, and nothing that they printed is kept in it."""

import json

import documented_commands as documented
import pytest

NOTEBOOK = documented.ROOT / "docs/tour.ipynb"


@pytest.fixture(scope="module")
def cells():
    return json.loads(NOTEBOOK.read_text())["cells"]


@pytest.fixture
def beside_a_run(tmp_path, monkeypatch, documented_run):
    """A folder in which `runs/demo` is a finished run."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/demo").symlink_to(documented_run)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_cells_run_one_after_the_other(cells, beside_a_run, capsys):
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    names = {}
    for cell in code:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert "too long" in capsys.readouterr().out  # the mistake at its end


def test_no_output_is_kept(cells):
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


@pytest.mark.slow
def test_it_runs_in_a_kernel(beside_a_run):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(beside_a_run)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("<meter" in output.get("data", {}).get("text/html", "") for output in shown)
