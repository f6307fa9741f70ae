"""Shapes that are brought to a distance, as to touch: C MuJoCo measures it."""

from functools import cache
from typing import Any

import chex
import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest

import jaxik
from jaxik import DerivativeStatus, DistanceTask, PostureTask, Problem, Status
from jaxik.core.errors import JaxikError

# An arm in space whose hand is a capsule beside two balls, of one kind for distances.
ARM = """<mujoco model="toucher"><compiler angle="radian"/><worldbody>
<body name="base"><geom name="socket" type="sphere" size=".03"/>
 <body name="upper"><joint name="turn" axis="0 0 1" range="-3 3"/><joint name="a" axis="0 1 0" range="-2 2"/>
  <geom name="upper" type="capsule" size=".03" fromto=".08 0 0 .3 0 0"/>
  <body name="fore" pos=".35 0 0"><joint name="b" axis="0 1 0" range="-2.5 2.5"/>
   <geom name="fore" type="capsule" size=".03" fromto=".05 0 0 .25 0 0"/>
   <body name="hand" pos=".3 0 0"><joint name="c" axis="0 1 0" range="-2 2"/>
    <geom name="palm" type="capsule" size=".03" fromto=".05 -.04 0 .05 .04 0"/>
    <geom name="thumb" type="sphere" size=".015" pos=".1 .05 .01"/>
    <geom name="finger" type="sphere" size=".015" pos=".1 -.05 .02"/></body></body></body></body>
</worldbody></mujoco>"""
BENT = np.array([0.1, -0.3, 0.8, 0.2])
COUNT = 40
THUMB = (("thumb", "spheres/0"),)


@cache
def arm() -> jaxik.Robot:
    return jaxik.load_robot(ARM, geometry="model").astype(jnp.float64)


def touching(
    ball: Any, distance: Any, pairs: Any = (("hand", "spheres/0"),), exists: bool = True, priority: int = 1
) -> Problem:
    """The nearest configuration at which a ball of 8 cm is at a distance."""
    center, mask = jnp.asarray(ball)[..., None, :], jnp.array([exists])
    world = jaxik.World(spheres=jaxik.Spheres(center, jnp.array([0.08]), mask=mask))
    rest = PostureTask(BENT, cost=0.1, priority=priority)
    return Problem(arm(), {"touch": DistanceTask(pairs, distance, world), "rest": rest})


@jax.jit
@chex.assert_max_traces(1)
def solved(problem: Problem) -> jaxik.Solution:
    return jaxik.solve(problem, BENT)


def balls() -> np.ndarray:
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(COUNT, 3)) * [1, 1, 0.5]
    return rng.uniform(0.35, 0.6, (COUNT, 1)) * direction / np.linalg.norm(direction, axis=1, keepdims=True)


def least_by_mujoco(q: np.ndarray, ball: np.ndarray) -> np.ndarray:
    """The distances (n, 3) of a ball from the hand's shapes."""
    spec = mujoco.MjSpec.from_string(ARM)
    spec.worldbody.add_body(name="ball", mocap=True).add_geom(name="ball", size=[0.08, 0, 0])
    model = spec.compile()
    data, found = mujoco.MjData(model), []
    shapes = [model.geom(name).id for name in ("palm", "thumb", "finger")]
    for configuration, place in zip(q, ball, strict=True):
        data.qpos[:], data.mocap_pos[0] = configuration, place
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        ids = [(shape, model.geom("ball").id) for shape in shapes]
        found.append([mujoco.mj_geomDistance(model, data, *pair, 1.0, np.zeros(6)) for pair in ids])
    return np.asarray(found)


@pytest.mark.parametrize("distance", [0.0, 0.03])
def test_the_nearest_of_the_shapes_that_a_name_stands_for_is_as_far_as_asked(distance: float) -> None:
    solution = solved(touching(balls(), jnp.full(COUNT, distance)))
    converged = np.asarray(solution.status) == Status.CONVERGED
    assert converged.mean() > 0.9  # a ball behind its back is out of reach
    least = least_by_mujoco(np.asarray(solution.q), balls()).min(axis=1)
    assert np.abs(least[converged] - distance).max() < 1e-6
    assert np.abs(solution.residuals["touch"][:, 0] - (least - distance)).max() < 1e-6


def test_each_pair_of_names_has_a_row() -> None:
    pairs = (("thumb", "spheres/0"), ("finger", "spheres/0"))
    touch = touching(np.array([0.45, 0.0, 0.2]), 0.0, pairs).tasks["touch"]
    solution = jaxik.solve(Problem(arm(), {"touch": touch}), BENT)
    assert solution.residuals["touch"].shape == (2,) and int(solution.status) == Status.CONVERGED
    least = least_by_mujoco(np.asarray(solution.q)[None], np.array([[0.45, 0.0, 0.2]]))[0]
    assert np.abs(least[1:]).max() < 1e-6


def test_an_obstacle_that_is_masked_asks_for_nothing() -> None:
    solution = solved(touching(balls(), jnp.zeros(COUNT), exists=False))
    np.testing.assert_array_equal(solution.residuals["touch"], 0)
    np.testing.assert_allclose(solution.q, np.tile(BENT, (COUNT, 1)), atol=1e-6)


def test_derivatives_are_those_of_touching_again() -> None:
    place, way = np.array([0.45, 0.1, 0.25]), np.array([0.3, -0.5, 0.8])

    def q(shift: jax.Array, distance: jax.Array) -> tuple[jax.Array, jax.Array]:
        solution = jaxik.solve(touching(place + shift * way, distance, THUMB, priority=0), BENT)
        return solution.q, solution.derivative_status

    @jax.jit
    def derivative(at: jax.Array) -> Any:
        return jax.jvp(q, (at, 0.5 * at), (jnp.ones(()), jnp.full((), 0.5)))

    h = 1e-5
    ((_, status), (moved, _)), *near = (derivative(jnp.asarray(x)) for x in (0.0, h, -h))
    np.testing.assert_allclose(moved, (near[0][0][0] - near[1][0][0]) / (2 * h), atol=1e-6)
    assert int(status) == DerivativeStatus.EXACT


def test_shapes_that_are_equally_near_are_a_tie_and_curved_ones_have_normals_that_count_as_given() -> None:
    robot, q = arm(), jnp.asarray(BENT)
    # As far from both fingers, and farther from the palm.
    ball = robot.frame_pose(q, robot.frame("hand", "body")).apply(np.array([0.15, 0, 0.015]))
    world = jaxik.World(
        spheres=jaxik.Spheres(ball[None], 0.01),
        cylinders=jaxik.Cylinders(jaxlie.SE3.from_translation(jnp.array([[0.3, 0.3, 0.3]])), 0.1, 0.1),
    )

    def task(*pairs: tuple[str, str]) -> DistanceTask:
        return DistanceTask(pairs, 0.0, world)

    between = ("thumb", "spheres/0"), ("finger", "spheres/0")

    @jax.jit
    def told(q: jax.Array) -> Any:
        kin = robot.kinematics(q, task(("thumb", "world")).frames_of(robot))
        every = (("hand", "spheres/0"),), between[:1], (("hand", "world"),), between
        curved = (("thumb", "cylinders/0"),), (("palm", "cylinders/0"),), between
        return [task(*x).tied(robot, kin, 1e-9) for x in every], [task(*x).held(robot, kin) for x in curved]

    tied, held = told(q)
    assert tied == [True, False, True, False] and held == [True, True, False]


def test_steps_go_to_where_it_touches() -> None:
    ball = np.asarray(arm().frame_pose(BENT, arm().frame("hand", "body")).apply(np.array([0.15, 0.05, 0.1])))
    problem, q = touching(ball, 0.0, THUMB), jnp.asarray(BENT)
    for _ in range(20):
        result = jaxik.step(problem, q, 0.05)
        q = result.q
    assert abs(result.residuals["touch"][0]) < 1e-6
    assert abs(least_by_mujoco(np.asarray(q)[None], ball[None])[0, 1]) < 1e-6


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: DistanceTask(None), "pairs names what is to touch"),
        (lambda: DistanceTask([("hand", "world")], world="ball"), "jaxik.World"),
        (lambda: touching(np.zeros(3), 0.0, [("hand", "boxes")]), "no world with such obstacles"),
        (lambda: touching(np.zeros(3), 0.0, [("thumb", "spheres"), ("thumb", "palm")]), "never changes"),
        (lambda: touching(np.zeros(3), 0.0, [("hnad", "spheres")]), "hand"),
    ],
)
def test_mistakes_are_named(make: Any, match: str) -> None:
    with pytest.raises(JaxikError, match=match):
        make()
