"""The layers: a module imports only from its own layer and those below, and mujoco only where robots are read."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "jaxik"

# What each layer knows: JAX; jaxlie and small dense mathematics; robots and how they move; one evaluated
# configuration; all tasks at once; algorithms; batching, derivatives and the package's front page; the user.
LAYERS = (
    {"errors", "machine", "pytree", "status", "archive", "custom_rules", "version", "validation"},
    {"kept", "lie", "linalg", "trigonometry", "repetition", "lane_rules", "lanes", "batching"},
    {"robot", "manifold", "sampling", "segments", "kinematics", "dynamics", "motion"},
    {"coordinates", "slack", "tasks", "limits"},
    {"problem", "evaluation", "linearization", "landing", "quadratic", "recovery"},
    {"solvers"},
    {
        "descent",
        "implicit",
        "sensitivity",
        "stationarity",
        "out_of_reach",
        "step_sensitivity",
        "stepping",
        "entry",
        "step",
        "qp",
        "solve",
        "solution",
        "search",
        "selection",
        "track",
        "trace",
        "text",
        "step_result",
        "plot",
        "storage",
        "__init__",
    },
    {"cli", "data", "viewer"},
)
LAYER = {name: depth for depth, names in enumerate(LAYERS) for name in names}


class Import(NamedTuple):
    target: str  # absolute dotted name of a module
    line: int
    at_once: bool  # runs when the importing module is imported, not in a function


def modules(package: Path) -> dict[str, Path]:
    """Every file of the tree by its dotted name; the tree's root is called jaxik, whatever its folder."""
    inside = {file.relative_to(package).with_suffix("").parts: file for file in sorted(package.rglob("*.py"))}
    return {".".join(["jaxik", *(p for p in parts if p != "__init__")]): file for parts, file in inside.items()}


def part(module: str) -> str:
    """The name by which the table knows a module: the first one inside the package."""
    return module.split(".")[1] if "." in module else "__init__"


def statements(node: ast.AST, at_once: bool = True) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_once
        yield from statements(child, at_once and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def imports(module: str, file: Path, known: dict[str, Path]) -> Iterator[Import]:
    package = module.split(".") if file.stem == "__init__" else module.split(".")[:-1]
    for node, at_once in statements(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = package[: len(package) + 1 - node.level] if node.level else []
            source = ".".join([*base, node.module] if node.module else base)
            # `from jaxik import lie` names a module, `from jaxik.lie import skew` something in one.
            inner = [f"{source}.{alias.name}" for alias in node.names]
            names = [name if name in known or name == "mujoco.mjx" else source for name in inner]
        yield from (Import(name, node.lineno, at_once) for name in names)


def violations(package: Path) -> list[str]:
    """What is wrong with the imports of a tree, a line each."""
    known, wrong = modules(package), []
    for module, file in known.items():
        if part(module) not in LAYER:
            wrong.append(f"{module} is in no layer")
            continue
        for target, line, at_once in imports(module, file, known):
            said = f"{module}:{line} imports {target}"
            if target.split(".")[0] == "jaxik" and LAYER.get(part(target), 0) > LAYER[part(module)]:
                wrong.append(f"{said} from a higher layer")
            if target.split(".")[0] == "mujoco" and part(module) != "robot":
                wrong.append(f"{said}, which only jaxik.robot may")
            if target.startswith("mujoco.mjx") and at_once:
                wrong.append(f"{said} before anyone asked for it")
    return wrong


def test_every_module_imports_from_its_own_layer_or_below() -> None:
    assert len(modules(PACKAGE)) > 20
    assert violations(PACKAGE) == []


MADE_UP = ("__init__.py", "errors.py", "lie.py", "robot/__init__.py", "robot/model.py", "solve.py", "cli.py")
HIGHER, ONLY_ROBOT, EARLY = "from a higher layer", "which only jaxik.robot may", "before anyone asked for it"


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("lie.py", "from jaxik import solve", f"jaxik.lie:1 imports jaxik.solve {HIGHER}"),
        ("lie.py", "import jaxik.robot.model as m", f"jaxik.lie:1 imports jaxik.robot.model {HIGHER}"),
        ("lie.py", "\nfrom .robot.model import R", f"jaxik.lie:2 imports jaxik.robot.model {HIGHER}"),
        ("lie.py", "def f():\n    import jaxik.solve", f"jaxik.lie:2 imports jaxik.solve {HIGHER}"),
        ("lie.py", "from jaxik import load_robot", f"jaxik.lie:1 imports jaxik {HIGHER}"),
        ("robot/model.py", "from ..solve import solve", f"jaxik.robot.model:1 imports jaxik.solve {HIGHER}"),
        ("robot/__init__.py", "from .. import solve", f"jaxik.robot:1 imports jaxik.solve {HIGHER}"),
        ("__init__.py", "from jaxik.cli import main", f"jaxik:1 imports jaxik.cli {HIGHER}"),
        ("solve.py", "from mujoco import MjModel", f"jaxik.solve:1 imports mujoco, {ONLY_ROBOT}"),
        ("robot/model.py", "from mujoco import mjx", f"jaxik.robot.model:1 imports mujoco.mjx {EARLY}"),
        ("robot/model.py", "if 1:\n    import mujoco.mjx", f"jaxik.robot.model:2 imports mujoco.mjx {EARLY}"),
        ("helpers.py", "", "jaxik.helpers is in no layer"),
        ("robot/model.py", "import mujoco\ndef f():\n    import mujoco.mjx", None),
        ("robot/model.py", "import numpy, jaxik.lie\nfrom ..errors import E\nfrom jaxik import lie", None),
        ("cli.py", "from jaxik import load_robot\nfrom jaxik import solve", None),
    ],
)
def test_made_up_tree_fails_on_a_forbidden_import_and_only_then(
    tmp_path: Path, file: str, source: str, expected: str | None
) -> None:
    for name, text in (dict.fromkeys(MADE_UP, "") | {file: source}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert violations(tmp_path) == ([] if expected is None else [expected])


def test_importing_jaxik_prints_nothing_and_leaves_what_is_slow_alone() -> None:
    late = ["mujoco.mjx", "rich", "tyro", "scipy.optimize", "matplotlib"]
    code = f"import sys, jaxik; late = [m for m in {late} if m in sys.modules]; assert not late, late"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
