"""Solutions print as something a person can read."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import own_tasks
import pytest

import jaxik
from jaxik.core.trees import nested, part_units, parts

MIXED, PLANAR = jaxik.load_robot(own_tasks.MIXED), jaxik.load_robot(own_tasks.PLANAR)
UNITS = (("gaze", "1"), ("odd", ""), ("tip/orientation", "rad"), ("tip/position", "m"))


def solution(q: Any, status: Any, iterations: Any, residuals: dict[str, Any], robot: jaxik.Robot) -> jaxik.Solution:
    status = jnp.asarray(status, jnp.int32)
    return jaxik.Solution(
        jnp.asarray(q),
        status,
        residuals,
        jnp.asarray(iterations, jnp.int32),
        jnp.ones(status.shape, jnp.int32),
        jnp.zeros(status.shape),
        jnp.zeros(status.shape),
        topology=robot.topology,
        residual_units=UNITS,
    )


def batch() -> jaxik.Solution:
    position = jnp.array([[3.0, 4, 0], [0, 0, 0.001], [0, 1e-5, 0], [0, 0, 0]])[None].repeat(5, 0)
    residuals = {"gaze": jnp.full((5, 4), 0.25).at[0, 0].set(jnp.nan), "tip": {"position": position}}
    status, iterations = jnp.tile(jnp.array([0, 1, 0, 5]), (5, 1)), jnp.full((5, 4), 7).at[0, 0].set(37)
    return solution(jnp.zeros((5, 4, 2)), status, iterations, residuals, PLANAR)


def test_a_batch_says_how_it_ended_what_is_left_and_what_it_took() -> None:
    assert repr(batch()) == (
        "Solution(planar, batch (5, 4), 20 elements: 10 CONVERGED, 5 STALLED, 5 NONFINITE; iterations 8.5 on average, "
        "37 at most; residuals (median, 90 %, max): gaze 0.25, 0.25, not finite; tip/position 1e-05, 5, 5 m)"
    )


@pytest.mark.parametrize("kinds", [jaxik.Status, jaxik.DerivativeStatus])
@pytest.mark.parametrize("entry", [int, np.int32, np.asarray, jnp.asarray])
def test_an_entry_of_an_array_of_statuses_is_a_status(kinds: Any, entry: Any) -> None:
    """Since Python 3.13 what has no hash, as arrays, is not a member by being equal to one."""
    assert [kinds(entry(int(kind))) for kind in kinds] == list(kinds)
    with pytest.raises(ValueError, match="not a valid"):
        kinds(entry(99))


def test_one_solution_gives_its_joints_by_name() -> None:
    residuals = {"odd": jnp.float64(-0.5), "tip": {"orientation": jnp.array([0, 3e-9, 4e-9])}}
    assert repr(solution([0.25, -1 / 3], 0, 9, residuals, PLANAR)) == (
        "Solution(planar: CONVERGED after 9 iterations; q [rad] first 0.25, second -0.3333; "
        "residuals: odd 0.5, tip/orientation 5e-09 rad)"
    )
    said = repr(solution(MIXED.q_home, 3, 100, {}, MIXED))
    assert said.startswith("Solution(mixed: TIMEOUT after 100 iterations; q free (0 0 0.5 1 0 0 0), ball (1 0 0 0), ")
    assert "slide 0 m, hinge 0 rad" in said and said.endswith("residuals: none)")
    assert "\n" not in said


def test_what_was_differentiated_says_what_its_derivatives_are_worth() -> None:
    kinds = jnp.asarray([jaxik.DerivativeStatus.EXACT] * 3 + [jaxik.DerivativeStatus.WEAKLY_ACTIVE], jnp.int32)
    many = dataclasses.replace(batch(), derivative_status=jnp.tile(kinds, (5, 1)))
    assert repr(many).endswith("5 m; derivatives: 15 EXACT, 5 WEAKLY_ACTIVE)")
    one = dataclasses.replace(solution([0.1, 0.2], 0, 9, {}, PLANAR), derivative_status=kinds[3])
    assert repr(one).endswith("residuals: none; derivative WEAKLY_ACTIVE)")
    assert "derivative" not in repr(
        dataclasses.replace(one, derivative_status=jnp.int32(jaxik.DerivativeStatus.NOT_COMPUTED))
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: jax.tree.map(lambda x: x[:0], batch()), "Solution(planar, batch (0, 4), 0 elements)"),
        (lambda: jax.eval_shape(batch), "Solution(planar, traced, batch (5, 4))"),
        (lambda: jax.tree.map(lambda x: x[0], jax.tree.map(np.asarray, batch())), "4 elements: 2 CONVERGED, 1 STALLED"),
    ],
)
def test_it_prints_whatever_its_leaves_are(make: Any, text: str) -> None:
    assert text in repr(make())


def test_it_prints_inside_jit() -> None:
    said = []
    jax.jit(lambda x: said.append(repr(x)) or x)(batch())
    jax.vmap(lambda x: said.append(repr(x)) or x)(batch())
    assert said == ["Solution(planar, traced, batch (5, 4))", "Solution(planar, traced, batch (4,))"]


def test_parts_have_the_names_that_lead_to_them() -> None:
    tree = {"b": {"y": 1, "x": 2}, "a": 3}
    assert parts(tree) == {"a": 3, "b/x": 2, "b/y": 1} and nested(parts(tree)) == tree


def test_units_come_from_the_tasks() -> None:
    robot = PLANAR
    tip, home = robot.frame("tip"), robot.frame_pose(robot.q_home, "tip")
    tasks = {
        "com": jaxik.ComTask(jnp.zeros(3)),
        "high": own_tasks.Height(tip, 0.0),
        "pose": jaxik.FrameTask(tip, home),
        "point": jaxik.RelativeFrameTask(tip, robot.frame("upper"), home, orientation_cost=None),
        "pair": own_tasks.Height(tip, 0.0),
    }
    object.__setattr__(tasks["pair"], "unit", {"low": "kg", "high": "s"})
    residuals = {
        "com": 0,
        "high": 0,
        "pose": {"position": 0, "orientation": 0},
        "point": {"position": 0},
        "pair": {"low": 0, "other": 0},
    }
    assert part_units(tasks, residuals) == (
        ("com", "m"),
        ("high", ""),
        ("pair/low", "kg"),
        ("pair/other", ""),
        ("point/position", "m"),
        ("pose/orientation", "rad"),
        ("pose/position", "m"),
    )
