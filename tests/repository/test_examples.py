# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The notebooks are stored as they were executed, and still come out so."""

from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def said(cell: Any) -> list[str]:
    """What a cell answered, as text; without pictures, whose text holds an address in memory."""
    printed = [output["text"] for output in cell.outputs if output.output_type == "stream"]
    data = [output.get("data", {}) for output in cell.outputs]
    return printed + [
        each["text/plain"] for each in data if each.get("text/plain") and "image/png" not in each
    ]


def read(path: Path) -> Any:
    import nbformat  # seconds, which whoever collects tests need not wait

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def executed(path: Path, folder: Path) -> Any:
    from nbclient import NotebookClient

    notebook = read(path)
    NotebookClient(notebook, timeout=250, resources={"metadata": {"path": folder}}).execute()
    return notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_with_what_it_printed(path: Path) -> None:
    notebook = read(path)
    counts = [cell.execution_count for cell in cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in cells(notebook) for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any("not valid" in text for cell in cells(notebook) for text in said(cell))


@pytest.mark.parametrize("name", ["predict_and_compare", "validate_a_model", "run_a_campaign"])
def test_predictions_come_out_as_they_are_stored(name: str, tmp_path: Path) -> None:
    path = EXAMPLES / f"{name}.ipynb"
    stored = read(path)
    fresh = executed(path, tmp_path)
    assert [said(cell) for cell in cells(fresh)] == [said(cell) for cell in cells(stored)]


def test_a_run_goes_through(tmp_path: Path) -> None:
    fresh = executed(EXAMPLES / "run_read_plot.ipynb", tmp_path)
    assert said(cells(fresh)[-1]) == ["True"]
    assert (tmp_path / "runs" / "first" / "report.html").is_file()


def test_an_overhead_is_studied(tmp_path: Path) -> None:
    fresh = executed(EXAMPLES / "study_overhead.ipynb", tmp_path)
    *_, of_all, of_tls = ["image/png" in str(cell.outputs) for cell in cells(fresh)]
    assert of_all
    assert of_tls
