"""A margin that shapes do not even have at home is warned of, and a robot that lost shapes is no whole one."""

import fnmatch
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxik
from jaxik.core.errors import JaxikError, JaxikWarning

# Around joints of their own: balls 4 mm and 9 mm from one, and a thin spindle 15 mm from it, which is a mesh.
NEAR = """<mujoco model="near"><asset>
<mesh name="m" vertex="0 0 -.1 0 0 .1 .005 0 0 0 .005 0 -.005 0 0 0 -.005 0"/></asset><worldbody>
<body name="a"><joint axis="0 0 1"/><geom name="a" size=".1" pos=".5 0 0"/></body>
<body name="b"><joint axis="0 0 1"/><geom name="b" size=".1" pos=".5 .204 0"/></body>
<body name="c"><joint axis="0 0 1"/><geom name="c" size=".1" pos=".5 -.209 0"/></body>
<body name="d"><joint axis="0 0 1"/><geom name="d" type="mesh" mesh="m" pos=".62 0 0"/></body>
</worldbody></mujoco>"""
A_AND_D = {"margin": 0.018, "pairs": [("a", "d")]}
WARNED: list[tuple[Any, dict[str, Any], str]] = [
    ("hull", {}, ""),
    ("hull", {"margin": 0.006}, "* CollisionLimit(margin=0.006): a and b of near are 4 mm apart at home: choose a *"),
    ("hull", {"margin": 0.01}, "* a and b of near are 4 mm apart at home, and 1 more pair is nearer than that: *"),
    ("hull", {"margin": 0.03}, "* a and b of near are 4 mm apart at home, and 2 more pairs are nearer than that: *"),
    ("hull", {"margin": 0.02, "pairs": [("c", "a")]}, "* a and c of near are 9 mm apart at home: *"),
    ("hull", {"margin": np.array([0.001, 0.006])}, "* a and b of near are 4 mm apart at home: *"),
    ("hull", {"margin": 0.003}, ""),
    ("hull", {"margin": 0.02, "pairs": [("b", "c")]}, ""),
    ("hull", A_AND_D, "* a and d of near are 15 mm apart at home: *"),
    ("capsule", A_AND_D, "* a and d of near are 15 mm apart at home: *"),
    ("sphere", {"pairs": [("a", "d")]}, "* a and d of near overlap at home: *"),
    ("sphere", A_AND_D, "* a and d of near overlap at home: *"),
]


@cache
def robot(geometry: Any) -> jaxik.Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JaxikWarning)  # spheres that always touch, and with "model" a mesh that is lost
        return jaxik.load_robot(NEAR, geometry=geometry)


def problem(of: jaxik.Robot, limit: jaxik.CollisionLimit) -> jaxik.Problem:
    return jaxik.Problem(of, {"rest": jaxik.PostureTask(of.q_home)}, limits=(limit,))


def said(of: jaxik.Robot, given: dict[str, Any]) -> str:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        problem(of, jaxik.CollisionLimit(**given))
    return "".join(str(warning.message) for warning in found)


@pytest.mark.parametrize(("geometry", "given", "words"), WARNED, ids=[str(i) for i in range(len(WARNED))])
def test_a_margin_that_home_does_not_have_is_warned_of(geometry: Any, given: dict[str, Any], words: str) -> None:
    heard = said(robot(geometry), given)
    assert "\n" not in heard
    assert fnmatch.fnmatchcase(f"* {heard}" if words else heard, words.replace("[", "[[]")), heard


def test_a_problem_that_is_made_under_jit_warns_where_its_margin_is_known() -> None:
    known = jaxik.CollisionLimit(margin=0.006)
    with pytest.warns(JaxikWarning, match="4 mm apart at home"):
        jax.eval_shape(lambda q: problem(robot("hull"), known), 0.0)
    jax.eval_shape(lambda margin: problem(robot("hull"), jaxik.CollisionLimit(margin=margin)), 0.1)


def test_a_saved_robot_and_one_that_holds_something_warn_as_well(tmp_path: Path) -> None:
    jaxik.save(tmp_path / "near.npz", robot("hull"))
    again: Any = jaxik.load(tmp_path / "near.npz")
    held = again.with_shape("cup", "b", "sphere", (0.05,))
    assert said(again, wide := {"margin": 0.006}) == said(held, wide) == said(robot("hull"), wide) != ""


def test_a_robot_that_lost_shapes_names_them() -> None:
    lost = robot("model")
    with pytest.raises(
        JaxikError, match="near has shapes that no distance is known of \\(mesh shapes of bodies d\\)"
    ) as e:
        problem(lost, jaxik.CollisionLimit(margin=0))
    assert "\n" not in str(e.value) and "CollisionLimit(pairs=" in str(e.value)
    problem(lost, jaxik.CollisionLimit(margin=0, pairs=(("a", "b"),)))
