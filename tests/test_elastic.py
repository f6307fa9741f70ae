"""What yields where it cannot be held, in a step: what is held, what is shared, by how much, and derivatives."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from elastic_arm import ARM, BENT, WAYS, arm, reaching, start, tip_at
from tables import exhaustive

import jaxik
from jaxik import (
    ConfigurationLimit,
    DerivativeStatus,
    Elastic,
    FrameTask,
    JaxikError,
    JerkLimit,
    PositionLimit,
    PostureTask,
    Problem,
    Status,
    VelocityLimit,
)
from jaxik.core.pytree import pytree
from jaxik.limits.base import Limit
from jaxik.limits.elastic import SINGULAR_VALUE


@jax.jit
@chex.assert_max_traces(1)
def taken(penalty: Any, ways: Any) -> jaxik.StepResult:
    """A step of `reaching`, three elements of it."""
    return jaxik.step(reaching(ways, penalty=penalty, singular_value=0.05), BENT, 0.01)


def test_what_can_be_held_is_held_as_if_it_were_hard() -> None:
    soft = taken(10.0, WAYS)
    hard = jaxik.step(reaching(), BENT, 0.01)
    assert list(np.asarray(hard.status)) == [Status.CONVERGED, Status.INFEASIBLE, Status.INFEASIBLE]
    assert np.all(np.asarray(soft.status) == Status.CONVERGED)
    np.testing.assert_allclose(soft.velocity[0], hard.velocity[0], atol=1e-9)
    yielded = np.asarray(soft.yielded["tip"]["position"])
    np.testing.assert_array_equal(yielded[0], 0)
    assert np.all(np.any(yielded[1:] != 0, axis=1))
    # The residual after a full step to the speed limit, that no other step makes less.
    assert np.max(np.abs(soft.velocity[1:])) <= 1 + 1e-12
    np.testing.assert_allclose(np.max(np.abs(soft.velocity[1:]), axis=1), 1, atol=1e-9)


@pytest.mark.parametrize(
    ("first", "second", "yields"),
    [(None, 1, "tip"), pytest.param(1, None, "wall", marks=exhaustive)],
    ids=["the constraint yields first", "the limit yields first"],
)
def test_the_higher_order_holds(first: int | None, second: int | None, yields: str) -> None:
    robot, tip = arm(), arm().frame("tip")
    rest = {"rest": PostureTask(BENT, cost=0.1)}
    wall = PositionLimit(tip, [1.0, 0, 0], start()[0] + 0.001, gain=1.0)
    # In the axes of the wall: in those of the tip it is one row that yields, by another length.
    aim = tip_at(start() + np.array([0.01, 0, 0]), axes="world")
    limits = ConfigurationLimit(), Elastic(wall, order=second)
    taken = jaxik.step(Problem(robot, rest, limits, {"tip": Elastic(aim, order=first)}), BENT, 0.01)
    assert taken.status == Status.CONVERGED
    of_tip, of_wall = np.asarray(taken.yielded["tip"]["position"]), np.asarray(taken.yielded["position_limit"])
    if yields == "tip":
        np.testing.assert_allclose(of_tip, [0.009, 0, 0], atol=1e-9)
        assert np.all(of_wall == 0)
    else:
        assert np.all(of_tip == 0) and of_wall[0] == pytest.approx(0.009, abs=1e-9)


@pytree
class NoRows(Limit):
    """Of a robot that has nothing of what it limits."""

    velocity_level = True


def test_an_elastic_velocity_limit_is_passed_by_the_least_that_a_constraint_needs() -> None:
    """Beside one that has no rows, and yields nothing."""
    ways = np.array([[0.001, 0.0, 0], [0.02, 0.0, 0]])
    yielding = Elastic(NoRows(), name="none"), Elastic(VelocityLimit(1.0), penalty=1.0, name="speed")
    problem = dataclasses.replace(reaching(ways), limits=(ConfigurationLimit(), *yielding))
    taken = jaxik.step(problem, BENT, 0.01)
    assert taken.yielded["none"].shape == (2, 0) and taken.yielded["speed"].shape == (2, arm().nv)
    assert np.all(np.asarray(taken.status) == Status.CONVERGED)
    beyond = np.asarray(taken.yielded["speed"])
    np.testing.assert_array_equal(beyond[0], 0)
    speed = np.asarray(taken.velocity)[1]
    np.testing.assert_allclose(beyond[1], 0.01 * np.sign(speed) * np.maximum(np.abs(speed) - 1, 0), atol=1e-12)
    assert np.max(np.abs(beyond[1])) > 1e-3
    assert "; yielded speed " in repr(taken)


@exhaustive
def test_a_step_that_is_shortened_before_an_obstacle_yields_all_that_it_misses() -> None:
    """Past balls that the tip touches: none, half of the step, and all of it."""
    ended = ARM.replace("<site", '<geom type="sphere" size="0.02" pos="0.3 0 0"/><site')
    robot = jaxik.load_robot(ended, geometry="model")
    away = np.array([[-0.1270, -0.0336, 0], [-0.0342, -0.0940, 0], [0, 1.0, 0]])
    ways = np.array([[-0.0677, -0.1210, 0], [0.4552, -0.3021, 0], [0.01, 0, 0]])
    radius = np.linalg.norm(away, axis=1) - 0.021
    ball = jaxik.World(spheres=jaxik.Spheres(jnp.asarray(start() + away)[:, None], jnp.asarray(radius)[:, None]))
    speed, dt = np.array([1, 1, np.inf]), 0.4
    aim = FrameTask(robot.frame("tip"), jnp.asarray(start() + ways), 1.0, None)
    limits = ConfigurationLimit(), jaxik.CollisionLimit(ball, margin=0.0, gain=1.0)
    yielding = Elastic(VelocityLimit(speed), penalty=1e-3, name="speed")
    problem = Problem(robot, {"rest": PostureTask(BENT, cost=0.1)}, (*limits, yielding), {"tip": Elastic(aim)})
    taken = jax.tree.map(np.asarray, jaxik.step(problem, BENT, dt))
    np.testing.assert_array_equal(taken.fraction, [0, 0.5, 1])
    step = 1e-5 * dt * taken.velocity
    poses = arm().frame_pose(BENT + np.stack([0 * step, step, -step]), arm().frame("tip"))
    now, ahead, behind = poses.rotation().inverse() @ jnp.asarray(start() + ways - poses.translation())
    missed = now + (ahead - behind) / 2e-5
    np.testing.assert_allclose(taken.yielded["tip"]["position"], missed, atol=1e-8)
    np.testing.assert_array_equal(np.any(taken.yielded["tip"]["position"] != 0, axis=1), taken.fraction < 1)
    beyond = np.sign(taken.velocity) * np.maximum(np.abs(taken.velocity) - speed, 0)
    np.testing.assert_allclose(taken.yielded["speed"], dt * beyond, atol=1e-12)
    # Rows: one of the ball, then upper and lower bounds; the last joint has none.
    upper, lower = np.moveaxis(taken.limit_margins["rows"][:, 1:].reshape(3, 2, 3), 1, 0)
    np.testing.assert_allclose(upper, dt * (speed - taken.velocity), atol=1e-12)
    np.testing.assert_allclose(lower, dt * (speed + taken.velocity), atol=1e-12)


def test_rows_without_cost_are_no_weak_directions_and_what_no_task_reads_is_zero() -> None:
    """Of the elbow, which the last joint does not move: one row, then a pose in which the arm is stretched."""
    elbow, costs = arm().frame("lower"), np.array([[1.0, 0, 0], [1.0, 1.0, 1.0]])
    at = np.stack([arm().frame_pose(BENT, elbow).translation(), [2.0, 1.0, 0]])
    aim = FrameTask(elbow, jaxlie.SE3.from_translation(jnp.asarray(at)), costs, None, axes="world")
    rest = {"rest": PostureTask(BENT, cost=np.array([[0.1, 0.1, 0.1], [1.0, 0, 0]]))}
    problem = Problem(arm(), rest, (ConfigurationLimit(),), {"elbow": Elastic(aim)})
    model = jaxik.linearize(problem, np.array([BENT, [0.5, 0, 0]]), 0.01, damping=0.0)
    np.testing.assert_array_equal(model.elastic_damping[0], 0)
    np.testing.assert_allclose(model.H[0], 0.01 * np.eye(3), atol=1e-15)
    assert np.all(np.isfinite(np.asarray(model.b))) and np.any(np.asarray(model.unmet[1]) != 0)
    assert np.any(np.asarray(model.elastic_damping[1]) != 0)


@exhaustive
def test_lower_priorities_move_nothing_that_yields() -> None:
    problem = reaching(penalty=10.0)
    levels = dataclasses.replace(
        problem,
        tasks={"turn": FrameTask(arm().frame("tip"), jaxlie.SE3.identity(), None, 0.1)}
        | {"rest": PostureTask(BENT, cost=0.1, priority=1)},
    )
    first = dataclasses.replace(levels, tasks={"turn": levels.tasks["turn"]})
    both, alone = jaxik.step(levels, BENT, 0.01), jaxik.step(first, BENT, 0.01)
    assert np.all(np.asarray(both.status) == Status.CONVERGED)
    np.testing.assert_allclose(both.yielded["tip"]["position"], alone.yielded["tip"]["position"], atol=1e-9)


# Two that yield to speed limits after one that is held; the arm is planar.
DEMANDS = np.array([[1e-4, 0.0, 0], [0.01, 0.002, 0], [0.003, 0.02, 0]])
DEMANDS_MOVE = np.array([[0.03, -0.02, 0], [0.01, 0.05, 0], [-0.04, 0.02, 0]])
Q_MOVES = np.array([[0.6, -0.3, 0.9], [-0.8, 0.4, 0.2], [0.5, 1.1, -0.7]])


@jax.jit
@chex.assert_max_traces(1)
def moved(demand: Any, q: Any, singular_value: Any, weights: Any) -> Any:
    """A step, its forward derivative along these moves, its status, and the reverse one of its weighted sum."""

    def outcome(demand: jax.Array, q: jax.Array) -> Any:
        taken = jaxik.step(reaching(demand, penalty=10.0, singular_value=singular_value), q, 0.005)
        return (taken.velocity, taken.yielded["tip"]["position"]), taken.derivative_status

    moves = jnp.asarray(DEMANDS_MOVE), jnp.asarray(Q_MOVES)
    values, slope, status = jax.linearize(outcome, demand, q, has_aux=True)
    return values, slope(*moves), status, jax.linear_transpose(slope, *moves)(weights)


WEIGHTS = np.array([[1.0, -2, 3], [0.5, 4, -1], [2, 1, -0.5]]), np.array([[7.0, -5, 1], [3, 9, 2], [-6, 8, 4]])


def assert_one_derivative(forward: Any, reverse: Any) -> None:
    """Of each element, the forward one along the moves, weighted, is the reverse one along them."""
    along = sum(np.sum(w * x, axis=1) for w, x in zip(WEIGHTS, forward, strict=True))
    moves = zip((DEMANDS_MOVE, Q_MOVES), reverse, strict=True)
    np.testing.assert_allclose(sum(np.sum(move * x, axis=1) for move, x in moves), along, rtol=1e-9)
    assert np.all(along != 0)


def test_derivatives_of_steps_are_central_differences() -> None:
    """Of a constraint that is held, and of ones that yield to speed limits; small enough that no direction is weak."""
    q, step = np.tile(BENT, (3, 1)), 1e-6
    now, ahead, behind = (moved(DEMANDS + s * DEMANDS_MOVE, q + s * Q_MOVES, 0.0, WEIGHTS) for s in (0.0, step, -step))
    values, found, status, reverse = now
    assert np.all(np.asarray(status) == DerivativeStatus.EXACT), status
    assert list(np.any(np.asarray(values[1]) != 0, axis=1)) == [False, True, True]
    for one, high, low in zip(found, ahead[0], behind[0], strict=True):
        np.testing.assert_allclose(one, (high - low) / (2 * step), atol=1e-5, rtol=1e-5)
    assert_one_derivative(found, reverse)


def test_reverse_derivatives_of_steps_beyond_reach_are_the_forward_ones() -> None:
    """Of a stretched arm, along which the singular value is small: what is damped there counts as given."""
    q = np.array([[0.5, 0.01, 0.0], [0.5, -0.02, 0.01], [0.5, 0.0, 0.0]])
    ahead = np.array([np.cos(0.5), np.sin(0.5), 0])
    demand = 1.2 * ahead - start() + np.array([[0.01], [0.03], [0.002]]) * ahead
    _, found, status, reverse = moved(demand, q, SINGULAR_VALUE, WEIGHTS)
    assert np.all(np.asarray(status) == DerivativeStatus.APPROXIMATE), status
    assert np.all(np.any(np.asarray(found[0]) != 0, axis=1)), found[0]
    assert_one_derivative(found, reverse)


@exhaustive
def test_derivatives_of_steps_with_elastic_speeds_are_central_differences() -> None:
    """Of a speed limit that holds every joint within it, at it, and beyond it."""
    ways = jnp.asarray([[1e-4, 0.0, 0], [0.1, 0.02, 0], [0.03, 0.2, 0]])
    penalties = np.array([1.0, 1.0, 1e-3])

    def outcome(ways: jax.Array) -> Any:
        limits = ConfigurationLimit(), Elastic(VelocityLimit(1.0), penalty=penalties)
        tasks = {"tip": tip_at(start() + ways), "rest": PostureTask(BENT, cost=0.1)}
        taken = jaxik.step(Problem(arm(), tasks, limits), BENT, 0.01)
        return (taken.velocity, taken.yielded), (taken.derivative_status, taken.qp.active)

    moves, step = jnp.asarray([[0.3, -0.2, 0], [0.1, 0.5, 0], [-0.4, 0.2, 0]]), 1e-6
    moved = jax.jit(lambda s: jax.jvp(outcome, (ways + s * moves,), (moves,), has_aux=True))
    (_, found, (status, active)), (ahead, *_), (behind, *_) = (moved(s) for s in (0.0, step, -step))
    assert np.all(np.asarray(status) == DerivativeStatus.EXACT), status
    assert np.any(active.rows[1]) and not np.any(active.yielding[1]) and np.any(active.yielding[2])
    difference = jax.tree.map(lambda a, b: (a - b) / (2 * step), ahead, behind)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(difference), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)


def test_new_penalties_of_a_limit_recompile_nothing() -> None:
    """Where it yields, and where a joint that is held leaves more to the others."""
    calls = []

    @jax.jit
    def taken(penalty: Any, mask: Any) -> Any:
        calls.append(None)
        limits = ConfigurationLimit(), Elastic(VelocityLimit(1.0), penalty=penalty)
        tip = tip_at(start() + np.array([0.05, 0, 0]))
        result = jaxik.step(Problem(arm(), {"tip": tip}, limits, dof_mask=mask), BENT, 0.01)
        return result.status, result.yielded["velocity_limit"], result.velocity

    every, few = jnp.ones(3, bool), jnp.asarray([True, False, True])
    (weak, over, _), (strong, none, _), (held, rest, velocity) = (
        taken(jnp.asarray(penalty), mask) for penalty, mask in ((1e-3, every), (10.0, every), (1e-3, few))
    )
    assert [int(x) for x in (weak, strong, held)] == [Status.CONVERGED] * 3
    assert np.any(np.asarray(over) != 0) and np.any(np.asarray(rest) != 0) and velocity[1] == 0
    np.testing.assert_array_equal(none, 0)
    assert len(calls) == 1


def test_new_penalties_recompile_nothing_and_what_is_no_number_under_jit_is_a_status() -> None:
    """A penalty, and a target."""
    # Against a posture of cost 0.1.
    weak, strong = (taken(penalty, WAYS).yielded["tip"]["position"][0] for penalty in (1e-7, 10.0))
    assert np.any(np.asarray(weak) != 0)
    np.testing.assert_array_equal(strong, 0)
    for penalty, way in ((np.nan, 0.0), (-1.0, 0.0), (1.0, np.nan)):
        result = taken(penalty, np.full((3, 3), way))
        np.testing.assert_array_equal(result.status, Status.NONFINITE)
        for values in jax.tree.leaves((result.velocity, result.yielded)):
            np.testing.assert_array_equal(values, 0)


SPEED = VelocityLimit(1.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: Elastic(SPEED, penalty=0.0), "penalty is above zero and finite"),
        (lambda: Elastic(SPEED, penalty=np.nan), "penalty is above zero and finite"),
        (lambda: Elastic(SPEED, singular_value=-1.0), "singular_value must not be negative"),
        (lambda: Elastic(SPEED, order=-1), "order is a rank, 0"),
        (lambda: Elastic(SPEED, order=0.5), "order is a rank, 0"),  # type: ignore[arg-type]
        (lambda: Elastic(SPEED, name=3), "name is a text"),  # type: ignore[arg-type]
        (lambda: Elastic(SPEED, name="a/b"), "name is a text without '/'"),
        (lambda: Elastic(Elastic(SPEED)), "not of an Elastic"),
        (lambda: Elastic("speed"), "a task such as FrameTask or a limit such as VelocityLimit, not str"),
        (lambda: Elastic(JerkLimit(1.0)), "a JerkLimit does not yield"),
        (lambda: Elastic(tip_at(start()), name="tip"), "has its name in the problem"),
        (lambda: Problem(arm(), {"tip": Elastic(tip_at(start()))}), "tasks['tip'] is a Task"),
        (lambda: Problem(arm(), {"tip": tip_at(start())}, (Elastic(tip_at(start())),)), "is a constraint"),
        (lambda: Problem(arm(), {"tip": tip_at(start())}, None, {"a": Elastic(SPEED)}), "belongs into limits"),
        (lambda: Problem(arm(), {"tip": tip_at(start())}, (Elastic(SPEED), Elastic(SPEED))), "say Elastic(..., name="),
    ],
)
def test_mistakes_are_told_in_one_line(given: Any, said: str) -> None:
    with pytest.raises(JaxikError) as raised:
        given()
    assert said in str(raised.value) and "\n" not in str(raised.value), str(raised.value)
