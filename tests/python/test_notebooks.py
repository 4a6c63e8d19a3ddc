"""The notebooks: generated from the scripts next to them, which are run. FLOPCAST_BLESS=1 generates them again."""

import json
import os
import subprocess
import sys

import pytest

NAMES = ("plan_a_cluster", "paper_figure", "own_schedule", "fit_your_runs", "optimizer")


def notebook_of(script):
    """Cells of a script, each of which begins at "# %%"."""
    cells = []
    for part in script.split("# %%")[1:]:
        first, _, rest = part.partition("\n")
        lines = rest.strip("\n").split("\n")
        if "[markdown]" in first:
            lines = [line[2:] if line.startswith("# ") else line.lstrip("#") for line in lines]
        source = [line + "\n" for line in lines[:-1]] + lines[-1:]
        cell = {"cell_type": "markdown", "id": f"cell-{len(cells)}", "metadata": {}, "source": source}
        if "[markdown]" not in first:
            cell.update(cell_type="code", execution_count=None, outputs=[])
        cells.append(cell)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_script(name, source):
    folder = source / "examples" / "notebooks"
    made = json.dumps(notebook_of((folder / f"{name}.py").read_text(encoding="utf-8")), indent=1) + "\n"
    file = folder / f"{name}.ipynb"
    if os.environ.get("FLOPCAST_BLESS"):
        file.write_text(made, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == made
    assert sorted(path.stem for path in folder.glob("*.py")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, source, tmp_path):
    script = source / "examples" / "notebooks" / f"{name}.py"
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
