"""README and pages do what they say: Python runs and has the shapes it states, commands work, links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.cli import main
from jaxik.pictures import canvas

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# An expression on a line of its own with its shape behind it: `solution.q  # (4096, 7), inside the limits`.
STATED_SHAPE = re.compile(r"^(?!\w+ = )(\S[^#\n]*?) +# (\((?:\d+, ?)*\d*\))(.*)$", re.MULTILINE)


def headings(text: str) -> list[str]:
    """As GitHub names them in links."""
    return [re.sub(r"[^\w -]", "", x).lower().replace(" ", "-") for x in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]


class Block(NamedTuple):
    language: str
    line: int
    code: str


def blocks(text: str) -> list[Block]:
    """The fenced code blocks of a Markdown text; `line` is that of the first line of code, from 1."""
    fences = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(f[1], text[: f.start(2)].count("\n") + 1, f[2]) for f in fences]


def script(text: str, most: int | None = None) -> str:
    """The Python of a text as one program with the line numbers of the text, and its stated shapes as assertions.

    Of its first blocks alone where `most` says how many.
    """
    program = ""
    for block in [block for block in blocks(text) if block.language == "python"][:most]:
        program += "\n" * (block.line - 1 - program.count("\n"))
        program += STATED_SHAPE.sub(r"assert \1.shape == \2, \1.shape  #\3", block.code)
    return program


def commands(text: str) -> list[list[str]]:
    """Lines of each bash block, without comments."""
    lines = [block.code.splitlines() for block in blocks(text) if block.language == "bash"]
    return [[re.sub(r"\s+#.*", "", line) for line in block if line.strip()] for block in lines]


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python on the package under test, from `folder`."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(jaxik.__file__).parents[1]),
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir or "",
    }
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder, env=environment)


# A page compiles for 10 to 40 s. The last block of the README, a search among obstacles, as long as those before it.
README_WITHOUT_OBSTACLES = "README", 3
WHOLE = [(page.stem, None) for page in PAGES if script(page.read_text())]
ALWAYS = [README_WITHOUT_OBSTACLES]


@pytest.mark.parametrize(
    ("name", "most"),
    [row if row in ALWAYS else pytest.param(*row, marks=exhaustive) for row in (README_WITHOUT_OBSTACLES, *WHOLE)],
)
def test_python_of_a_page_runs_and_has_the_shapes_it_states(
    name: str, most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "pictures" and canvas.backend() is None:
        pytest.skip("no OpenGL, as tests/test_pictures.py says")
    [page] = [page for page in PAGES if page.stem == name]
    program = script(page.read_text(), most)
    assert "assert " in program
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False):
        exec(compile(program, str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not link.startswith("http"):
            path, _, heading = link.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), link
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE) if heading else []
            assert not heading or heading in [re.sub(r"[^\w -]", "", x).lower().replace(" ", "-") for x in headings], (
                link
            )


def test_wrong_shape_in_a_readme_is_found_at_its_line(tmp_path: Path) -> None:
    text = "# Title\n```python\nimport numpy\nx = numpy.zeros((2, 3))\nx.transpose(1, 0)    # (3, 3), transposed\n```\n"
    (tmp_path / "README.py").write_text(script(text))
    done = run(["README.py"], tmp_path)
    assert done.returncode == 1
    assert "line 5" in done.stderr and "AssertionError: (3, 2)" in done.stderr


def test_first_commands_of_the_readme_are_those_that_ci_runs() -> None:
    first = commands(README)[0]
    assert len(first) == 2
    steps = re.findall(r"^step '(.*)'$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert steps[:2] == first


LINES = [line for page in PAGES for block in commands(page.read_text()) for line in block]
COMMANDS = [line for line in LINES if line.startswith("jaxik ")]
# Each of these compiles for up to 15 s what tests of that command compile for a smaller robot.
DEAR = [line for line in COMMANDS if "jaxik generate" in line or "render configs/" in line or "doctor" in line]


@pytest.mark.parametrize("command", mostly_exhaustive(COMMANDS, [line for line in COMMANDS if line not in DEAR]))
def test_command_of_a_page_works(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, *arguments = shlex.split(command)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    code = main(arguments)
    out, err = capsys.readouterr()
    assert code == 0, err
    assert out
