"""Every task on hinges, slides, balls and free joints: its derivatives, its own pose, batches and retargeting."""

import dataclasses
from functools import cache, partial
from typing import Any

import jax
import jaxlie
import numpy as np
import pytest
from second_order import second_order
from task_table import SLIPPING, TASKS, TREES, WITHOUT_DEFAULT, robot_of, tasks_at

from jaxik import FrameTask, Task
from jaxik.manifold import integrate
from jaxik.problem import Problem, evaluate, prepare
from jaxik.pytree import core_ranks
from jaxik.robot.model import Robot
from jaxik.robot.topology import JointType
from jaxik.tasks.base import default_jacobian
from jaxik.tasks.rows import pairs, row_weights

COUNT = 3
FIRST, SECOND = 1e-6, 1e-4  # steps of first and second differences: errors of about 1e-10 and 1e-8
# Programs that run for milliseconds: LLVM's optimisation of them would take most of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
traced: list[Any] = []


def seen(robot: Robot, tasks: dict[str, Task], q: jax.Array, dq: jax.Array) -> dict[str, Any]:
    kin = evaluate(prepare(Problem(robot, tasks)), integrate(robot.topology, q, dq))
    return {kind: task.residual(robot, kin) for kind, task in tasks.items()}


@partial(jax.jit, compiler_options=QUICK)
def residuals(robot: Robot, tasks: dict[str, Task], q: jax.Array, dq: jax.Array) -> dict[str, Any]:
    traced.append(robot)
    return jax.vmap(partial(seen, robot, tasks))(q, dq)


@partial(jax.jit, compiler_options=QUICK)
@partial(jax.vmap, in_axes=(None, None, 0))
def derivatives(robot: Robot, tasks: dict[str, Task], q: jax.Array) -> dict[str, Any]:
    kin = evaluate(prepare(Problem(robot, tasks)), q)
    weights = {kind: row_weights(task, task.residual(robot, kin)) for kind, task in tasks.items()}
    return {
        "jacobian": {kind: task.jacobian(robot, kin) for kind, task in tasks.items()},
        "step": {kind: task.step_jacobian(robot, kin) for kind, task in tasks.items() if kind in SLIPPING},
        "default": {k: default_jacobian(task, robot, kin) for k, task in tasks.items() if k not in WITHOUT_DEFAULT},
        "weights": weights,
        "second": {kind: second_order(task, robot, kin, weights[kind]) for kind, task in tasks.items()},
    }


@cache
def samples(name: str) -> Any:
    return np.asarray(robot_of(name).sample(jax.random.key(2), (COUNT + 1,)))


@cache
def target_tasks(name: str) -> dict[str, Task]:
    return tasks_at(name, samples(name)[COUNT])


def around(name: str, tasks: dict[str, Task], q: Any) -> dict[str, Any]:
    """Residuals at all steps that first and second differences take: {task: (COUNT, steps, *shape)}."""
    robot = robot_of(name)
    first = FIRST * np.concatenate([np.eye(robot.nv), -np.eye(robot.nv)])
    i, j = np.divmod(np.arange(robot.nv**2), robot.nv)
    one, other = SECOND * np.eye(robot.nv)[i], SECOND * np.eye(robot.nv)[j]
    steps = np.concatenate([first, one + other, one - other, other - one, -one - other])
    found = residuals(robot, tasks, np.repeat(q, len(steps), 0), np.tile(steps, (len(q), 1)))
    return jax.tree.map(lambda x: np.asarray(x).reshape(len(q), len(steps), *x.shape[1:]), jax.device_get(found))


@cache
def found(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    q = samples(name)[:COUNT]
    exact = jax.device_get(derivatives(robot_of(name), target_tasks(name), q))
    return exact, around(name, target_tasks(name), q)


@pytest.mark.parametrize("name", TREES)
def test_the_trees_have_their_joints_and_two_branches(name: str) -> None:
    robot = robot_of(name)
    assert JointType[name.upper()] in {joint.type for joint in robot.topology.joints}
    moves = [np.abs(robot.frame_jacobian(samples(name)[0], frame)).sum(0) > 0 for frame in ("tip", "other")]
    for either in (moves[0] & moves[1], moves[0] & ~moves[1], ~moves[0] & moves[1]):
        assert either.any()


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", TREES)
def test_jacobians_are_derivatives_along_integrate(name: str, kind: str) -> None:
    exact, displaced = found(name)
    nv = robot_of(name).nv
    jacobians, values = exact["jacobian"][kind], displaced[kind]
    defaults = exact["default"].get(kind, jacobians)
    assert jax.tree.structure(jacobians) == jax.tree.structure(values)
    for ours, default, value in zip(*map(jax.tree.leaves, (jacobians, defaults, values)), strict=True):
        difference = np.moveaxis(value[:, :nv] - value[:, nv : 2 * nv], 1, -1) / (2 * FIRST)
        assert difference.shape == ours.shape
        np.testing.assert_allclose(ours, difference, atol=1e-6)
        np.testing.assert_allclose(ours, default, atol=1e-12)


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", TREES)
def test_hessians_are_second_differences_of_the_cost(name: str, kind: str) -> None:
    exact, displaced = found(name)
    nv = robot_of(name).nv
    weighted = pairs(exact["weights"][kind], displaced[kind])
    cost = sum(0.5 * np.sum((w[:, None] * r) ** 2, axis=2) for w, r in weighted)
    gradient, hessian = exact["second"][kind]
    first = (cost[:, :nv] - cost[:, nv : 2 * nv]) / (2 * FIRST)
    a, b, c, d = np.split(cost[:, 2 * nv :], 4, axis=1)
    second = ((a - b - c + d) / (4 * SECOND**2)).reshape(-1, nv, nv)
    np.testing.assert_allclose(gradient, first, atol=1e-6 * (1 + np.abs(first).max()))
    np.testing.assert_allclose(hessian, second, atol=1e-6 * (1 + np.abs(second).max() + cost.max()))


@pytest.mark.parametrize("name", TREES)
def test_a_task_from_a_configuration_is_fulfilled_there_and_retargeting_does_not_retrace(name: str) -> None:
    found(name)
    before = len(traced)
    for q in samples(name)[:2]:
        displaced = around(name, tasks_at(name, q), np.tile(q, (COUNT, 1)))
        for kind, residual in displaced.items():
            # Opposite steps: their mean is the residual in the middle, up to the square of a step.
            for leaf in jax.tree.leaves(residual):
                nv = robot_of(name).nv
                middle = (leaf[:, :nv] + leaf[:, nv : 2 * nv]) / 2
                np.testing.assert_allclose(middle, 0, atol=1e-11, err_msg=kind)
    moved = {kind: dataclasses.replace(task, gain=0.5) for kind, task in target_tasks(name).items()}
    around(name, moved, samples(name)[:COUNT])
    assert len(traced) == before


@pytest.mark.parametrize("kind", SLIPPING)
@pytest.mark.parametrize("name", TREES)
def test_rolling_rows_are_the_velocity_of_the_contact_against_the_floor(name: str, kind: str) -> None:
    robot, q = robot_of(name), samples(name)[:COUNT]
    task: Any = target_tasks(name)[kind]
    hub, floor = robot.frame_pose(q, "tip"), robot.frame_pose(q, "other")
    normal = np.asarray(floor.rotation().as_matrix())[..., 2]
    contact = hub.translation() - task.radius * normal
    on_hub, on_floor = hub.inverse() @ contact, floor.inverse() @ contact

    def gap(step: float) -> np.ndarray:
        there = robot.integrate(q, step * np.eye(robot.nv)[:, None])
        return np.asarray(robot.frame_pose(there, "tip") @ on_hub - robot.frame_pose(there, "other") @ on_floor)

    velocity = floor.rotation().inverse() @ ((gap(FIRST) - gap(-FIRST)) / (2 * FIRST))  # (nv, COUNT, 3)
    velocity = np.moveaxis(np.asarray(velocity), 0, -1)
    rows = np.broadcast_to(np.eye(3), (COUNT, 3, 3))
    if kind.startswith("omniwheel"):
        rows = rows[:, [0, 2]].copy()
    if kind == "omniwheel with an axle":
        axle = np.asarray(floor.rotation().inverse() @ (hub.rotation() @ (task.axle / np.linalg.norm(task.axle))))
        along = np.cross(axle, [0, 0, 1])
        rows[:, 0] = along / np.linalg.norm(along, axis=1, keepdims=True)
    np.testing.assert_allclose(found(name)[0]["step"][kind], rows @ velocity, atol=1e-6)


def test_a_relative_task_in_the_world_is_minus_a_frame_task() -> None:
    robot, q = robot_of("free"), samples("free")[:COUNT]
    displaced = found("free")[1]
    frame = FrameTask.from_configuration(robot, samples("free")[COUNT], "tip")
    np.testing.assert_array_equal(frame.target.wxyz_xyz, target_tasks("free")["frame"].target.wxyz_xyz)  # type: ignore
    for part, residual in displaced["frame"].items():
        np.testing.assert_allclose(displaced["relative to the world"][part], -residual, atol=1e-14)
    twist = robot.frame_pose(q, "other").inverse() @ robot.frame_pose(q, "tip")
    goal: jaxlie.SE3 = target_tasks("free")["relative"].target  # type: ignore
    parts, nv = displaced["relative"], robot.nv
    both = np.concatenate([parts["position"], parts["orientation"]], -1)
    middle = (both[:, :nv] + both[:, nv : 2 * nv]).mean(1) / 2
    np.testing.assert_allclose(middle, (goal.inverse() @ twist).log(), atol=1e-11)


@pytest.mark.parametrize("name", ["ball"])
def test_batches_of_tasks_are_their_elements(name: str) -> None:
    robot, q = robot_of(name), samples(name)[:COUNT]
    batched = tasks_at(name, samples(name)[1:])

    def rows(tasks: dict[str, Task], q: jax.Array) -> dict[str, Any]:
        kin = evaluate(prepare(Problem(robot, tasks)), q)
        return {kind: (task.residual(robot, kin), task.jacobian(robot, kin)) for kind, task in tasks.items()}

    ranks = core_ranks(batched)
    axes = jax.tree.map(lambda x, rank: 0 if np.ndim(x) > rank else None, batched, ranks)
    together = jax.jit(jax.vmap(rows, in_axes=(axes, 0)), compiler_options=QUICK)(batched, q)
    one = jax.jit(rows, compiler_options=QUICK)
    for i in range(COUNT):
        alone = one(jax.tree.map(lambda x, rank, i=i: x[i] if np.ndim(x) > rank else x, batched, ranks), q[i])
        for kind in TASKS:
            for a, b in zip(jax.tree.leaves(together[kind]), jax.tree.leaves(alone[kind]), strict=True):
                np.testing.assert_allclose(a[i], b, atol=1e-13, err_msg=kind)
