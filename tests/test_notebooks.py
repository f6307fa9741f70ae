"""Notebooks run, from top to bottom, and give what is stored of them: words, numbers and pictures."""

import base64
import copy
import io
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import jax
import nbformat
import numpy as np
import pytest
from PIL import Image
from tables import exhaustive

from jaxik.pictures import canvas
from notebooks.store import executed

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 500_000
INSTALL = re.compile(
    r'%pip install -q "jaxik\[([a-z,]+)\] @ git\+https://github\.com/ORG/jaxik"( "?[a-z-]+(>=[\d.]+"?)?)*'
)
NUMBER = re.compile(r"-?\d+(\.\d+)?%?")
# Notebooks that train for minutes run at a small size here, and at their own behind `exhaustive`.
SMALL = {
    "reach": {
        "SEEDS = 3": "SEEDS = 1",
        "UPDATES = 100": "UPDATES = 10",
        "EPISODES, STEPS = 128, 40": "EPISODES, STEPS = 16, 4",
    }
}
needs_gl = pytest.mark.skipif(canvas.backend() is None, reason="no OpenGL: apt-get install libegl1 libosmesa6")
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: nbformat.NotebookNode) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def said(output: Any) -> str:
    """The words of an output: what is printed, or the types and the text by which it is shown."""
    text = output.text if output.output_type == "stream" else f"{sorted(output.data)} {output.data['text/plain']}"
    return " ".join(text.split())


def same(stored: str, found: str) -> bool:
    """Whether numbers are within 2 % or, if not whole, a unit in the last place: rounding differs by machine."""
    a, b = (float(number.rstrip("%")) for number in (stored, found))
    whole = "." not in stored and "%" not in stored
    unit = 0.0 if whole else 10.0 ** -len(stored.rstrip("%").partition(".")[2])
    return math.isclose(a, b, rel_tol=0.02, abs_tol=1.01 * unit)


def differences(stored: nbformat.NotebookNode, found: nbformat.NotebookNode) -> list[str]:
    """Outputs of a run that are not as they are stored, a line each."""
    wrong = []
    for number, (old, new) in enumerate(zip(code_cells(stored), code_cells(found), strict=True)):
        a, b = (" | ".join(map(said, cell.outputs)) for cell in (old, new))
        numbers = zip(NUMBER.finditer(a), NUMBER.finditer(b), strict=False)
        if NUMBER.sub("#", a) != NUMBER.sub("#", b) or not all(same(x[0], y[0]) for x, y in numbers):
            wrong.append(f"code cell {number}: stored is {a!r}, found was {b!r}")
    return wrong


@pytest.fixture
def as_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has the package under test, and the settings of tests that are not in the environment."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir or "")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


# Each starts a kernel and compiles for half a minute what the first page and tests of its own show as well.
@exhaustive
@needs_gl
@pytest.mark.usefixtures("as_tests_run")
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem not in SMALL], ids=lambda path: path.stem)
def test_a_run_of_a_notebook_says_what_is_stored(path: Path) -> None:
    assert differences(read(path), executed(path)) == []


@exhaustive
@needs_gl
@pytest.mark.usefixtures("as_tests_run")
@pytest.mark.parametrize("name", SMALL)
def test_a_notebook_that_trains_runs_at_a_small_size(name: str, tmp_path: Path) -> None:
    stored = read(FOLDER / f"{name}.ipynb")
    small = copy.deepcopy(stored)
    for old, new in SMALL[name].items():
        (cell,) = (cell for cell in code_cells(small) if old in cell.source)
        cell.source = cell.source.replace(old, new)
    nbformat.write(small, tmp_path / "small.ipynb")
    for old, new in zip(code_cells(stored), code_cells(executed(tmp_path / "small.ipynb")), strict=True):
        assert [output.output_type for output in new.outputs] == [output.output_type for output in old.outputs]


@each_notebook
def test_a_notebook_starts_with_its_installation(path: Path) -> None:
    first, *others = code_cells(read(path))
    installed = INSTALL.fullmatch(first.source)
    assert installed and "skip-execution" in first.metadata.tags
    extras = set(installed[1].split(","))
    assert extras <= {"pictures", "plot", "viewer"}
    text = "\n".join(cell.source for cell in others)
    assert {"pictures"} | ({"plot"} if "matplotlib" in text else set()) == extras
    assert "%pip" not in text


@each_notebook
def test_a_notebook_is_stored_with_its_outputs_and_without_noise(path: Path) -> None:
    notebook = read(path)
    assert path.stat().st_size < MOST_BYTES
    assert notebook.metadata.language_info == {"name": "python"}
    _, *others = code_cells(notebook)
    assert [cell.execution_count for cell in others] == list(range(1, len(others) + 1))
    for cell in others:
        shown = re.search(r"^(\s*print\(|[\w.()]+\.show\(|Image\(|figure\.)", cell.source, re.MULTILINE)
        assert bool(cell.outputs) == bool(shown), cell.source
        for output in cell.outputs:
            assert output.get("name", "stdout") == "stdout" and output.output_type != "error"
            assert not re.search(r"/(home|tmp|usr|root)/|Warning|0x[0-9a-f]{6}|\d%\|", said(output))


@each_notebook
def test_pictures_of_a_notebook_are_stored_and_show_something(path: Path) -> None:
    pictures = [
        o.data["image/png"] for c in code_cells(read(path)) for o in c.outputs if "image/png" in o.get("data", {})
    ]
    assert len(pictures) >= 2
    for stored in pictures:
        with Image.open(io.BytesIO(base64.b64decode(stored))) as picture:
            moments = [np.asarray(picture.convert("RGB"), int)]
            if getattr(picture, "n_frames", 1) > 1:
                picture.seek(picture.n_frames // 2)
                moments.append(np.asarray(picture.convert("RGB"), int))
        assert moments[0].shape[1] >= 160
        # Far from the commonest colour: of robots 5 % and more, of lines of a plot less.
        colors, counts = np.unique(moments[0].reshape(-1, 3), axis=0, return_counts=True)
        assert np.mean(np.abs(moments[0] - colors[counts.argmax()]).max(axis=-1) > 60) > 0.02
        assert len(moments) == 1 or np.mean(np.abs(moments[0] - moments[1]).max(axis=-1) > 60) > 0.01


@pytest.mark.parametrize(
    ("printed", "found", "agree"),
    [
        ("3.14 mm in 97%", "3.15 mm  in 98%\n", True),
        ("1250 steps", "1260 steps", True),
        ("-0.21 mm", "0.21 mm", False),
        ("3.14 mm", "3.24 mm", False),
        ("8 ways", "7 ways", False),
        ("97%", "94%", False),
        ("3.14 mm", "3.14 m", False),
        ("3.14 mm", "", False),
        ("1 and 2", "1", False),
    ],
)
def test_outputs_that_are_off_are_told(printed: str, found: str, agree: bool) -> None:
    stored, run = (
        nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell("", outputs=[nbformat.v4.new_output("stream", text=text)])]
        )
        for text in (printed, found)
    )
    assert (differences(stored, run) == []) == agree


def test_a_picture_that_is_not_stored_is_told() -> None:
    shown = nbformat.v4.new_output("display_data", {"image/png": "", "text/plain": "Picture"})
    stored, run = (
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=outputs)]) for outputs in ([], [shown])
    )
    assert differences(stored, run) == ["code cell 0: stored is '', found was \"['image/png', 'text/plain'] Picture\""]


@pytest.fixture(scope="module")
def python_with_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has jaxik from a wheel, and what it needs from the one that runs this."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True)
    venv.create(folder / "env", symlinks=os.name != "nt")
    python = folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    # After the environment's own packages: an editable jaxik among the others does not come before the wheel's.
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (own / "others.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in others))
    return python


@exhaustive
@needs_gl
@each_notebook
def test_a_notebook_runs_on_an_installed_wheel_in_three_minutes(
    path: Path, python_with_wheel: Path, tmp_path: Path
) -> None:
    for file in (path, FOLDER / "store.py"):
        shutil.copy(file, tmp_path)
    # As users have it: no tree on the path, no compiled programs, and XLA's own settings.
    dropped = {"PYTHONPATH", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}

    def run(*arguments: str) -> str:
        command = [str(python_with_wheel), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert Path(run("-c", "import jaxik; print(jaxik.__file__)")).is_relative_to(python_with_wheel.parents[1])
    print(run("store.py", path.stem))
    assert differences(read(path), read(tmp_path / path.name)) == []
