"""Every task on hinges, slides, balls and free joints: its derivatives, its own pose, batches and retargeting."""

import dataclasses
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_compilation import OPTIONS as QUICK
from second_order import second_order
from tables import exhaustive, mostly_exhaustive
from task_table import AXIS, SLIPPING, TASKS, TREES, WITHOUT_DEFAULT, tasks_at
from task_table import robot_of as tree

from jaxik import Task
from jaxik.core.pytree import core_ranks
from jaxik.core.trees import part_units
from jaxik.kinematics.manifold import integrate
from jaxik.kinematics.topology import JointType
from jaxik.problem.problem import Problem
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import evaluate, formulation
from jaxik.tasks.base import default_jacobian
from jaxik.tasks.weights import pairs, row_weights

COUNT = 3
# Steps of first and second differences: errors of about 1e-10 and 1e-8; of second ones, at a step of 1e-4, 2e-6 of the
# largest entry where a frame looks at something near.
FIRST, SECOND = 1e-6, 5e-5
# One of each class, and of those that have rows of their own, on the tree that always runs.
CLASSES = (
    "frame", "relative", "relative to the world", "com", "posture, free joints too", "look at", "axis align",
    "coupling", "holonomic", "rolling", "omniwheel with an axle", "manipulability",
)  # fmt: skip
FREE = "free, a task of each class"
ROWS = [
    *((FREE, kind) for kind in CLASSES),
    *(pytest.param(name, kind, marks=exhaustive) for name in TREES for kind in TASKS),
]
ROBOTS = mostly_exhaustive([FREE, *TREES], [FREE])
traced: list[Any] = []


def robot_of(name: str) -> Robot:
    return tree("free" if name == FREE else name)


@partial(jax.jit, compiler_options=QUICK)
def around(robot: Robot, tasks: dict[str, Task], q: jax.Array, steps: jax.Array) -> tuple[dict[str, Any], ...]:
    """Residuals and Jacobians (COUNT, steps, ...) of a batch of tasks, next to as many configurations."""
    traced.append(robot)

    def seen(tasks: dict[str, Task], q: jax.Array, step: jax.Array) -> tuple[dict[str, Any], ...]:
        kin = evaluate(formulation(Problem(robot, tasks)), integrate(robot.topology, q, step))
        residuals = {kind: task.residual(robot, kin) for kind, task in tasks.items()}
        return residuals, {kind: task.jacobian(robot, kin) for kind, task in tasks.items()}

    batched = jax.tree.map(lambda x, rank: 0 if np.ndim(x) > rank else None, tasks, core_ranks(tasks))
    return jax.vmap(jax.vmap(seen, (None, None, 0)), (batched, 0, None))(tasks, q, steps)


@partial(jax.jit, compiler_options=QUICK)
def derivatives(robot: Robot, tasks: dict[str, Task], q: jax.Array) -> dict[str, Any]:
    """What tasks say of themselves at one configuration."""
    kin = evaluate(formulation(Problem(robot, tasks)), q)
    residuals = {kind: task.residual(robot, kin) for kind, task in tasks.items()}
    weights = {kind: row_weights(task, residuals[kind]) for kind, task in tasks.items()}
    return {
        "residual": residuals,
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
def fulfilled_at(name: str) -> Any:
    source, kinds = ("free", CLASSES) if name == FREE else (name, tuple(TASKS))
    return jax.jit(lambda q: {kind: tasks_at(source, q)[kind] for kind in kinds}, compiler_options=QUICK)


@cache
def target_tasks(name: str) -> dict[str, Task]:
    """COUNT of each task, which want what the configuration after theirs has."""
    return fulfilled_at(name)(samples(name)[1:])


def element(name: str, i: int) -> dict[str, Task]:
    tasks = target_tasks(name)
    return jax.tree.map(lambda x, rank: x[i] if np.ndim(x) > rank else x, tasks, core_ranks(tasks))


@cache
def steps(name: str) -> np.ndarray:
    """None, and those that first and second differences take (1 + 2 nv + 4 nv^2, nv)."""
    nv = robot_of(name).nv
    i, j = np.divmod(np.arange(nv**2), nv)
    one, other = SECOND * np.eye(nv)[i], SECOND * np.eye(nv)[j]
    first = FIRST * np.concatenate([np.eye(nv), -np.eye(nv)])
    return np.concatenate([np.zeros((1, nv)), first, one + other, one - other, other - one, -one - other])


def displaced(name: str, tasks: dict[str, Task]) -> tuple[dict[str, Any], ...]:
    return jax.device_get(around(robot_of(name), tasks, samples(name)[:COUNT], steps(name)))


@cache
def found(name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What tasks say of themselves, each for itself; then their residuals and Jacobians, as a batch."""
    each = [derivatives(robot_of(name), element(name, i), samples(name)[i]) for i in range(COUNT)]
    return jax.tree.map(lambda *x: np.stack(x), *each), *displaced(name, target_tasks(name))


@pytest.mark.parametrize("name", mostly_exhaustive(TREES, ["free"]))
def test_the_trees_have_their_joints_and_two_branches(name: str) -> None:
    robot = robot_of(name)
    assert JointType[name.upper()] in {joint.type for joint in robot.topology.joints}
    jacobians = jax.jit(lambda q: [robot.frame_jacobian(q, f) for f in ("tip", "other")], compiler_options=QUICK)
    moves = [np.abs(jacobian).sum(0) > 0 for jacobian in jacobians(samples(name)[0])]
    for either in (moves[0] & moves[1], moves[0] & ~moves[1], ~moves[0] & moves[1]):
        assert either.any()


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_jacobians_are_derivatives_along_integrate(name: str, kind: str) -> None:
    exact, residuals, _ = found(name)
    nv = robot_of(name).nv
    jacobians, values = exact["jacobian"][kind], residuals[kind]
    defaults = exact["default"].get(kind, jacobians)
    assert jax.tree.structure(jacobians) == jax.tree.structure(values)
    for ours, default, value in zip(*map(jax.tree.leaves, (jacobians, defaults, values)), strict=True):
        difference = np.moveaxis(value[:, 1 : nv + 1] - value[:, nv + 1 : 2 * nv + 1], 1, -1) / (2 * FIRST)
        assert difference.shape == ours.shape
        np.testing.assert_allclose(ours, difference, atol=1e-6)
        np.testing.assert_allclose(ours, default, atol=1e-12)


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_hessians_are_second_differences_of_the_cost(name: str, kind: str) -> None:
    exact, residuals, _ = found(name)
    nv = robot_of(name).nv
    weighted = pairs(exact["weights"][kind], residuals[kind])
    cost = sum(0.5 * np.sum((w[:, None] * r) ** 2, axis=2) for w, r in weighted)[:, 1:]
    gradient, hessian = exact["second"][kind]
    first = (cost[:, :nv] - cost[:, nv : 2 * nv]) / (2 * FIRST)
    a, b, c, d = np.split(cost[:, 2 * nv :], 4, axis=1)
    second = ((a - b - c + d) / (4 * SECOND**2)).reshape(-1, nv, nv)
    np.testing.assert_allclose(gradient, first, atol=1e-6 * (1 + np.abs(first).max()))
    np.testing.assert_allclose(hessian, second, atol=1e-6 * (1 + np.abs(second).max() + cost.max()))


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_batches_of_tasks_are_their_elements(name: str, kind: str) -> None:
    exact, residuals, jacobians = found(name)
    alone = exact["residual"][kind], exact["jacobian"][kind]
    together = jax.tree.map(lambda x: x[:, 0], (residuals[kind], jacobians[kind]))
    for a, b in zip(*map(jax.tree.leaves, (together, alone)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_what_a_task_does_not_depend_on_has_no_coordinate_and_no_column(name: str, kind: str) -> None:
    robot, task = robot_of(name), element(name, 0)[kind]
    own = jax.eval_shape(lambda: formulation(Problem(robot, {"it": task}))).moving.own
    others = [dof for dof in range(robot.nv) if dof not in own]
    for jacobian in jax.tree.leaves(found(name)[2][kind]):
        np.testing.assert_array_equal(jacobian[..., others], 0)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_task_from_a_configuration_is_fulfilled_there_and_retargeting_does_not_retrace(name: str) -> None:
    found(name)
    before = len(traced)
    residuals, _ = displaced(name, fulfilled_at(name)(samples(name)[:COUNT]))
    for kind, residual in residuals.items():
        for leaf in jax.tree.leaves(residual):
            np.testing.assert_allclose(leaf[:, 0], 0, atol=1e-11, err_msg=kind)
    displaced(name, {kind: dataclasses.replace(task, gain=0.5) for kind, task in target_tasks(name).items()})
    assert len(traced) == before


def test_every_task_tells_the_unit_of_each_part_of_its_error() -> None:
    unknown = [part for part, unit in part_units(target_tasks(FREE), found(FREE)[1]) if not unit]
    assert unknown == []


@cache
def contact(name: str) -> tuple[np.ndarray, ...]:
    """How fast the contact of a wheel slides over the floor, by differences, in the floor's axes: (COUNT, 3, nv).

    And the rotation matrices of wheel and floor.
    """
    robot, radius = robot_of(name), target_tasks(name)["rolling"].radius  # type: ignore[attr-defined]

    @partial(jax.jit, compiler_options=QUICK)
    def slides(q: jax.Array) -> tuple[jax.Array, ...]:
        there = robot.integrate(q, steps(name)[: 1 + 2 * robot.nv, None])
        hubs, floors = robot.frame_pose(there, "tip"), robot.frame_pose(there, "other")
        hub, floor = (jax.tree.map(lambda x: x[0], poses) for poses in (hubs, floors))
        point = hub.translation() - radius[:, None] * floor.rotation().as_matrix()[..., 2]
        gap = hubs @ (hub.inverse() @ point) - floors @ (floor.inverse() @ point)
        ahead, behind = jnp.split(gap[1:], 2)
        velocity = floor.rotation().inverse() @ ((ahead - behind) / (2 * FIRST))
        return jnp.moveaxis(velocity, 0, -1), hub.rotation().as_matrix(), floor.rotation().as_matrix()

    return jax.device_get(slides(samples(name)[:COUNT]))


@pytest.mark.parametrize(("name", "kind"), [row for row in ROWS if {*SLIPPING} & {*getattr(row, "values", row)}])
def test_rolling_rows_are_the_velocity_of_the_contact_against_the_floor(name: str, kind: str) -> None:
    velocity, hub, floor = contact(name)
    rows = np.broadcast_to(np.eye(3), (COUNT, 3, 3))
    if kind.startswith("omniwheel"):
        rows = rows[:, [0, 2]].copy()
    if kind == "omniwheel with an axle":
        axle = np.swapaxes(floor, 1, 2) @ hub @ (np.array(AXIS) / np.linalg.norm(AXIS))
        along = np.cross(axle, [0, 0, 1])
        rows[:, 0] = along / np.linalg.norm(along, axis=1, keepdims=True)
    np.testing.assert_allclose(found(name)[0]["step"][kind], rows @ velocity, atol=1e-6)


def test_a_relative_task_in_the_world_is_minus_a_frame_task() -> None:
    robot, tasks = robot_of("free"), target_tasks(FREE)
    residuals = {kind: jax.tree.map(lambda x: x[:, 0], residual) for kind, residual in found(FREE)[1].items()}
    targets: Any = {kind: vars(tasks[kind])["target"] for kind in ("frame", "relative", "relative to the world")}
    np.testing.assert_array_equal(targets["frame"].wxyz_xyz, targets["relative to the world"].wxyz_xyz)
    for part, residual in residuals["frame"].items():
        np.testing.assert_allclose(residuals["relative to the world"][part], -residual, atol=1e-14)

    @partial(jax.jit, compiler_options=QUICK)
    def twist(q: jax.Array) -> jax.Array:
        seen = robot.frame_pose(q, "other").inverse() @ robot.frame_pose(q, "tip")
        return (targets["relative"].inverse() @ seen).log()

    both = np.concatenate([residuals["relative"]["position"], residuals["relative"]["orientation"]], -1)
    np.testing.assert_allclose(both, twist(samples(FREE)[:COUNT]), atol=1e-11)
