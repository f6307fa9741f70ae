"""The packages: each imports only what the table allows, in no circle, and mujoco only where robots are read."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "jaxik"

# Which packages each package may import besides itself, lowest floor first.
NOTHING: frozenset[str] = frozenset()
GROUND = frozenset({"core", "numerics"})
MOVING = GROUND | {"kinematics", "robot", "collision"}
BELOW_PROBLEM = MOVING | {"tasks", "limits"}
BELOW_SOLVERS = BELOW_PROBLEM | {"batching", "qp_solver", "results", "problem"}
VERBS = {"solvers.differential", "solvers.nonlinear", "solvers.planning", "solvers.search", "solvers.tracking"}
EVERYTHING = BELOW_SOLVERS | VERBS | {"robot.loading", "solvers"}
ALLOWED = {
    "core": NOTHING,
    "numerics": NOTHING,
    "batching": GROUND,
    "kinematics": GROUND,
    "robot": GROUND | {"batching", "kinematics", "collision"},
    "robot.bundled": NOTHING,
    "robot.loading": MOVING,
    "qp_solver": GROUND | {"batching"},
    "collision": GROUND | {"batching", "kinematics"},
    "tasks": MOVING,
    "results": MOVING | {"robot.loading", "qp_solver"},
    "limits": MOVING | {"tasks"},
    "problem": BELOW_PROBLEM,
    "solvers": BELOW_SOLVERS,
    "solvers.differential": BELOW_SOLVERS | {"solvers"},
    "solvers.nonlinear": BELOW_SOLVERS | {"solvers"},
    "solvers.search": BELOW_SOLVERS | {"solvers", "solvers.nonlinear"},
    "solvers.tracking": BELOW_SOLVERS | {"solvers", "solvers.differential", "solvers.nonlinear"},
    "solvers.planning": BELOW_SOLVERS | {"solvers", "solvers.nonlinear"},
    "solvers.asynchronous": BELOW_SOLVERS | {"solvers", "solvers.nonlinear", "solvers.tracking"},
    "datasets": EVERYTHING,
    "retargeting": BELOW_SOLVERS | {"solvers", "solvers.differential", "solvers.nonlinear", "solvers.tracking"},
    "rl": BELOW_SOLVERS | {"solvers", "solvers.differential"},
    "pictures": BELOW_SOLVERS | {"robot.loading"},
    "viewer": EVERYTHING | {"pictures"},
    "__init__": EVERYTHING | {"datasets", "pictures", "viewer", "solvers.asynchronous"},
    "cli": EVERYTHING | {"datasets", "pictures", "viewer"},
}
# What draws itself imports, when it is asked to, what draws it: their `show` and `view`.
SHOWN, DRAWN_BY = frozenset({"robot", "problem", "results"}), ("jaxik.pictures.show", "jaxik.viewer.view")
# Who may import mujoco: what reads models, and what draws by its renderer.
ON_MUJOCO = frozenset({"robot.loading", "pictures"})


class Import(NamedTuple):
    target: str  # absolute dotted name of a module
    line: int
    at_once: bool  # runs when the importing module is imported, not in a function


def modules(package: Path) -> dict[str, Path]:
    """Every file of the tree by its dotted name; the tree's root is called jaxik, whatever its folder."""
    inside = {file.relative_to(package).with_suffix("").parts: file for file in sorted(package.rglob("*.py"))}
    return {".".join(["jaxik", *(p for p in parts if p != "__init__")]): file for parts, file in inside.items()}


def package_of(module: str) -> str:
    """The name by which the table knows a module's package, the longest that it knows."""
    names = module.split(".")[1:]
    known = [".".join(names[:n]) for n in (2, 1) if ".".join(names[:n]) in ALLOWED]
    return known[0] if known else "__init__" if not names else names[0]


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
        own = package_of(module)
        if own not in ALLOWED or (file.parent == package and file.stem != "__init__"):
            wrong.append(f"{module} is in no package of the table")
            continue
        for target, line, at_once in imports(module, file, known):
            said = f"{module}:{line} imports {target}"
            if target in DRAWN_BY and own in SHOWN and not at_once:
                continue
            if target.split(".")[0] == "jaxik" and package_of(target) not in ALLOWED[own] | {own}:
                wrong.append(f"{said}, which {own} may not")
            if target.split(".")[0] == "mujoco" and own not in ON_MUJOCO:
                wrong.append(f"{said}, which only {' and '.join(sorted(ON_MUJOCO))} may")
            if target.startswith("mujoco.mjx") and at_once:
                wrong.append(f"{said} before anyone asked for it")
    return wrong


def cycles(package: Path) -> list[str]:
    """Modules that import each other in a circle, those that are imported for annotations alone included."""
    known = modules(package)
    targets = {
        m: {i.target for i in imports(m, file, known) if i.target in known and (i.at_once or i.target not in DRAWN_BY)}
        for m, file in known.items()
    }

    def reached(module: str) -> set[str]:
        seen: set[str] = set()
        ahead = set(targets[module])
        while ahead:
            seen |= ahead
            ahead = set().union(*(targets[m] for m in ahead)) - seen
        return seen

    return sorted(module for module in known if module in reached(module))


def floors(package: Path) -> int:
    """How many packages stand above each other at most."""
    height: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in height:
            height[name] = 1 + max((of(below) for below in ALLOWED[name] if below in present), default=0)
        return height[name]

    present = {package_of(module) for module in modules(package)}
    return max(map(of, present))


def test_every_package_imports_only_what_the_table_allows() -> None:
    assert len(modules(PACKAGE)) > 20
    assert violations(PACKAGE) == []


def test_nothing_imports_in_a_circle_and_packages_stand_on_few_floors() -> None:
    assert cycles(PACKAGE) == []
    assert floors(PACKAGE) <= 12


def test_every_package_says_what_it_is_for_and_what_it_imports() -> None:
    for init in PACKAGE.glob("**/__init__.py"):
        said = ast.get_docstring(ast.parse(init.read_text())) or ""
        assert said.count("\n") <= 6, init
        assert init.parent.name in ("jaxik", "cli", "bundled") or "mports" in said, init


MADE_UP = (
    "__init__.py", "core/errors.py", "numerics/lie.py", "kinematics/model.py", "robot/__init__.py", "robot/robot.py",
    "robot/loading/load.py", "solvers/nonlinear/solve.py", "solvers/search/search.py", "cli/run.py",
)  # fmt: skip
EARLY = "before anyone asked for it"


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("numerics/lie.py", "from jaxik.solvers import nonlinear", "jaxik.solvers, which numerics may not"),
        ("numerics/lie.py", "\nfrom ..robot.robot import R", "jaxik.robot.robot, which numerics may not"),
        ("numerics/lie.py", "def f():\n    import jaxik.core.errors", "jaxik.core.errors, which numerics may not"),
        ("numerics/lie.py", "from jaxik import load_robot", "jaxik, which numerics may not"),
        ("robot/robot.py", "import jaxik.robot.loading.load", "jaxik.robot.loading.load, which robot may not"),
        ("robot/__init__.py", "from .. import solvers", "jaxik, which robot may not"),
        ("solvers/nonlinear/solve.py", "from jaxik.solvers.search.search import s", "which solvers.nonlinear may not"),
        ("__init__.py", "from jaxik.cli.run import main", "jaxik.cli.run, which __init__ may not"),
        ("robot/robot.py", "from jaxik.pictures.show import show_robot", "jaxik.pictures.show, which robot may not"),
        ("robot/robot.py", "def f():\n    from jaxik.pictures.show import show_robot", None),
        ("cli/run.py", "from mujoco import MjModel", "mujoco, which only pictures and robot.loading may"),
        ("robot/loading/load.py", "from mujoco import mjx", EARLY),
        ("robot/loading/load.py", "if 1:\n    import mujoco.mjx", EARLY),
        ("helpers.py", "", "jaxik.helpers is in no package of the table"),
        ("helpers/core.py", "", "jaxik.helpers.core is in no package of the table"),
        ("robot/loading/load.py", "import mujoco\ndef f():\n    import mujoco.mjx", None),
        ("robot/robot.py", "import numpy, jaxik.numerics.lie\nfrom ..core.errors import E", None),
        ("solvers/search/search.py", "from jaxik.solvers.nonlinear import solve", None),
        ("cli/run.py", "from jaxik.solvers.search import search", None),
    ],
)
def test_made_up_tree_fails_on_a_forbidden_import_and_only_then(
    tmp_path: Path, file: str, source: str, expected: str | None
) -> None:
    for name, text in (dict.fromkeys(MADE_UP, "") | {file: source}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = violations(tmp_path)
    assert (found == []) if expected is None else (len(found) == 1 and expected in found[0])


def test_circles_of_a_made_up_tree_are_found(tmp_path: Path) -> None:
    for name, text in {
        "a": "from jaxik.core import b",
        "b": "if 1:\n    import jaxik.core.a",
        "c": "from . import a",
    }.items():
        (tmp_path / "core").mkdir(exist_ok=True)
        (tmp_path / "core" / f"{name}.py").write_text(text)
    assert cycles(tmp_path) == ["jaxik.core.a", "jaxik.core.b"]


def test_importing_jaxik_prints_nothing_and_leaves_what_is_slow_alone() -> None:
    late = ["mujoco.mjx", "viser", "rich", "tyro", "scipy.optimize", "matplotlib"]
    code = f"import sys; from jaxik import *; late = [m for m in {late} if m in sys.modules]; assert not late, late"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
