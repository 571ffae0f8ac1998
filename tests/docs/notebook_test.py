"""docs/tour.ipynb: the cells run, and no output is stored in the file."""

import json

import documented_commands as documented
import pytest

NOTEBOOK = documented.ROOT / "docs/tour.ipynb"


@pytest.fixture(scope="module")
def cells():
    return json.loads(NOTEBOOK.read_text())["cells"]


@pytest.fixture
def folder_with_a_run(tmp_path, monkeypatch, documented_run):
    """A folder in which `runs/demo` is a finished run."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/demo").symlink_to(documented_run)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_cells_run_in_order(cells, folder_with_a_run, capsys):
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    names = {}
    for cell in code:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert "too long" in capsys.readouterr().out  # the error in the last cell


def test_no_output_is_stored(cells):
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


@pytest.mark.slow
def test_the_notebook_runs_in_a_kernel(folder_with_a_run):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(folder_with_a_run)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("<meter" in output.get("data", {}).get("text/html", "") for output in shown)
