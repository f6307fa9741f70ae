"""FrameTask against its default derivatives, central differences and jaxlie, on an arm and on a tree of all joints."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest
import random_trees
from second_order import level_hessian, second_order
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import FrameTask, Problem
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.link_constants import segments
from jaxik.kinematics.manifold import integrate
from jaxik.kinematics.schedule import plan
from jaxik.kinematics.topology import JointType
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import errors, evaluate, formulation, met
from jaxik.tasks.base import default_jacobian, default_weighted_hessian

COUNT = 6
MASK = np.array([1, 0, 1, 0, 1, 0.5])
KINDS: dict[str, dict[str, Any]] = {
    "pose": {},
    "weighted pose": {"position_cost": np.array([2.0, 0.5, 1.0]), "orientation_cost": 0.3},
    "pose without weight on orientation": {"orientation_cost": 0.0},
    "position": {"orientation_cost": None, "position_cost": np.array([3.0, 1.0, 0.0])},
    "orientation": {"position_cost": None, "mask": MASK},
    "pose, target axes": {"axes": "target", "position_cost": np.array([2.0, 0.0, 1.0])},
    "pose, world axes": {"axes": "world", "mask": MASK},
    "position, world axes": {"axes": "world", "orientation_cost": None},
    "orientation, world axes": {"axes": "world", "position_cost": None},
}

# A kind for each way to write the residual; the others differ in what they weigh.
FEW = ("pose without weight on orientation", "position", "orientation", "pose, target axes", "pose, world axes")
ROBOTS = ("panda", "tree", "tree, few kinds")


@cache
def robot_of(name: str) -> tuple[Robot, Frame]:
    """A robot, and the frame behind the most kinds of joints."""
    if name == "panda":
        robot = jaxik.load_robot("panda")
        return robot, robot.frame("tcp")
    if name != "tree":
        return robot_of("tree")
    robot = jaxik.load_robot(random_trees.random_tree(9, n_bodies=7))

    def joints_before(body: int) -> list[JointType]:
        bodies = {body}
        while body:
            body = robot.topology.body_parents[body]
            bodies.add(body)
        return [joint.type for joint in robot.topology.joints if joint.body in bodies]

    best = max(range(len(robot.topology.body_names)), key=lambda b: (len(set(joints_before(b))), len(joints_before(b))))
    assert set(joints_before(best)) == set(JointType)
    robot = robot.with_frame("off_the_body", robot.topology.body_names[best], pose([0.4, -0.3, 1.1], [0.1, 0.2, -0.05]))
    return robot, robot.frame("off_the_body")


@jax.jit
def pose(turn: Any, position: Any) -> jaxlie.SE3:
    return jaxlie.SE3.from_rotation_and_translation(
        jaxlie.SO3.exp(jnp.asarray(turn, float)), jnp.asarray(position, float)
    )


def targets(count: int = COUNT) -> jaxlie.SE3:
    rng = np.random.default_rng(1)
    return pose(rng.standard_normal((count, 3)), rng.uniform(-0.8, 0.8, (count, 3)))


def weights_of(task: FrameTask) -> dict[str, jax.Array]:
    return {name: jnp.asarray(w) for name, w in task.weights().items()}


def evaluated(robot: Robot, frame: Frame, q: jax.Array) -> Kinematics:
    return forward(segments(robot, plan(robot.topology, (frame,))), q)


def kinds_of(name: str) -> tuple[str, ...]:
    return FEW if "few" in name else tuple(KINDS)


@partial(jax.jit, static_argnums=(0, 2))
@partial(jax.vmap, in_axes=(None, None, None, 0, 0))
def derivatives(kinds: tuple[str, ...], robot: Robot, frame: Frame, q: jax.Array, target: jaxlie.SE3) -> dict[str, Any]:
    """Of each kind of task: what it says of its derivatives, and what they are."""
    tasks = {kind: FrameTask(frame, target, **KINDS[kind]) for kind in kinds}

    def residuals(kin: Kinematics) -> dict[str, Any]:
        return {kind: task.residual(robot, kin) for kind, task in tasks.items()}

    def costs(dq: jax.Array) -> jax.Array:
        there = residuals(evaluated(robot, frame, integrate(robot.topology, q, dq)))
        pairs = {kind: (weights_of(task), there[kind]) for kind, task in tasks.items()}
        return jnp.stack([sum(0.5 * jnp.sum((w[n] * r[n]) ** 2) for n in r) for w, r in pairs.values()])

    kin, zero = evaluated(robot, frame, q), jnp.zeros(robot.nv)
    curvatures = {
        k: (t.weighted_hessian(robot, kin, weights_of(t)), default_weighted_hessian(t, robot, kin, weights_of(t)))
        for k, t in tasks.items()
    }
    return {
        "analytic": {kind: task.jacobian(robot, kin) for kind, task in tasks.items()},
        "default": {kind: default_jacobian(task, robot, kin) for kind, task in tasks.items()},
        "curvature": {kind: own for kind, (own, _) in curvatures.items()},
        "default curvature": {kind: default for kind, (_, default) in curvatures.items()},
        "hessian": jnp.stack([second_order(task, robot, kin, weights_of(task))[1] for task in tasks.values()]),
        "true hessian": jax.jacfwd(jax.jacfwd(costs))(zero),
    }


@partial(jax.jit, static_argnums=1)
@partial(jax.vmap, in_axes=(None, None, 0, 0))
def residuals(robot: Robot, frame: Frame, q: jax.Array, target: jaxlie.SE3) -> dict[str, Any]:
    kin = evaluated(robot, frame, q)
    return {kind: FrameTask(frame, target, **options).residual(robot, kin) for kind, options in KINDS.items()}


@cache
def derivatives_of(name: str) -> dict[str, Any]:
    robot, frame = robot_of(name)
    return jax.device_get(
        derivatives(kinds_of(name), robot, frame, robot.sample(jax.random.key(2), (COUNT,)), targets())
    )


@pytest.mark.parametrize("name", mostly_exhaustive(ROBOTS, ["tree, few kinds"]))
@exhaustive
def test_jacobians_are_derivatives_along_integrate(name: str) -> None:
    robot, frame = robot_of(name)
    q = robot.sample(jax.random.key(2), (COUNT,))
    found, step = derivatives_of(name), 1e-6
    moves = step * np.repeat(np.eye(robot.nv), COUNT, axis=0)
    around = [
        residuals(robot, frame, robot.integrate(np.tile(q, (robot.nv, 1)), s * moves), wide(targets(), robot.nv))
        for s in (1, -1)
    ]
    for kind in kinds_of(name):
        for part, analytic in found["analytic"][kind].items():
            np.testing.assert_allclose(analytic, found["default"][kind][part], atol=1e-13, err_msg=f"{kind}, {part}")
            above, below = (np.asarray(r[kind][part]).reshape(robot.nv, COUNT, 3) for r in around)
            differences = np.moveaxis((above - below) / (2 * step), 0, -1)
            np.testing.assert_allclose(analytic, differences, atol=1e-6, err_msg=f"{kind}, {part}")


def wide(poses: jaxlie.SE3, times: int) -> jaxlie.SE3:
    return jaxlie.SE3(jnp.tile(poses.wxyz_xyz, (times, 1)))


@pytest.mark.parametrize("name", mostly_exhaustive(ROBOTS, ["tree, few kinds"]))
def test_hessians_are_second_derivatives_of_the_cost_along_integrate(name: str) -> None:
    found = derivatives_of(name)
    for k, kind in enumerate(kinds_of(name)):
        for own, default in zip(
            *map(jax.tree.leaves, (found["curvature"][kind], found["default curvature"][kind])), strict=True
        ):
            np.testing.assert_allclose(own, default, atol=1e-11 * (1 + np.abs(default).max()), err_msg=kind)
        true = found["true hessian"][:, k]
        np.testing.assert_allclose(found["hessian"][:, k], true, atol=1e-9 * np.abs(true).max(), err_msg=kind)


def test_hessian_of_a_problem_adds_its_tasks() -> None:
    robot, frame = robot_of("tree")
    q, target = robot.sample(jax.random.key(2), (COUNT,))[0], jax.tree.map(lambda x: x[0], targets())
    tasks = {kind: FrameTask(frame, target, **KINDS[kind]) for kind in ("position", "pose, target axes")}
    found = jax.jit(lambda q: level_hessian(formulation(Problem(robot, tasks)), q))(q)
    parts = [derivatives_of("tree, few kinds")["hessian"][0, FEW.index(kind)] for kind in tasks]
    np.testing.assert_allclose(found, sum(parts), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", mostly_exhaustive(["panda", "tree"], ["tree"]))
def test_pose_residual_is_the_twist_from_frame_to_target(name: str) -> None:
    robot, frame = robot_of(name)
    q = robot.sample(jax.random.key(2), (COUNT,))
    twist = jax.jit(lambda here, there: (here.inverse() @ there).log())(robot.frame_pose(q, frame), targets())
    found = residuals(robot, frame, q, targets())["pose"]
    np.testing.assert_allclose(np.concatenate([found["position"], found["orientation"]], -1), twist, atol=1e-12)
    at_rest = residuals(robot, frame, q, robot.frame_pose(q, frame))
    assert max(np.abs(r).max() for r in jax.tree.leaves(at_rest)) < 1e-14


def test_residuals_stand_in_the_stated_axes() -> None:
    robot, frame = robot_of("tree")
    q = robot.sample(jax.random.key(2), (COUNT,))
    here, there = robot.frame_pose(q, frame), targets()
    found = residuals(robot, frame, q, there)

    @jax.jit
    def expected(here: jaxlie.SE3, there: jaxlie.SE3) -> dict[str, tuple[jax.Array, ...]]:
        gap, turn = there.translation() - here.translation(), (here.rotation().inverse() @ there.rotation()).log()
        own, theirs = here.rotation().inverse() @ gap, there.rotation().inverse() @ gap
        return {"frame": (own, turn), "target": (theirs, turn), "world": (gap, here.rotation() @ turn)}

    axes = expected(here, there)
    for kind, parts in found.items():
        stated = next((name for name in ("target", "world") if f"{name} axes" in kind), "frame")
        if len(parts) == 2 and stated == "frame":
            continue  # a twist, whose position is none of these
        for part, residual in parts.items():
            np.testing.assert_allclose(residual, axes[stated][part == "orientation"], atol=1e-13, err_msg=kind)


SINGULAR = {  # rotation vector and translation from the frame to the target
    "none": ([0, 0, 0], [0, 0, 0]),
    "translation": ([0, 0, 0], [0.3, -0.2, 0.1]),
    "half turn": ([0, np.pi, 0], [0.3, -0.2, 0.1]),
    "half turn, skew axis": (np.pi * np.array([0.6, 0, -0.8]), [0, 0, 0]),
    "tiny turn": ([1e-9, 0, -1e-9], [1e-9, 0, 0]),
}


@exhaustive
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivatives_are_finite_where_formulas_have_their_singularities(dtype: Any) -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR).astype(dtype)
    frame = robot.frame("tip")
    q = jnp.broadcast_to(robot.q_home, (len(SINGULAR), robot.nq))
    offsets = pose(*(np.array([offset[i] for offset in SINGULAR.values()]) for i in (0, 1)))
    target = jaxlie.SE3((robot.frame_pose(q, frame) @ offsets).wxyz_xyz.astype(dtype))

    @jax.jit
    @jax.vmap
    def found(q: jax.Array, target: jaxlie.SE3) -> Any:
        def residual(q: jax.Array, parameters: jax.Array) -> Any:
            kin = evaluated(robot, frame, q)
            options = {"pose": {}, "orientation": {"position_cost": None}, "world": {"axes": "world"}}
            return {k: FrameTask(frame, jaxlie.SE3(parameters), **o).residual(robot, kin) for k, o in options.items()}

        task = FrameTask(frame, target)
        kin = evaluated(robot, frame, q)
        return (
            residual(q, target.wxyz_xyz),
            jax.jacfwd(residual, (0, 1))(q, target.wxyz_xyz),
            jax.jacrev(residual, (0, 1))(q, target.wxyz_xyz),
            task.jacobian(robot, kin),
            second_order(task, robot, kin, jax.tree.map(lambda w: w.astype(dtype), task.weights())),
        )

    for path, value in jax.tree_util.tree_flatten_with_path(found(q, target))[0]:
        for case, finite in zip(SINGULAR, np.isfinite(value).reshape(len(SINGULAR), -1).all(1), strict=True):
            assert finite, f"{case}: {jax.tree_util.keystr(path)}"
            assert value.dtype == dtype


# What is off by how much [m, rad], which rows count, and whether the task is met at 1e-3 m and 1e-2 rad.
MEETING = [
    ([0.6e-3, 0.6e-3, 0], [0, 0, 0], {}, True),
    ([0.8e-3, 0.8e-3, 0], [0, 0, 0], {}, False),  # each row is within, the distance is not
    ([0, 0, 0], [0.6e-2, 0.6e-2, 0], {}, True),
    ([0, 0, 0], [0.8e-2, 0.8e-2, 0], {}, False),
    ([0.1, 0, 0], [0, 0, 0], {"mask": np.array([0, 1, 1, 1, 1, 1])}, True),
    ([0.1, 0, 0], [0, 0, 0], {"position_cost": np.array([0.0, 1, 1])}, True),
    ([0.1, 0, 2e-3], [0, 0, 0], {"position_cost": np.array([0.0, 1, 1])}, False),
    ([0, 0, 0], [0, 0, 0.1], {"orientation_cost": 0.0}, True),
    ([0, 0, 0], [0, 0, 0.1], {"orientation_cost": None}, True),
    ([0, 0, 0], [0, 0, 0.1], {"mask": np.array([1, 1, 1, 1, 1, 0.5])}, False),
    ([0, 0.1, 0], [0, 0, 0], {"position_cost": None}, True),
    ([0, 0, 0.1], [0, 0, 0], {"axes": "world", "mask": np.array([1, 1, 0, 1, 1, 1])}, True),
    ([0, 0.1, 0], [0, 0, 0], {"axes": "world", "mask": np.array([1, 1, 0, 1, 1, 1])}, False),
]


def test_tolerances_are_of_distances_over_the_rows_that_count() -> None:
    robot, _ = robot_of("panda")
    robot = robot.with_frame("upright", robot.topology.body_names[0], jaxlie.SE3.identity())  # its axes are the world's
    own: dict[str, Any] = {"position_tolerance": 1e-3, "orientation_tolerance": 1e-2}

    def is_met(q: jax.Array, offset: Any, turn: Any, options: dict[str, Any]) -> jax.Array:
        task = FrameTask(robot.frame("upright"), pose(turn, offset), **own, **options)
        given = formulation(Problem(robot, {"task": task}))
        return met(given, errors(given, evaluate(given, q)), given.levels[0])

    each = jax.jit(lambda q: jnp.stack([is_met(q, x, w, options) for x, w, options, _ in MEETING]))(robot.q_home)
    for got, (x, w, options, want) in zip(each, MEETING, strict=True):
        assert got == want, (x, w, options)


def test_a_position_may_be_the_target_of_a_position_task() -> None:
    _, frame = robot_of("panda")
    for position in ([0.1, 0.2, 0.3], np.ones((4, 3)), jnp.zeros((2, 1, 3), jnp.float32), (1, 2, 3)):
        task = FrameTask(frame, position, orientation_cost=None)
        np.testing.assert_array_equal(task.target.translation(), np.asarray(position, task.target.wxyz_xyz.dtype))


CLOSED_FORMS = (jaxik.FrameTask, jaxik.RelativeFrameTask, jaxik.PostureTask, jaxik.LinearHolonomicTask, jaxik.ComTask)


@pytest.mark.parametrize("kind", CLOSED_FORMS, ids=lambda kind: kind.__name__)
def test_common_tasks_write_their_derivatives_out(kind: type[jaxik.Task]) -> None:
    """The default ones are as right, but `solve` takes 1.9 times as long with them."""
    for name in ("partials", "weighted_hessian"):
        assert getattr(kind, name) is not getattr(jaxik.Task, name), name


@pytest.mark.parametrize("axes", ["frame", "world"])
def test_a_rotation_is_a_target_where_no_position_is_asked(axes: str) -> None:
    turns = jaxlie.SO3.from_rpy_radians(*jnp.ones((3, 4)))
    task = FrameTask(Frame("site", 0), turns, position_cost=None, axes=axes)
    of_poses = FrameTask(Frame("site", 0), jaxlie.SE3.from_rotation(turns), position_cost=None, axes=axes)
    assert jax.tree.structure(task) == jax.tree.structure(of_poses)
    np.testing.assert_array_equal(task.target.wxyz_xyz, of_poses.target.wxyz_xyz)
