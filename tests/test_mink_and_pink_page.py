"""The page for users of mink and pink names all that these have, and nothing of ours that does not exist."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import mink
import nbformat
import numpy as np
import pink
import pink.barriers
import pink.exceptions
import pink.limits
import pink.tasks
import pink.utils
import pytest

import jaxik
from jaxik.solvers.differential.step import Linearization

PAGE = nbformat.read(Path(__file__).parents[1] / "notebooks" / "from_mink_and_pink.ipynb", as_version=4)
MARKDOWN = [cell.source for cell in PAGE.cells if cell.cell_type == "markdown"]
PEERS = (mink, pink, pink.tasks, pink.limits, pink.barriers, pink.exceptions, pink.utils)


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Names of a module that a user may meet, but for submodules and what it only imports."""
    family = module.__name__.split(".")[0]
    for name, value in vars(module).items():
        own = getattr(value, "__module__", family).split(".")[0] == family
        if own and not name.startswith("_") and not inspect.ismodule(value):
            yield name, value


def arguments(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters) - {"self", "cls", "args"}
    except (TypeError, ValueError):  # of a property, or of a class without an __init__ of its own
        return set()


def names_of(module: ModuleType) -> set[str]:
    """Classes, functions, methods, and arguments of all but errors, which a user does not make, and of poses."""
    found = set()
    for name, value in public(module):
        found.add(name)
        members = {m: f for m, f in vars(value).items() if not m.startswith("_")} if inspect.isclass(value) else {}
        methods = {m: getattr(value, m) for m, f in members.items() if callable(f) or isinstance(f, classmethod)}
        found |= set(methods) | {m for m, f in members.items() if isinstance(f, property)}
        theirs = inspect.isclass(value) and issubclass(value, Exception | mink.MatrixLieGroup)
        if callable(value) and not theirs:
            found |= arguments(value).union(*map(arguments, methods.values()))
    return found


@pytest.mark.parametrize("module", PEERS, ids=lambda module: module.__name__)
def test_the_page_names_all_that_mink_and_pink_have(module: ModuleType) -> None:
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", "\n".join(MARKDOWN)))))
    known = names_of(module)
    assert len(known) > 10
    assert sorted(known - named) == []


def test_what_the_page_says_that_we_have_exists() -> None:
    text = "\n".join(cell.source for cell in PAGE.cells)
    robot = jaxik.load_robot("panda")
    owners = {"jaxik": jaxik, "robot": robot, "result": jaxik.StepResult}
    for owner, value in owners.items():
        named = set(re.findall(rf"(?<![\w.]){owner}\.(\w+)", text))
        assert len(named) >= 4
        has = set(dir(value)) | set(getattr(value, "__dataclass_fields__", ()))
        assert sorted(named - has) == []
    for name, given in re.findall(r"`jaxik\.(\w+)\(([^`]*)\)`", text):
        accepted = inspect.signature(getattr(jaxik, name)).parameters
        assert set(re.findall(r"(\w+)=", given)) <= set(accepted), name
    assert {"H", "c", "lower", "upper", "G", "h", "A", "b", "weighted_rows", "inequalities"} <= set(
        dir(Linearization) + list(Linearization.__dataclass_fields__)
    )


def test_tables_of_the_page_have_as_many_cells_as_their_heads() -> None:
    for cell in MARKDOWN:
        for table in re.findall(r"(?:^\|.*\|$\n?)+", cell, re.MULTILINE):
            assert len(np.unique([line.count("|") for line in table.splitlines()])) == 1, table
