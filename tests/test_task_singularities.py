"""Tasks where formulas have their singularities, and tasks that are solved."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest
from derivatives import QUICK
from second_order import second_order
from tables import exhaustive

import jaxik
from jaxik import (
    AxisAlignTask,
    ComTask,
    JointCouplingTask,
    LinearHolonomicTask,
    LookAtTask,
    ManipulabilityTask,
    OmniwheelTask,
    PostureTask,
    Problem,
    RelativeFrameTask,
    RollingTask,
    Status,
    Task,
)
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import evaluate, formulation
from jaxik.tasks.weights import row_weights

UP = [0.0, 0.0, 1.0]


@cache
def mixed() -> Robot:
    return jaxik.load_robot(own_tasks.MIXED)


def held(robot: Robot, q: Any) -> dict[str, Task]:
    """Tasks that are fulfilled at `q`."""
    return {
        "relative": RelativeFrameTask.from_configuration(robot, q, "tip", "elsewhere"),
        "relative orientation": RelativeFrameTask.from_configuration(robot, q, "tip", "world", position_cost=None),
        "com": ComTask.from_configuration(robot, q),
        "posture": PostureTask.from_configuration(robot, q, free_joints=True, tolerance=1e-3),
        "look": LookAtTask.from_configuration(robot, q, "tip"),
        "align": AxisAlignTask.from_configuration(robot, q, "tip"),
        "coupled": JointCouplingTask.from_configuration(robot, q, ("slide", "hinge"), [1.0, -2.0]),
        "holonomic": LinearHolonomicTask.from_configuration(robot, q, np.ones((1, robot.nv)), q),
        "rolling": RollingTask(robot.frame("tip"), 0.2),
        "omniwheel": OmniwheelTask(robot.frame("tip"), 0.2, axle=UP),
    }


def degenerate(robot: Robot, q: jax.Array) -> dict[str, dict[str, Task]]:
    """The tasks, moved to where their formulas have a singularity."""
    tip = robot.frame_pose(q, "tip")
    tasks = held(robot, q)
    relative: Any = tasks["relative"]
    rates = np.zeros(robot.nv)
    rates[list(robot.v_indices("ball"))], rates[list(robot.v_indices("free"))[3:]] = [0, np.pi, 0], [np.pi, 0, 0]
    turned = robot.integrate(q, rates)

    def changed(**changes: Any) -> dict[str, Task]:
        return tasks | changes

    def aside(turn: Any, position: Any) -> RelativeFrameTask:
        offset = jaxlie.SE3.from_rotation_and_translation(jaxlie.SO3.exp(jnp.array(turn)), jnp.array(position))
        return RelativeFrameTask(relative.frame, relative.root, relative.target @ offset)

    frame = robot.frame("tip")
    upright = jaxlie.SO3(tip.wxyz_xyz[:4])
    return {
        "none": tasks,
        "translation": changed(
            relative=aside([0.0, 0, 0], [0.3, -0.2, 0.1]), com=ComTask(robot.center_of_mass(q) + 1.0)
        ),
        "half turn": changed(
            relative=aside([0.0, np.pi, 0], [0.3, -0.2, 0.1]),
            posture=PostureTask(turned, free_joints=True, tolerance=1e-3),
            holonomic=LinearHolonomicTask(np.ones((1, robot.nv)), [0.0], turned),
            look=LookAtTask(frame, tip @ jnp.array([0.0, 0, -0.5])),
            align=AxisAlignTask(frame, upright @ jnp.array([0.0, 0, -1])),
        ),
        "no distance": changed(
            look=LookAtTask(frame, tip.translation()),
            omniwheel=OmniwheelTask(frame, 0.2, axle=upright.inverse() @ jnp.array(UP)),  # the wheel lies flat
        ),
        "tiny": changed(
            relative=aside([1e-9, 0, -1e-9], [1e-9, 0, 0]), look=LookAtTask(frame, tip @ jnp.array([1e-7, 0, 1e-7]))
        ),
    }


# Those whose formulas have singularities of their own.
SINGULAR = ("relative", "posture", "look", "align", "rolling", "omniwheel")
EVERY = (*SINGULAR, "relative orientation", "com", "coupled", "holonomic")


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        (SINGULAR, np.float32),
        pytest.param(EVERY, np.float32, marks=exhaustive),
        pytest.param(EVERY, np.float64, marks=exhaustive),
    ],
)
def test_residuals_and_derivatives_are_finite_where_formulas_have_their_singularities(
    kinds: tuple[str, ...], dtype: Any
) -> None:
    robot = mixed()
    q = robot.sample(jax.random.key(4))
    cases = {case: {kind: tasks[kind] for kind in kinds} for case, tasks in degenerate(robot, q).items()}
    tasks = jax.tree.map(lambda *x: jnp.stack(x).astype(dtype), *cases.values())
    robot, q = robot.astype(dtype), q.astype(dtype)

    def residual(q: jax.Array, tasks: dict[str, Task]) -> dict[str, Any]:
        kin = evaluate(formulation(Problem(robot, tasks)), q)
        return {kind: task.residual(robot, kin) for kind, task in tasks.items()}

    def everything(tasks: dict[str, Task]) -> Any:
        kin = evaluate(formulation(Problem(robot, tasks)), q)
        values = residual(q, tasks)
        weights = {kind: row_weights(task, values[kind]) for kind, task in tasks.items()}
        return {
            "residual": values,
            "jacobian": {kind: task.jacobian(robot, kin) for kind, task in tasks.items()},
            "second": {kind: second_order(task, robot, kin, weights[kind]) for kind, task in tasks.items()},
            "forward": jax.jacfwd(residual, (0, 1))(q, tasks),
            "reverse": jax.jacrev(residual, (0, 1))(q, tasks),
        }

    found = jax.jit(jax.vmap(everything), compiler_options=QUICK)(tasks)
    for path, value in jax.tree_util.tree_flatten_with_path(found)[0]:
        finite = np.isfinite(value).reshape(len(cases), -1).all(1)
        assert finite.all(), f"{[c for c, f in zip(cases, finite, strict=True) if not f]}: {jax.tree_util.keystr(path)}"
        assert value.dtype == dtype
    small = 1e-12 if dtype == np.float64 else 3e-6
    for kind, values in found["residual"].items():
        if kind not in ("rolling", "omniwheel"):
            assert max(np.abs(x[0]).max() for x in jax.tree.leaves(values)) < small, kind
    np.testing.assert_allclose(np.linalg.norm(found["residual"]["look"][2]), 2, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found["residual"]["align"][2]), 2, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found["residual"]["look"][3]), 1, rtol=0.2)


@exhaustive
def test_tasks_are_solved_together() -> None:
    robot = mixed().with_frame("floor", "world", jaxlie.SE3.from_translation(jnp.array([0.0, 0, -5])))
    goal = robot.sample(jax.random.key(5), (3,))
    tasks = held(robot, goal) | {
        "rolling": RollingTask.from_configuration(robot, goal, "tip", "floor"),
        "omniwheel": OmniwheelTask.from_configuration(robot, goal, "elsewhere", "floor"),
    }
    # From further away some goals are behind another minimum.
    start = robot.integrate(goal, 0.3 * jax.random.normal(jax.random.key(6), (3, robot.nv)))
    solution = jaxik.solve(Problem(robot, tasks), start)
    assert (solution.status == Status.CONVERGED).all(), solution
    np.testing.assert_allclose(robot.difference(goal, solution.q), 0, atol=1e-3)


LINKS = {"upper": 1.0, "lower": 0.7}  # of own_tasks.PLANAR [m]


def test_manipulability_is_that_of_a_planar_arm() -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR)
    tip, plane = robot.frame("tip"), [1, 1, 0, 0, 0, 0]
    q = np.array([[0.1, 0.4], [0.2, -1.2], [0.0, 0.0]])
    for axes in ("frame", "world"):
        task = ManipulabilityTask.from_configuration(robot, q, tip, plane, axes)
        expected = LINKS["upper"] * LINKS["lower"] * np.abs(np.sin(q[:, 1]))
        np.testing.assert_allclose(task.target, expected, atol=1e-15)
    tasks = {"m": ManipulabilityTask(tip, 5.0, plane)}

    def rows(q: jax.Array) -> Any:
        kin = evaluate(formulation(Problem(robot, tasks)), q)
        return tasks["m"].jacobian(robot, kin), second_order(tasks["m"], robot, kin, jnp.ones(1))

    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.jit(jax.vmap(rows))(q))), "straight, it is singular"


@pytest.mark.parametrize("axes", ["frame", "world"])
def test_derivatives_of_manipulability_are_central_differences(axes: str) -> None:
    robot, step = jaxik.load_robot("panda"), 1e-5
    task = ManipulabilityTask(robot.frame("tcp"), 0.0, [1, 0, 1, 1, 0, 1], axes=axes)
    q, still, moves = robot.sample(jax.random.key(3)), np.zeros((1, robot.nv)), step * np.eye(robot.nv)

    def derivatives(dq: jax.Array) -> tuple[jax.Array, ...]:
        kin = robot.kinematics(robot.integrate(q, dq), task.frames)
        jacobian, second = task.jacobian(robot, kin), task.second_derivative(robot, kin, jnp.full(1, 2.0))
        return task.residual(robot, kin)[0], jacobian[0], second

    ahead, behind = np.split(1 + np.arange(2 * robot.nv), 2)
    value, gradient, second = jax.jit(jax.vmap(derivatives))(np.concatenate([still, moves, -moves]))
    for exact, moved, factor in ((gradient[0], value, 1), (second[0], gradient, 2)):
        np.testing.assert_allclose(exact, factor * (moved[ahead] - moved[behind]) / (2 * step), atol=1e-9)


@exhaustive
def test_manipulability_is_maximised() -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR)
    tasks = {"m": ManipulabilityTask(robot.frame("tip"), 5.0, [1, 1, 0, 0, 0, 0])}
    solution = jaxik.solve(Problem(robot, tasks), np.array([[0.1, 0.4], [0.2, -1.2]]))
    np.testing.assert_allclose(np.abs(solution.q[:, 1]), np.pi / 2, atol=1e-8)
