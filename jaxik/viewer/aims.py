"""What of a problem can be dragged, and the problem that stands for a bare robot."""

import copy
import dataclasses
from typing import Any

import jax
import jaxlie
import numpy as np

from jaxik.core.pytree import core_ranks, set_fields
from jaxik.kinematics.frames import Frame
from jaxik.limits.velocity import VelocityLimit
from jaxik.problem.problem import Problem, elastic_limits_of, limits_of, with_tasks
from jaxik.robot.robot import Robot
from jaxik.tasks.com import ComTask
from jaxik.tasks.frame import FrameTask
from jaxik.tasks.look_at import LookAtTask
from jaxik.tasks.posture import PostureTask

# How fast joints follow where the problem does not say [rad/s, m/s]: half a turn of an arm takes a second.
SPEED = 3.0
# Arguments of tasks that are costs.
COSTS = ("cost", "position_cost", "orientation_cost")


def first_element(tree: Any) -> Any:
    """The first of a batch of pytrees, on the host."""
    return jax.tree.map(
        lambda x, rank: np.asarray(x).reshape(-1, *np.shape(x)[np.ndim(x) - rank :])[0] if np.ndim(x) > rank else x,
        tree,
        core_ranks(tree),
    )


def problem_of(robot: Robot, q: Any) -> Problem:
    """Bring each end of a robot to where the configuration `q` (nq,) has it, and stay near it otherwise."""
    tasks: dict[str, Any] = {}
    for frame in _ends(robot):
        tasks[frame.name] = FrameTask.from_configuration(robot, q, frame)
    return Problem(robot, {**tasks, "posture": PostureTask(q, priority=1)})


def _ends(robot: Robot) -> list[Frame]:
    """Of every chain its last site, else its last body."""
    topology = robot.topology
    parents = set(topology.body_parents[1:])
    leaves = [body for body in range(1, len(topology.body_parents)) if body not in parents]
    sites: dict[int, str] = {body: name for name, body in topology.carriers["site"] if name}
    found = [
        robot.frame(sites[body], "site") if body in sites else robot.frame(topology.body_names[body], "body")
        for body in leaves
        if body in sites or topology.body_names[body]
    ]
    # The fingers of a gripper end an arm together; its tool point stands for them.
    tools = [frame for frame in found if frame.kind == "site"]
    if sites and not tools:
        tools = [robot.frame([*sites.values()][-1], "site")]
    return tools or found


def targets_to_drag(problem: Problem) -> dict[str, np.ndarray]:
    """By task: poses (7,), wxyz and position, or points (3,), of the tasks whose target is in the world."""
    found: dict[str, np.ndarray] = {}
    for name, task in problem.tasks.items():
        if isinstance(task, FrameTask):
            found[name] = np.asarray(task.target.wxyz_xyz, float)
        elif isinstance(task, ComTask | LookAtTask):
            found[name] = np.asarray(task.target, float)
    return found


def with_targets(problem: Problem, targets: dict[str, Any]) -> Problem:
    """The problem with other targets, as `targets_to_drag` has them; works under tracing."""
    tasks = dict(problem.tasks)
    for name, target in targets.items():
        task = copy.copy(tasks[name])
        set_fields(task, target=jaxlie.SE3(target) if isinstance(task, FrameTask) else target)
        tasks[name] = task
    return with_tasks(problem, tasks)


def costs_of(problem: Problem, dtype: Any) -> dict[str, dict[str, np.ndarray]]:
    """By task the costs that it has, by the names of its arguments: numbers, or arrays of one for each row."""
    found = {}
    for name, task in problem.tasks.items():
        traced = [f.name for f in dataclasses.fields(task) if f.name in COSTS and not f.metadata.get("static")]
        given = {field: getattr(task, field) for field in traced}
        # A task of one's own may have a pytree of costs, and None says that there are no rows.
        arrays = {field: cost for field, cost in given.items() if jax.tree.structure(cost) == jax.tree.structure(0)}
        found[name] = {field: np.asarray(cost, dtype) for field, cost in arrays.items()}
    return found


def with_costs(problem: Problem, costs: dict[str, dict[str, Any]]) -> Problem:
    """The problem with other costs, as `costs_of` has them; works under tracing."""
    tasks = dict(problem.tasks)
    for name, values in costs.items():
        task = copy.copy(tasks[name])
        set_fields(task, **values)
        tasks[name] = task
    return with_tasks(problem, tasks)


def with_speed(problem: Problem) -> Problem:
    """The problem with a velocity limit, if it has none: a target far away is not reached in one jump."""
    limits = limits_of(problem)
    if any(isinstance(limit, VelocityLimit) for limit in limits):
        return problem
    limits = (*limits, *elastic_limits_of(problem).values(), VelocityLimit(SPEED))
    return Problem(problem.robot, problem.tasks, limits, problem.constraints, problem.dof_mask)
