"""Constraints, and limits that keep a distance, in `solve`: held to 1e-9, with the tasks at their best within them.

Oracles: C MuJoCo's own residuals of equality constraints, and the conditions of a minimum by finite differences of what
the robot's kinematics say, none of which the solver computes.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import own_tasks
import pytest
from scipy.optimize import nnls
from tables import exhaustive

import jaxik
from jaxik.robot.robot import Robot

# A four-bar linkage, closed by a connect, with a hinge of its own at the tool.
FOUR_BAR = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="left" pos="0 0 0">
      <joint name="crank" axis="0 1 0" range="-3 3" limited="true"/>
      <geom size=".01" mass="1"/>
      <body name="coupler" pos="0 0 .3">
        <joint name="knee" axis="0 1 0" range="-3 3" limited="true"/>
        <geom size=".01" mass="1"/>
        <body name="tool" pos=".4 0 .1">
          <joint name="wrist" axis="0 1 0" range="-2 2" limited="true"/>
          <geom size=".01" mass="1"/>
          <site name="tip" pos=".1 0 0"/>
        </body>
      </body>
    </body>
    <body name="right" pos=".4 0 0">
      <joint name="rocker" axis="0 1 0" range="-3 3" limited="true"/>
      <geom size=".01" mass="1"/>
    </body>
  </worldbody>
  <equality><connect name="loop" body1="coupler" body2="right" anchor=".4 0 0"/></equality>
</mujoco>
"""
COUNT = 24
FEASIBLE = 1e-9


@cache
def four_bar() -> Robot:
    return jaxik.load_robot(FOUR_BAR)


@cache
def panda() -> Robot:
    return jaxik.load_robot("panda")


def closure_by_mujoco(qs: Any) -> np.ndarray:
    """Largest residual of the loop, by C MuJoCo."""
    model = mujoco.MjModel.from_xml_string(FOUR_BAR)
    data, worst = mujoco.MjData(model), []
    for q in np.asarray(qs):
        data.qpos[:] = q
        mujoco.mj_fwdPosition(model, data)
        worst.append(np.abs(data.efc_pos[: data.ne]).max())
    return np.asarray(worst)


def slope(function: Any, robot: Robot, q: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences (m, nv) of a function of a configuration along `integrate`; all points in one call."""
    moves = step * np.concatenate([np.eye(robot.nv), -np.eye(robot.nv)])
    values = np.asarray(function(robot.integrate(np.broadcast_to(q, (2 * robot.nv, robot.nq)), moves)))
    return (values[: robot.nv] - values[robot.nv :]).T / (2 * step)


def out_of_balance(gradient: np.ndarray, equalities: np.ndarray, outward: np.ndarray) -> float:
    """What is left of a gradient (n,) that equalities (m, n) and active inequalities (k, n) could balance."""
    columns = np.concatenate([equalities, -equalities, outward]).T
    return float(nnls(columns, -gradient)[1])


def bounds_at(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Outward normals (k, nv) of the joint limits that a configuration of hinges is on."""
    eye, lower, upper = np.eye(robot.nv), np.asarray(robot.limit_lower), np.asarray(robot.limit_upper)
    return np.concatenate([eye[q >= upper - 1e-9], -eye[q <= lower + 1e-9]])


@pytest.fixture(scope="module")
def closed_loop() -> tuple[Any, Any, jaxik.Solution]:
    """Solutions for tips that the linkage reaches (the first half) and tips out of its reach."""
    robot, tip = four_bar(), four_bar().frame("tip")
    rng = np.random.default_rng(0)
    starts = rng.uniform(-0.6, 0.6, (COUNT, robot.nq))

    @partial(jax.jit, static_argnums=0)
    def solved(orientation: Any, starts: Any, target: Any) -> jaxik.Solution:
        return jaxik.solve(
            jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target, orientation_cost=orientation)}), starts
        )

    away = jnp.asarray(robot.frame_pose(starts, tip).translation())
    closed = solved(None, starts, away).q  # wherever the loop is closed nearby
    target = robot.frame_pose(closed, tip).translation() + np.where(np.arange(COUNT) < COUNT // 2, 0.0, 0.5)[:, None]
    return starts, target, solved(None, starts, target)


def test_closed_loops_hold_by_mujocos_own_measure(closed_loop: Any) -> None:
    _, _, solution = closed_loop
    assert (closure_by_mujoco(solution.q) <= FEASIBLE).all()
    assert np.abs(np.asarray(solution.residuals["model"])).max() <= FEASIBLE


def test_targets_that_the_loop_reaches_are_reached(closed_loop: Any) -> None:
    _, _, solution = closed_loop
    status = np.asarray(solution.status)
    assert (status[: COUNT // 2] == jaxik.Status.CONVERGED).mean() >= 0.9
    assert (status[COUNT // 2 :] == jaxik.Status.STALLED).mean() >= 0.9


def test_out_of_reach_the_tip_is_as_near_as_the_loop_lets_it(closed_loop: Any) -> None:
    _, target, solution = closed_loop
    robot, tip = four_bar(), four_bar().frame("tip")
    settled = np.flatnonzero(np.asarray(solution.status) == jaxik.Status.STALLED)
    assert len(settled) >= COUNT // 3
    one, other = robot.frame("coupler", kind="body"), robot.frame("right", kind="body")

    def gap(q: Any) -> jax.Array:
        return robot.frame_pose(q, one).apply(jnp.array([0.4, 0, 0])) - robot.frame_pose(q, other).translation()

    for i in settled:
        q = np.asarray(solution.q[i])
        gradient = slope(
            lambda q, i=i: 0.5 * jnp.sum((robot.frame_pose(q, tip).translation() - target[i]) ** 2, -1), robot, q
        )
        assert out_of_balance(np.ravel(gradient), slope(gap, robot, q), bounds_at(robot, q)) < 1e-7


@pytest.fixture(scope="module")
def below_a_plane() -> tuple[Any, Any, jaxik.Solution, jaxik.Solution]:
    """The Panda's tip under a ceiling at 0.5 m, and without one; targets on both sides."""
    robot, tip = panda(), panda().frame("tcp")
    target = robot.frame_pose(robot.sample(jax.random.key(0), (COUNT,)), tip)
    middle = 0.5 * (robot.limit_lower + robot.limit_upper)

    def solved(limits: Any) -> jaxik.Solution:
        return jaxik.solve(jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target)}, limits=limits), middle)

    ceiling = jaxik.PositionLimit(tip, [0.0, 0.0, 2.0], 0.5)
    return target, ceiling, solved((jaxik.ConfigurationLimit(), ceiling)), solved(None)


@exhaustive
def test_half_spaces_hold_exactly_whatever_is_asked(below_a_plane: Any) -> None:
    _, _, solution, _ = below_a_plane
    robot, tip = panda(), panda().frame("tcp")
    height = np.asarray(robot.frame_pose(solution.q, tip).translation()[:, 2])
    assert (height <= 0.5 + FEASIBLE).all()
    assert robot.check_limits(solution.q).all()
    assert (np.abs(height - 0.5) < 1e-6).sum() >= COUNT // 3  # some targets are above


@exhaustive
def test_half_spaces_that_are_not_in_the_way_cost_no_solution(below_a_plane: Any) -> None:
    target, _, solution, free = below_a_plane
    under = np.asarray(target.translation()[:, 2]) < 0.5
    solved, without = (np.asarray(s.converged)[under] for s in (solution, free))
    assert solved.sum() >= without.sum() - 1 and solved.sum() >= 5


@exhaustive
def test_against_a_half_space_the_tip_is_as_near_as_it_gets(below_a_plane: Any) -> None:
    target, _, solution, _ = below_a_plane
    robot, tip = panda(), panda().frame("tcp")
    settled = np.flatnonzero(np.asarray(solution.status) == jaxik.Status.STALLED)
    assert len(settled) >= COUNT // 3
    for i in settled:
        q, goal = np.asarray(solution.q[i]), jax.tree.map(lambda x, i=i: x[i], target)
        gradient = slope(
            lambda q, goal=goal: 0.5 * jnp.sum((robot.frame_pose(q, tip).inverse() @ goal).log() ** 2, -1), robot, q
        )
        height = slope(lambda q: robot.frame_pose(q, tip).translation()[:, 2:], robot, q)
        on_it = float(robot.frame_pose(q, tip).translation()[2]) > 0.5 - 1e-9
        outward = np.concatenate([height[: int(on_it)], bounds_at(robot, q)])
        assert out_of_balance(np.ravel(gradient), np.zeros((0, robot.nv)), outward) < 1e-6


LIGHT, HEAVY, APART = slice(0, 6), slice(6, 12), slice(12, 13)


@cache
def held_twice() -> jaxik.Solution:
    """A tip that two constraints hold where it nearly is, at a low and at a high cost; last, one that they pull apart.

    Of the linkage without its loop, which is a planar arm.
    """
    robot, tip = four_bar(), four_bar().frame("tip")
    start = np.tile(np.random.default_rng(3).uniform(-1, 1, (6, robot.nq)), (2, 1))
    goal = np.asarray(robot.frame_pose(0.9 * start, tip).translation())
    cost = np.repeat([1e-3, 1e3, 1.0], [6, 6, 1])[:, None]

    def at(height: float) -> jaxik.FrameTask:
        return jaxik.FrameTask(tip, np.append(goal, [[0.4, 0.0, height]], axis=0), cost, None)

    held = {"low": at(0.3), "high": at(0.5)}
    tasks = {"posture": jaxik.PostureTask(robot.q_home)}
    return jaxik.solve(jaxik.Problem(robot, tasks, constraints=held), np.append(start, 0 * start[:1], axis=0))


@exhaustive
def test_constraints_that_contradict_each_other_are_infeasible_and_as_near_as_possible() -> None:
    apart = jax.tree.map(lambda x: x[APART], held_twice())
    assert np.asarray(apart.status).tolist() == [jaxik.Status.INFEASIBLE]
    found = np.asarray(four_bar().frame_pose(apart.q[0], "tip").translation())
    np.testing.assert_allclose(found, [0.4, 0.0, 0.4], atol=1e-3)
    with pytest.raises(jaxik.JaxikError, match="drop or relax a constraint"):
        apart.check()


@exhaustive
def test_a_task_as_constraint_holds_whatever_its_cost_and_the_posture_gives_way() -> None:
    light, heavy = (jax.tree.map(lambda x, at=at: x[at], held_twice()) for at in (LIGHT, HEAVY))
    for solution in (light, heavy):
        assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(solution.residuals["low"])) <= FEASIBLE
        assert float(jnp.abs(solution.residuals["posture"]).max()) > 0.1
    np.testing.assert_array_equal(light.q, heavy.q)


@exhaustive
def test_elements_alone_are_solved_as_in_a_batch() -> None:
    robot, tip = four_bar(), four_bar().frame("tip")
    starts = np.random.default_rng(2).uniform(-0.5, 0.5, (3, robot.nq))
    problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, jnp.array([0.5, 0.0, 0.3]), orientation_cost=None)})
    together, alone = jaxik.solve(problem, starts), jax.vmap(lambda q: jaxik.solve(problem, q))(starts)
    np.testing.assert_array_equal(together.q, alone.q)
    single = jaxik.solve(problem, starts[0])
    np.testing.assert_allclose(single.q, together.q[0], atol=1e-8)
    assert int(single.status) == int(together.status[0])


@exhaustive
def test_planes_can_be_switched_off_and_moved_for_each_element() -> None:
    robot, tip = four_bar(), four_bar().frame("tip")
    target = jnp.array([0.4, 0.0, 0.6])
    offsets = jnp.array([0.5, jnp.inf, 0.7])
    limits = (jaxik.ConfigurationLimit(), jaxik.PositionLimit(tip, [0.0, 0.0, 1.0], offsets))
    wrist = robot.q_indices("wrist")[0]
    mask = np.ones((3, robot.nv), bool)
    mask[2, wrist] = False
    tasks = {"tip": jaxik.FrameTask(tip, target, orientation_cost=None)}
    start = jnp.array([0.1, 0.2, 0.3, 0.0])
    solution = jaxik.solve(jaxik.Problem(robot, tasks, limits, {}, mask), start)
    assert np.asarray(solution.status).tolist() == [jaxik.Status.STALLED, *[jaxik.Status.CONVERGED] * 2]
    height = np.asarray(robot.frame_pose(solution.q, tip).translation()[:, 2])
    np.testing.assert_allclose(height, [0.5, 0.6, 0.6], atol=1e-4)
    assert solution.q[2, wrist] == start[wrist]


@exhaustive
def test_when_steps_run_out_some_are_left_for_the_constraints() -> None:
    robot, tip = four_bar(), four_bar().frame("tip")
    starts = np.random.default_rng(3).uniform(-0.6, 0.6, (COUNT, robot.nq))
    away = jaxik.FrameTask(tip, jnp.array([0.9, 0.0, 0.7]), orientation_cost=None)
    options = jaxik.SolveOptions(max_steps=16)
    solution = jaxik.solve(jaxik.Problem(robot, {"tip": away}), starts, options=options)
    assert (np.asarray(solution.iterations) <= 16).all()
    assert (np.asarray(solution.status) != jaxik.Status.INFEASIBLE).all()
    assert (closure_by_mujoco(solution.q) <= FEASIBLE).mean() >= 0.9


@pytest.fixture(scope="module")
def in_a_corner() -> jaxik.Solution:
    """The Panda's tip under a ceiling and beside a wall, looking at a point: targets that are mostly out of reach."""
    robot, tip = panda(), panda().frame("tcp")
    target = robot.frame_pose(robot.sample(jax.random.key(5), (COUNT,)), tip)
    planes = [jaxik.PositionLimit(tip, normal, offset) for normal, offset in zip(CORNER, OFFSETS, strict=True)]
    return jaxik.solve(
        jaxik.Problem(
            robot,
            {"tip": jaxik.FrameTask(tip, target, orientation_cost=None)},
            (jaxik.ConfigurationLimit(), *planes),
            {"look": jaxik.LookAtTask(tip, SEEN)},
        ),
        robot.sample(jax.random.key(8), (COUNT,)),
    )


CORNER = np.array([[0, 0, 1], [np.sqrt(0.5), np.sqrt(0.5), 0]])
OFFSETS = (0.5, 0.3)
SEEN = np.array([0.6, 0.0, -0.5])


def test_several_half_spaces_and_a_constraint_hold_together(in_a_corner: jaxik.Solution) -> None:
    robot, tip = panda(), panda().frame("tcp")
    reached = np.asarray(robot.frame_pose(in_a_corner.q, tip).translation())
    assert (reached @ CORNER.T <= OFFSETS + np.float64(FEASIBLE)).all()
    assert np.abs(np.asarray(in_a_corner.residuals["look"])).max() <= FEASIBLE
    assert robot.check_limits(in_a_corner.q).all()
    # 10 of 24 ran out of steps where what restores the constraints let go of what the task presses against its bound.
    assert (np.asarray(in_a_corner.status) == jaxik.Status.TIMEOUT).sum() <= 3


def test_stationarity_in_a_corner_is_that_of_the_configuration_returned(in_a_corner: jaxik.Solution) -> None:
    robot, tip = panda(), panda().frame("tcp")
    settled = np.flatnonzero(np.asarray(in_a_corner.status) == jaxik.Status.STALLED)
    assert len(settled) >= COUNT // 2
    # Of those that end on damped steps the last undamped one could be 0.1 long, a hundred steps before.
    assert np.mean(np.asarray(in_a_corner.stationarity)[settled] < 1e-5) >= 0.8
    target = robot.frame_pose(robot.sample(jax.random.key(5), (COUNT,)), tip).translation()

    def seen(q: Any) -> jax.Array:
        away = robot.frame_pose(q, tip).inverse().apply(SEEN)
        return away / jnp.linalg.norm(away, axis=-1, keepdims=True)

    for i in settled:
        q = np.asarray(in_a_corner.q[i])
        gradient = slope(
            lambda q, i=i: 0.5 * jnp.sum((robot.frame_pose(q, tip).translation() - target[i]) ** 2, -1), robot, q
        )
        heights = slope(lambda q: robot.frame_pose(q, tip).translation() @ CORNER.T, robot, q)
        on_it = np.asarray(robot.frame_pose(q, tip).translation()) @ CORNER.T > np.asarray(OFFSETS) - 1e-8
        outward = np.concatenate([heights[on_it], bounds_at(robot, q)])
        assert out_of_balance(np.ravel(gradient), slope(seen, robot, q), outward) < 1e-5


@jaxik.pytree
class Forward(jaxik.Task):
    """How far the centre of mass is in front of the base."""

    subtrees = (0,)

    def residual(self, robot: Robot, kin: Any) -> jax.Array:
        return kin.center_of_mass(0)[0]


FOLDED = jnp.array([0.2, 2.4])


def in_front(robot: Robot, bound: Any) -> jaxik.TaskLimit:
    return jaxik.TaskLimit(Forward(), lower=bound)


def near_a_point(robot: Robot, bound: Any) -> jaxik.TaskLimit:
    point = jaxik.FrameTask(robot.frame("tip"), jnp.array([1.5, 0.6, 0.0]), orientation_cost=None)
    return jaxik.TaskLimit(point, largest={"position": bound})


def below_a_bound(robot: Robot, bound: Any) -> jaxik.TaskLimit:
    """Below a bound along the x axis of a frame that leans."""
    point = jaxik.FrameTask(robot.frame("tip"), jnp.array([1.2, 1.0, 0.0]), orientation_cost=None)
    return jaxik.TaskLimit(point, upper={"position": jnp.stack([jnp.asarray(bound), jnp.inf, jnp.inf])})


@pytest.mark.parametrize(
    ("limit", "bound"),
    [
        pytest.param(near_a_point, 0.3, id="norm"),
        pytest.param(in_front, 0.8, id="com", marks=exhaustive),
        pytest.param(below_a_bound, -0.55, id="rows", marks=exhaustive),
    ],
)
def test_a_limit_of_any_task_holds_in_solve_and_step(limit: Any, bound: float) -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR)

    def problem(bound: Any) -> jaxik.Problem:
        tasks = {"rest": jaxik.PostureTask(FOLDED, gain=0.1)}
        return jaxik.Problem(robot, tasks, limits=(limit(robot, bound),))

    @jax.jit
    def room(q: jax.Array) -> jax.Array:
        """What is left of the bounds, by finite bounds alone."""
        of = limit(robot, bound)
        kin = robot.kinematics(q, of.frames, of.subtrees)
        left = jnp.stack([task.residual(robot, kin) for task in of.inequality_tasks()])
        return jnp.min(left)

    assert room(FOLDED) < -0.05
    solution = jaxik.solve(problem(bound))
    assert solution.status == jaxik.Status.CONVERGED
    assert room(solution.q) == pytest.approx(0, abs=1e-9)
    # Of the configurations on the edge it is the nearest: the difference is along the edge's normal.
    normal, away = jax.jit(jax.grad(room))(solution.q), solution.q - FOLDED
    assert abs(normal[0] * away[1] - normal[1] * away[0]) < 1e-8 and normal @ away > 0

    q = robot.q_home
    for _ in range(120):
        q = jaxik.step(problem(bound), q, 0.01).q
    assert room(q) > -1e-3
    np.testing.assert_allclose(q, solution.q, atol=2e-3)


@exhaustive
@pytest.mark.parametrize(("limit", "bound"), [(near_a_point, 0.3), (below_a_bound, -0.55)], ids=["norm", "rows"])
def test_solutions_have_derivatives_by_the_bounds_of_a_task_limit(limit: Any, bound: float) -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR)

    def first(bound: Any) -> jax.Array:
        problem = jaxik.Problem(robot, {"rest": jaxik.PostureTask(FOLDED)}, limits=(limit(robot, bound),))
        return jaxik.solve(problem).q[0]

    slope = jax.grad(first)(bound)
    near = [float(first(bound + d)) for d in (-1e-5, 1e-5)]
    assert slope == pytest.approx((near[1] - near[0]) / 2e-5, rel=1e-5)
