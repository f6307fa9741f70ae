"""The names of the package: listed once for every reader, imported when they are asked for."""

import ast
import importlib
import pickle
import types
from pathlib import Path

import pytest
from fresh import run, run_program

import jaxik

PACKAGE = Path(jaxik.__file__).parent
HEAVY = "heavy = [m for m in ('jax', 'jaxlib', 'mujoco', 'numpy') if m in sys.modules]; assert not heavy, heavy"


def typed_names() -> dict[str, str]:
    """Module by public name, as type checkers read them."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


def test_type_checkers_dir_and_star_see_the_names_that_there_are() -> None:
    assert typed_names() == jaxik._MODULE_OF
    assert sorted(typed_names()) == sorted(jaxik.__all__)
    assert set(jaxik.__all__) < set(dir(jaxik))
    assert all(hasattr(jaxik, name) for name in dir(jaxik))


def test_public_names_are_the_objects_of_their_modules_and_no_packages() -> None:
    for name, module in typed_names().items():
        found = getattr(jaxik, name)
        assert found is getattr(importlib.import_module(module), name)
        assert not isinstance(found, types.ModuleType), name
        assert vars(jaxik)[name] is found  # the next look takes no function call


def test_star_brings_every_name_and_what_is_pickled_comes_back_as_it_was() -> None:
    names: dict[str, object] = {}
    exec("from jaxik import *", names)
    assert set(jaxik.__all__) <= set(names) and names["solve"] is jaxik.solve
    for thing in (jaxik.solve, jaxik.Problem, jaxik.Status.STALLED):
        assert pickle.loads(pickle.dumps(thing)) is thing


def test_unknown_name_raises_an_attribute_error_that_offers_a_near_one() -> None:
    with pytest.raises(AttributeError, match=r"'jaxik' has no attribute 'serch'; did you mean 'search'"):
        jaxik.serch  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="dir.jaxik. lists"):
        jaxik.xyzzy  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        exec("from jaxik import serch")


def test_names_that_are_first_asked_for_while_jax_traces_leave_nothing_in_the_program() -> None:
    # An array that a module made as it is imported would belong to that program, and be invalid in the next.
    code = """
import jax, jaxik
program = jax.make_jaxpr(lambda x: [getattr(jaxik, name) for name in jaxik.__all__] and x)(1.0)
assert not program.eqns, program
print(jax.jit(lambda x: jaxik.qp(x[None, None], x[None]).x)(2.0))
"""
    done = run_program(code)
    assert (done.returncode, done.stdout) == (0, "[-1.]\n"), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["solve", "--help"],
        ["track", "--help"],
        ["render", "--help"],
        ["info", "--help"],
        ["doctor", "--help"],
        ["robots"],
    ],
    ids=" ".join,
)
def test_help_and_the_list_of_robots_need_neither_jax_nor_mujoco(arguments: list[str]) -> None:
    done = run("-c", f"import sys; from jaxik.cli import main; assert main({arguments}) == 0; {HEAVY}")
    assert done.returncode == 0 and done.stderr == "" and done.stdout


def test_importing_jaxik_alone_imports_neither_jax_nor_mujoco() -> None:
    done = run("-c", f"import sys, jaxik; jaxik.__version__, jaxik.JaxikError, jaxik.bundled_robots(); {HEAVY}")
    assert done.returncode == 0, done.stderr
