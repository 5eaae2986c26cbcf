"""The notebooks run, and show no line in red."""

from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Jupyter's packages
@pytest.mark.parametrize("name", sorted(p.name for p in NOTEBOOKS.glob("*.ipynb")))
def test_a_notebook_runs(name):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [output for cell in cells for output in cell.outputs]
    assert "text/html" in {kind for output in shown for kind in output.get("data", ())}
    assert [o.text for o in shown if o.get("name") == "stderr"] == []
