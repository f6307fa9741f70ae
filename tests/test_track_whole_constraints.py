"""Constraints that yield along whole paths: slack variables in DAQP, constraints that hold, derivatives."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest
from tables import exhaustive
from two_slides import DT, START, STEPS, TIMES, VELOCITY, along, known, minimum, movement, of_joint, places, slides

import jaxik
from jaxik import DerivativeStatus, Elastic, FrameTask, Problem, Status, VelocityLimit, WholePathOptions, track
from jaxik.solvers.tracking.path_penalty import penalties

# A hand in a plane that three hinges move, of which a point needs two.
PLANAR = """<mujoco><compiler angle="radian" autolimits="true"/><worldbody>
  <body><joint name="a" axis="0 1 0" range="-3 3"/><geom size=".05"/>
    <body pos=".5 0 0"><joint name="b" axis="0 1 0" range="-3 3"/><geom size=".05"/>
      <body pos=".4 0 0"><joint name="c" axis="0 1 0" range="-3 3"/><geom size=".05"/>
        <site name="tip" pos=".2 0 0"/></body></body></body></worldbody></mujoco>"""
# By which a hand yields on a part of its way.
PENALTY = 30.0
# Where the middle is to be over time [m], the cost of that, and the penalty.
CASES: dict[str, tuple[np.ndarray, float, float]] = {
    "held where it gets": (0.3 + 0.36 * TIMES, 1.0, 40.0),
    "held from some time on": (0.32 + 0.2 * TIMES, 1.0, 2.0),
    "by the cost": (0.32 + 0.2 * TIMES, 4.0, 0.5),
    "never held": (0.1 + 0.2 * TIMES, 1.0, 1e-3),
    "now and then": (0.3 + 0.1 * np.sin(9 * TIMES), 1.0, 0.1),
    "not known at two waypoints": (np.where(np.abs(TIMES - 0.5) < 0.05, np.nan, 0.32 + 0.2 * TIMES), 1.0, 2.0),
}


@cache
def found() -> jaxik.Track:
    middle, cost, penalty = (jnp.asarray(np.array(x)) for x in zip(*CASES.values(), strict=True))
    at = jaxlie.SE3.identity()
    tip = FrameTask(slides().frame("tip"), at, orientation_cost=None)
    mid = FrameTask(slides().frame("mid"), at, position_cost=cost[:, None], orientation_cost=None)
    # A rank multiplies the penalty by 10.
    problem = Problem(slides(), {"tip": tip}, constraints={"mid": Elastic(mid, penalty=penalty / 10, order=1)})
    targets = {"tip": along(places()[:, None] * np.ones(len(CASES))), "mid": along(middle.T)}
    options = WholePathOptions(candidates=2, smoothing_tolerance=1e-9)
    q0, velocity = jnp.asarray(START), jnp.asarray(VELOCITY)
    return track(problem, q0, DT, targets, velocity=velocity, mode="whole", options=options)


def of_case(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The motion, and by how much the constraint yields along the line (STEPS,)."""
    i = list(CASES).index(name)
    return np.asarray(found().q)[:, i], np.asarray(found().yielded["mid"]["position"])[:, i, 0]


def program(name: str) -> tuple[np.ndarray, ...]:
    """H, c, rows, lower and upper bounds of both joints over time, then a slack for each waypoint.

    The first three of all times are given: those of the start and before it.
    """
    middle, cost, penalty = CASES[name]
    counts, bent, (both, given) = np.isfinite(middle), movement(), known()
    rows, goal = of_joint(np.eye(STEPS + 3)[3:], 0)[counts], middle[counts]
    k, n = rows.shape
    far = np.full(k, 1e30)
    matrix = np.block([[rows, -np.eye(k)], [rows, np.eye(k)], [both, np.zeros((len(both), k))]])
    lower, upper = np.concatenate([-far, goal, given]), np.concatenate([goal, far, given])
    price = np.concatenate([np.zeros(n), np.full(k, cost * penalty)])
    return np.pad(bent, [(0, k)] * 2), price, matrix, lower, upper


@pytest.mark.parametrize("name", CASES)
def test_motions_are_minima_of_the_program_with_slack_variables(name: str) -> None:
    exact = minimum(program(name))
    q, yielded = of_case(name)
    np.testing.assert_allclose(q, exact[3:], atol=1e-7)
    missed = np.abs(exact[3:, 0] - CASES[name][0])
    np.testing.assert_allclose(np.abs(yielded), np.where(missed < 1e-8, 0, missed), atol=1e-7)


def test_the_path_holds_and_what_yields_is_said() -> None:
    np.testing.assert_allclose(np.asarray(found().q).sum(axis=-1), places()[:, None] * np.ones(len(CASES)), atol=1e-9)
    known = np.isfinite(np.array([middle for middle, *_ in CASES.values()])).T
    np.testing.assert_array_equal(found().status == Status.CONVERGED, True)
    for name in CASES:
        _, yielded = of_case(name)
        some = yielded[known[:, list(CASES).index(name)]] != 0
        assert some.any() and (name == "never held") == some.all()
    assert "mid" in str(found())


def test_constraints_hold_where_the_path_is_out_of_reach() -> None:
    """A tip that is led farther than its own joint goes, while a constraint keeps the other one where it is."""
    tip, mid = (FrameTask(slides().frame(name), along(0.5), orientation_cost=None) for name in ("tip", "mid"))
    asked = 9.0 + 1.5 * TIMES
    options = WholePathOptions(candidates=2)
    motion = track(
        Problem(slides(), {"tip": tip}, constraints={"mid": mid}),
        None,
        DT,
        {"tip": along(asked)},
        mode="whole",
        options=options,
    )
    np.testing.assert_allclose(motion.q[:, 0], 0.5, atol=1e-9)
    np.testing.assert_allclose(motion.q[:, 1], np.minimum(asked - 0.5, 8.85), atol=1e-6)
    assert set(np.asarray(motion.status)[asked > 9.36].tolist()) == {Status.STALLED}


@cache
def planar() -> jaxik.Robot:
    return jaxik.load_robot(mujoco.MjModel.from_xml_string(PLANAR))


def circle(shift: Any) -> jaxlie.SE3:
    """Poses of the tip over time (STEPS, *batch), of which the point counts."""
    t = jnp.asarray(2 * np.pi * TIMES).reshape(-1, *(1,) * jnp.ndim(shift))
    x, z = 0.55 + 0.2 * jnp.cos(t) + shift, 0.1 - 0.15 * jnp.sin(t) + 0 * shift
    return jaxlie.SE3.from_translation(jnp.stack([x, 0 * x, z], axis=-1))


def turned(given: dict[str, jax.Array], hard: bool = False) -> jaxik.Track:
    """A tip on a circle in the plane, whose hand is to point down by some angle where that is cheap enough."""
    at = jaxlie.SE3.identity()
    tip = FrameTask(planar().frame("tip"), at, orientation_cost=None)
    angle = jaxlie.SO3.from_y_radians(given["angle"])
    down = jaxlie.SE3.from_rotation(angle)
    hand = FrameTask(planar().frame("tip"), down, position_cost=None)
    constraints = {"hand": hand if hard else Elastic(hand, penalty=given["penalty"])}
    limits = jaxik.ConfigurationLimit(), VelocityLimit(9.0)
    options = WholePathOptions(candidates=32, smoothing_tolerance=1e-8, smoothing_steps=given["steps"])
    problem = Problem(planar(), {"tip": tip}, limits, constraints)
    # Where it does not count the target is not known.
    hands = jaxlie.SE3(jnp.where(given["counts"][..., None], down.wxyz_xyz, jnp.nan))
    targets = {"tip": circle(given["shift"]), "hand": hands}
    return track(problem, None, DT, targets, mode="whole", options=options)


WAYS, STEP = {"angle": 0.3, "penalty": 3.0, "shift": 0.05}, 1e-4


@cache
def differentiated(smoothing_steps: int) -> tuple[dict[str, jax.Array], jax.Array, jaxik.Track]:
    """Derivatives of a number of each motion, the numbers, and the motions.

    Of one element for each argument, then moved by a step ahead, and back; at last of one whose hand can be held.
    """
    planar()  # once, outside of `jit`
    count = len(WAYS)
    steps = np.concatenate([np.zeros((count, count)), STEP * np.eye(count), -STEP * np.eye(count)])
    at = {"angle": 1.5, "penalty": PENALTY, "shift": 0.0}
    moved = {name: np.append(at[name] + steps[:, i] * way, at[name]) for i, (name, way) in enumerate(WAYS.items())}
    moved["penalty"][-1] = 100 * PENALTY
    slopes, (each, motion) = _gradient()(moved, smoothing_steps)
    return slopes, each, motion


@cache
def _gradient() -> Any:
    weight = jax.random.normal(jax.random.key(0), (STEPS, 1, 3))

    def total(moved: dict[str, jax.Array], smoothing_steps: jax.Array) -> tuple[jax.Array, Any]:
        motion = turned(moved | {"counts": counts(), "steps": smoothing_steps})
        each = jnp.sum(weight * motion.q, axis=(0, 2))
        return jnp.sum(each), (each, motion)

    return jax.jit(jax.grad(total, has_aux=True))


def counts() -> np.ndarray:
    """At which waypoints the angle of the hand counts (STEPS, n)."""
    counts = np.ones((STEPS, 3 * len(WAYS) + 1), bool)
    counts[[3, 4, 12], :-1] = False
    return counts


@exhaustive
def test_what_can_be_held_is_held_as_if_it_had_to_be() -> None:
    _, _, motion = differentiated(60)
    given = {"angle": jnp.array([1.5]), "shift": jnp.array([0.0]), "counts": counts()[:, -1:], "steps": 60}
    holds = turned(given, hard=True)
    np.testing.assert_array_equal(holds.status, Status.CONVERGED)
    np.testing.assert_allclose(motion.q[:, -1:], holds.q, atol=1e-6)


def test_derivatives_are_those_of_the_motion_where_constraints_yield_and_hold() -> None:
    slopes, each, motion = differentiated(60)
    assert (motion.status == Status.CONVERGED).all()
    np.testing.assert_array_equal(motion.derivative_status, DerivativeStatus.EXACT)
    off, counted = np.asarray(motion.yielded["hand"]["orientation"]), counts()
    np.testing.assert_array_equal(np.isfinite(off).all(axis=-1), counted)
    yields = np.any(off != 0, axis=-1) & counted
    assert not yields[:, -1].any()
    assert ((yields.sum(axis=0) > 0) & (yields.sum(axis=0) < counted.sum(axis=0)))[:-1].all()
    _, ahead, back = np.asarray(each)[:-1].reshape(3, -1)
    for i, (name, way) in enumerate(WAYS.items()):
        difference = (ahead[i] - back[i]) / (2 * STEP)
        assert abs(difference) > 1e-4 and float(slopes[name][i] * way) == pytest.approx(difference, rel=1e-4), name
    for few in (0, 3, 6):
        # Of what smoothing left before it was done.
        slopes, *_ = differentiated(few)
        assert all(np.isfinite(x).all() for x in slopes.values())


@exhaustive
def test_an_arm_in_single_precision_holds_what_can_be_held_at_little_cost() -> None:
    """A Panda's hand along a line, upright and away from joint limits."""
    robot = jaxik.load_robot("panda").astype(jnp.float32)
    count, upright = 24, np.array([0, 1, 0, 0])
    line = np.stack([np.full(count, 0.5), np.linspace(-0.3, 0.3, count), np.full(count, 0.4)], axis=-1)
    poses = jnp.asarray(np.concatenate([np.tile(upright, (count, 1)), line], axis=-1)[:, None], jnp.float32)
    at = jaxlie.SE3(poses[0, 0])
    tip = FrameTask(robot.frame("tcp"), at, orientation_cost=None)
    up = FrameTask(robot.frame("tcp"), at, position_cost=None)
    constraints = {"up": Elastic(up, penalty=jnp.array([10.0, 100.0], jnp.float32))}
    limits = jaxik.ConfigurationLimit(), VelocityLimit(2.0), Elastic(jaxik.ConfigurationLimit(margin=0.4), name="away")
    motion = track(
        Problem(robot, {"tip": tip}, limits, constraints), None, DT, {"tip": jaxlie.SE3(poses)}, mode="whole"
    )
    np.testing.assert_array_equal(motion.status, Status.CONVERGED)
    np.testing.assert_array_equal(motion.yielded["away"], 0)
    np.testing.assert_array_equal(motion.yielded["up"]["orientation"], 0)
    moved = np.sum(np.diff(np.asarray(motion.q), axis=0) ** 2, axis=(0, 2))
    # 0.13 and 0.14; one that did not settle moved by 26.
    assert (moved < 0.3).all(), moved


def test_candidates_cost_what_yields() -> None:
    """Also of tasks that read a part of the robot."""
    robot, q = planar(), jnp.array([[0.3, -0.5, 2.9], [-2.95, 0.1, 0.2]])
    center = jnp.array([0.2, 0.0, 0.1])
    tip = FrameTask(robot.frame("tip"), jaxlie.SE3.identity(), orientation_cost=None)
    away = Elastic(jaxik.ConfigurationLimit(margin=0.2), penalty=0.5, order=1)
    mass = {"mass": Elastic(jaxik.ComTask(center, cost=2.0), penalty=3.0)}
    problem = Problem(robot, {"tip": tip}, (jaxik.ConfigurationLimit(), away), mass)
    beyond = np.array([2.9 - 2.8, 2.95 - 2.8])
    missed = np.abs(np.asarray(robot.center_of_mass(q)) - center).sum(axis=-1)
    np.testing.assert_allclose(jax.jit(penalties)(problem, q), 5.0 * beyond + 6.0 * missed, rtol=1e-12)
