"""The notebooks: stored without outputs, and they run."""

import os
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks(path: Path) -> None:
    assert path.stat().st_size < 100_000


def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].cell_type == "markdown"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


PRELUDE = """\
%reset -f
import functools
from hfppl import CachedCausalLM
if not hasattr(CachedCausalLM.from_pretrained, "cache_info"):
    CachedCausalLM.from_pretrained = functools.cache(CachedCausalLM.from_pretrained)
CachedCausalLM.from_pretrained().clear_cache()
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One kernel for all notebooks, each of which begins without names; the model is loaded once."""
    manager = KernelManager()
    manager.start_kernel(env={**os.environ, "HFPPL_NOTEBOOK_FAST": "1"}, cwd=str(FOLDER))
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.model
def test_a_notebook_runs(path: Path, kernel: KernelManager) -> None:
    notebook = nbformat.read(path, as_version=4)
    prelude = nbformat.v4.new_code_cell(PRELUDE)
    notebook.cells.insert(0, prelude)
    client = NotebookClient(notebook, km=kernel, timeout=300)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell is not prelude]
    assert all(cell.execution_count for cell in code)
    assert any(cell.outputs for cell in code)
