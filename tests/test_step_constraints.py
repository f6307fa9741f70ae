"""Hard constraints of a step: any task, exactly, or none of it."""

from functools import cache, partial
from typing import Any

import jax
import jaxlie
import numpy as np
import pytest
from limit_rows import UNOPTIMISED, mixed
from own_tasks import Height
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import Problem, Status, linearize, step
from jaxik.robot.robot import Robot

DT = 0.02
COUNT = 3
GAIN = 0.5


@cache
def asked() -> dict[str, np.ndarray]:
    """Elements: a few at random, one that is too slow, one whose constraints contradict each other, one with NaN."""
    robot, rng = mixed(), np.random.default_rng(0)
    q = np.asarray(robot.sample(jax.random.key(1), (COUNT + 3,)))
    pose = np.asarray(robot.frame_pose(q, "tip").wxyz_xyz) + np.append(np.zeros(4), [0.05, -0.03, 0.02])
    again, fast = pose.copy(), np.full(len(q), 1e3)
    fast[COUNT], again[COUNT + 1, 4], pose[COUNT + 2, 4] = 1e-3, again[COUNT + 1, 4] + 0.01, np.nan
    return {
        "q": q,
        "pose": pose,
        "again": again,
        "com": np.asarray(robot.center_of_mass(q)) + rng.uniform(-0.05, 0.05, (len(q), 3)),
        "posture": np.asarray(robot.sample(jax.random.key(2), (len(q),))),
        "fast": fast,
    }


def constraints(at: dict[str, Any]) -> dict[str, jaxik.Task]:
    robot = mixed()
    tip, own = robot.frame("tip"), np.zeros(robot.nv)
    own[robot.v_indices("endless")[0]] = 1.0  # rows without a cost are none
    return {
        "pose": jaxik.FrameTask(tip, jaxlie.SE3(at["pose"]), 3.0, 0.1, gain=GAIN),
        "pose again": jaxik.FrameTask(tip, jaxlie.SE3(at["again"]), gain=GAIN),
        "height": Height(robot.frame("elsewhere"), 0.1),
        "com": jaxik.ComTask(at["com"], [1.0, 1.0, 0.0], gain=GAIN),
        "coupling": jaxik.JointCouplingTask(("hinge", "slide"), np.array([1.0, -2.0]), 0.1, gain=GAIN),
        "own": jaxik.PostureTask(at["posture"], own, gain=GAIN),
        "dexterity": jaxik.ManipulabilityTask(tip, 1.0, gain=0.01),
    }


@cache
def answers() -> tuple[Any, jaxik.StepResult]:
    @partial(jax.jit, compiler_options=UNOPTIMISED)
    @jax.vmap
    def stepped(at: dict[str, Any]) -> Any:
        tasks = {"rest": jaxik.PostureTask(at["posture"], 0.3), "slow": jaxik.DampingTask(0.1)}
        problem = Problem(mixed(), tasks, (jaxik.VelocityLimit(at["fast"]),), constraints(at))
        return linearize(problem, at["q"], DT), step(problem, at["q"], DT)

    return jax.device_get(stepped(asked()))


@exhaustive
def test_constraints_hold_exactly_although_some_are_given_twice() -> None:
    model, result = answers()
    np.testing.assert_array_equal(result.status[:COUNT], Status.CONVERGED)
    x = result.velocity * DT
    at = jax.tree.map(lambda leaf: leaf[0], asked())
    for name, task in constraints(at).items():
        parts = zip(*map(jax.tree.leaves, (model.residuals[name], model.jacobians[name])), strict=True)
        for part, (residual, jacobian) in enumerate(parts):
            residual, jacobian = residual.reshape(len(x), -1), jacobian.reshape(len(x), -1, x.shape[1])
            for i in range(COUNT):
                left = jacobian[i] @ x[i] + task.gain * residual[i]
                if name in ("com", "own"):
                    left = left[np.flatnonzero(np.broadcast_to(task.cost, left.shape))]
                np.testing.assert_allclose(left, 0, atol=1e-10, err_msg=f"{name}, {part}")
    np.testing.assert_allclose((model.A[:COUNT] @ x[:COUNT, :, None])[..., 0], model.b[:COUNT], atol=1e-10)
    assert np.abs(x[:COUNT]).max() > 1e-2


@exhaustive
def test_what_contradicts_itself_is_infeasible_beside_tasks_of_every_kind() -> None:
    _, result = answers()
    np.testing.assert_array_equal(result.status[COUNT:], [Status.INFEASIBLE, Status.INFEASIBLE, Status.NONFINITE])
    np.testing.assert_array_equal(result.velocity[COUNT:], 0)
    np.testing.assert_array_equal(result.q[COUNT:], asked()["q"][COUNT:])


# A parallelogram of the bodies a, b and c, closed in the plane: one of its three rows says nothing. "d" follows "a".
LINKAGE = """
<mujoco model="linkage"><compiler angle="radian"/><worldbody>
  <body name="a"><joint name="a" axis="0 0 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
    <body name="b" pos="1 0 0"><joint name="b" axis="0 0 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
  </body></body>
  <body name="c" pos="0 1 0"><joint name="c" axis="0 0 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>
  <body name="d" pos="0 3 0"><joint name="d" axis="0 0 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>
</worldbody><equality>
  <connect name="closed" body1="b" body2="c" anchor="0 1 0"/>
  <joint name="follows" joint1="d" joint2="a" polycoef="0 0.5 0 0 0"/>
</equality></mujoco>"""


@cache
def linkage() -> Robot:
    return jaxik.load_robot(LINKAGE)


@cache
def driven(way: str) -> jaxik.StepResult:
    """Twenty steps of "a" to 0.4 with the model's own constraints, the same given by name, or none."""
    robot = linkage()
    goal, cost = robot.configuration({"a": 0.4}), np.array([1.0, 0, 0, 0])
    ways: dict[str, Any] = {
        "None": None,
        "given": {"own": jaxik.EqualityConstraintTask(robot.equalities())},
        "{}": {},
    }

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def run() -> Any:
        problem = Problem(robot, {"drive": jaxik.PostureTask(goal, cost, gain=0.5)}, constraints=ways[way])

        def advance(q: Any, _: Any) -> Any:
            result = step(problem, q, DT)
            return result.q, result

        return jax.lax.scan(advance, robot.q_home, length=20)[1]

    return jax.device_get(run())


@pytest.mark.parametrize("way", mostly_exhaustive(["None", "given"], ["None"]))
def test_the_models_own_constraints_hold_where_none_are_named(way: str) -> None:
    result = driven(way)
    np.testing.assert_array_equal(result.status, Status.CONVERGED)
    np.testing.assert_allclose(result.q[-1, 0], 0.4, atol=1e-5)
    np.testing.assert_allclose(result.q[-1, 3], 0.2, atol=1e-5)
    held = linkage().frame_pose(result.q[-1], "b") @ jaxlie.SE3.from_translation(np.array([0.0, 1, 0]))
    other = linkage().frame_pose(result.q[-1], "c") @ jaxlie.SE3.from_translation(np.array([1.0, 0, 0]))
    np.testing.assert_allclose(held.translation(), other.translation(), atol=1e-9)
    np.testing.assert_allclose(result.velocity, driven("None").velocity, atol=1e-10)


@exhaustive
def test_without_constraints_nothing_follows() -> None:
    result = driven("{}")
    np.testing.assert_allclose(result.q[-1], [0.4, 0, 0, 0], atol=1e-5)


@exhaustive
def test_directions_are_held_although_no_motion_makes_up_their_whole_residual() -> None:
    robot = mixed()
    look = jaxik.LookAtTask(robot.frame("elsewhere"), np.array([0.3, -1.0, 0.4]), gain=GAIN)
    align = jaxik.AxisAlignTask(robot.frame("tip"), np.array([1.0, 2.0, 0.5]), gain=GAIN)
    problem = Problem(robot, {"rest": jaxik.PostureTask(robot.q_home)}, (), {"look": look, "align": align})

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def turned(q: jax.Array) -> Any:
        return linearize(problem, q, DT), step(problem, q, DT)

    model, result = jax.device_get(turned(robot.sample(jax.random.key(4), (6,))))
    np.testing.assert_array_equal(result.status, Status.CONVERGED)
    for name in ("look", "align"):
        assert np.abs(model.errors[name]).max() > 0.5
        left = np.einsum("bij,bj->bi", model.jacobians[name], result.velocity * DT) + GAIN * model.residuals[name]
        np.testing.assert_allclose(left, 0, atol=1e-10)


TURNED = """
<mujoco><compiler angle="radian"/><worldbody><body euler="1.5707963267948966 0 0">
  <body><joint name="a" axis="0 0 1"/><geom size=".01" mass="1"/>
    <body pos="1 0 0"><joint name="b" axis="0 0 1"/><geom size=".01" mass="1"/>
      <body pos="1 0 0"><joint name="c" axis="0 0 1"/><geom size=".01" mass="1"/><site name="tip" pos="1 0 0"/></body>
    </body></body></body></worldbody></mujoco>
"""


@cache
def in_a_turned_plane(dtype: Any) -> tuple[np.ndarray, jaxik.StepResult]:
    """An arm in a plane that is turned by a rounded right angle: out of the plane, its Jacobian is 1e-17.

    Its tip is held twice. The last three elements: too slow, held at two places, and NaN.
    """
    robot = jaxik.load_robot(TURNED)
    tip = robot.frame("tip")
    q = np.asarray(robot.sample(jax.random.key(0), (11,)), dtype)
    near = np.array(robot.frame_pose(q + 0.02, tip).translation())
    again, fast = near.copy(), np.full((11, 1), 1e3)
    fast[8], again[9, 0], near[10] = 1e-3, near[9, 0] + 0.01, np.nan
    held = {name: jaxik.FrameTask(tip, at, orientation_cost=None) for name, at in (("tip", near), ("again", again))}
    tasks = {"rest": jaxik.PostureTask(np.zeros(3))}
    return q, jax.device_get(step(Problem(robot, tasks, (jaxik.VelocityLimit(fast),), held), q, DT))


each_dtype = pytest.mark.parametrize("dtype", mostly_exhaustive([np.float32, np.float64], [np.float32]))


@each_dtype
def test_rows_that_are_the_rounding_of_zero_ask_for_nothing(dtype: Any) -> None:
    np.testing.assert_array_equal(in_a_turned_plane(dtype)[1].status[:8], Status.CONVERGED)


@each_dtype
def test_what_contradicts_itself_is_infeasible_and_moves_nothing(dtype: Any) -> None:
    q, result = in_a_turned_plane(dtype)
    np.testing.assert_array_equal(result.status[8:], [Status.INFEASIBLE, Status.INFEASIBLE, Status.NONFINITE])
    np.testing.assert_array_equal(result.velocity[8:], 0)
    np.testing.assert_array_equal(result.q[8:], q[8:])


@exhaustive
def test_half_spaces_across_what_does_not_move_ask_for_nothing() -> None:
    robot = jaxik.load_robot(TURNED)
    q = np.asarray(robot.sample(jax.random.key(0), (8,)), np.float32)
    tasks = {"rest": jaxik.PostureTask(np.zeros(3))}
    across = jaxik.PositionLimit(robot.frame("tip"), [0.0, 1.0, 0.0], -0.1)
    behind = step(Problem(robot, tasks, (across,)), q, DT)
    np.testing.assert_allclose(behind.velocity, step(Problem(robot, tasks, ()), q, DT).velocity, rtol=1e-4, atol=1e-4)


ASKEW = 'euler="0.4 -0.9 1.3" pos="3 -2 1"'


Scene = tuple[Robot, dict[str, jaxik.Task], np.ndarray]


def arm_in_a_plane() -> tuple[Robot, np.ndarray]:
    return jaxik.load_robot(TURNED.replace('euler="1.5707963267948966 0 0"', ASKEW)), np.array([0.4, 1.1, -0.7])


def two_directions() -> Scene:
    robot = mixed()
    look = jaxik.LookAtTask(robot.frame("tip"), np.array([3.0, -1.0, 0.4]), gain=GAIN)
    held = {"look": look, "align": jaxik.AxisAlignTask(robot.frame("upper"), np.array([1.0, 2.0, 0.5]), gain=GAIN)}
    return robot, held, np.asarray(robot.sample(jax.random.key(4), (8,)))


def pose_in_a_plane() -> Scene:
    """Six rows of which three follow from the others, none of them zero."""
    robot, goal = arm_in_a_plane()
    pose = jaxik.FrameTask(robot.frame("tip"), robot.frame_pose(goal, "tip"), gain=GAIN, axes="world")
    return robot, {"tip": pose}, goal + np.random.default_rng(0).uniform(-0.5, 0.5, (8, 3))


def look_from_near() -> Scene:
    """From 8 mm: what is rounding of the tip's position is 100 times that of the direction; one row is zero."""
    robot, goal = arm_in_a_plane()
    tip, along = robot.frame_pose(goal, "tip"), np.array([1.0, 0.0, 0.0])
    look = jaxik.LookAtTask(robot.frame("tip"), tip @ (0.008 * along), along, gain=GAIN)
    return robot, {"look": look}, goal + np.random.default_rng(0).uniform(-2e-4, 2e-4, (64, 3))


def loop_in_a_plane() -> Scene:
    """The linkage, started somewhat open."""
    askew = LINKAGE.replace("<worldbody>", f"<worldbody><body {ASKEW}>").replace("</worldbody>", "</body></worldbody>")
    robot = jaxik.load_robot(askew)
    held: dict[str, jaxik.Task] = {"closed": jaxik.EqualityConstraintTask(robot.equalities(), gain=GAIN)}
    return robot, held, np.random.default_rng(0).uniform(-0.2, 0.2, (8, robot.nq))


@pytest.mark.parametrize(
    ("scene", "dtype", "left"),
    [
        pytest.param(two_directions, np.float64, 1e-14, marks=exhaustive),
        pytest.param(pose_in_a_plane, np.float64, 1e-14, marks=exhaustive),
        pytest.param(pose_in_a_plane, np.float32, 1e-6, marks=exhaustive),
        (loop_in_a_plane, np.float64, 1e-14),
        # So near, the posture still turns it: 5e-5 to 4e-4 are left, by how XLA rounds.
        pytest.param(look_from_near, np.float64, 1e-3, marks=exhaustive),
    ],
)
def test_rows_that_follow_from_others_contradict_nothing_down_to_the_last_digit(
    scene: Any, dtype: Any, left: float
) -> None:
    """In a closed loop of steps: in the end residuals are rounding, and no motion makes up all of that."""
    robot, held, q = scene()
    problem = Problem(robot, {"rest": jaxik.PostureTask(q[0], 0.3)}, None, held)

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def run(q: jax.Array) -> Any:
        def advance(q: jax.Array, _: Any) -> Any:
            result = step(problem, q, DT)
            return result.q, (result.status, result.qp.kkt_residual, {name: result.residuals[name] for name in held})

        return jax.lax.scan(advance, q, length=60)[1]

    status, kkt, residuals = jax.device_get(run(np.asarray(q, dtype)))
    np.testing.assert_array_equal(status, Status.CONVERGED)
    assert kkt.max() < 64 * np.finfo(dtype).eps
    first, last = (max(np.abs(x[i]).max() for x in jax.tree.leaves(residuals)) for i in (0, -1))
    assert first > 0.05 and last < left
