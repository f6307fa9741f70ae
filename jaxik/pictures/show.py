"""What `robot.show`, `problem.show` and `solution.show` draw."""

from typing import Any

import jax
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.limits.collision import CollisionLimit
from jaxik.pictures.picture import Picture
from jaxik.pictures.render import render
from jaxik.problem.problem import Problem, limits_of, targeted
from jaxik.results.solution import Solution
from jaxik.robot.robot import Robot
from jaxik.tasks.com import ComTask
from jaxik.tasks.frame import FrameTask
from jaxik.tasks.look_at import LookAtTask

# More targets than this hide what is to be seen.
MOST_TARGETS = 50


def show_robot(robot: Robot, q: Any = None, **options: Any) -> Picture:
    """A picture of a robot; options as of `render`."""
    return Picture(render(robot, q, **options))


def show_problem(problem: Problem, q: Any = None, **options: Any) -> Picture:
    """A picture of the robot, its targets and obstacles."""
    for name, value in surroundings(problem).items():
        options.setdefault(name, value)
    return Picture(render(problem.robot, q, **options))


def show_solution(solution: Solution, problem: Problem | Robot, **options: Any) -> Picture:
    """A picture of one solution, or of all of a batch, transparent, with another colour for what did not converge."""
    robot = problem.robot if isinstance(problem, Problem) else problem
    if not isinstance(robot, Robot) or robot.topology != solution.topology:
        raise JaxikError(f"the solution is of {solution.topology.name}: pass the problem that was solved, or its robot")
    if isinstance(problem, Problem):
        for name, value in surroundings(problem).items():
            options.setdefault(name, value)
    best, ghosts = solution_options(solution)
    for name, rows in ghosts.items():
        options.setdefault(name, rows)
    return Picture(render(robot, best, **options))


def solution_options(solution: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The configuration (nq,) that is drawn whole, and, of a batch, the others as options of `render`.

    Args:
      solution: a `Solution`, or what has its `q` (*batch, nq) and `status` (*batch).
    """
    q = np.asarray(solution.q)
    q = q.reshape(-1, q.shape[-1])
    converged = np.asarray(solution.status).reshape(-1) == Status.CONVERGED
    whole = int(np.argmax(converged))
    other = np.arange(len(q)) != whole
    ghosts = {"ghosts": q[converged & other], "failed": q[~converged & other]}
    return q[whole], {name: rows for name, rows in ghosts.items() if len(rows)}


def surroundings(problem: Problem) -> dict[str, Any]:
    """Targets and obstacles of a problem, as options of `render`."""
    worlds = [limit.world for limit in limits_of(problem) if isinstance(limit, CollisionLimit)]
    return {"targets": targets_of(problem), "world": next((world for world in worlds if world is not None), None)}


def targets_of(problem: Problem) -> dict[str, Any]:
    """What is to be reached in the world, by task: poses and points; at most 50 of each."""
    found: dict[str, Any] = {}
    for name, task in (problem.tasks | targeted(problem.constraints or {})).items():
        if isinstance(task, FrameTask) and task.position_cost is not None:
            target = task.target
            found[name] = target if task.orientation_cost is not None else target.translation()
        elif isinstance(task, ComTask | LookAtTask):
            found[name] = task.target
    return {name: target for name, target in found.items() if _count(target) <= MOST_TARGETS}


def _count(target: Any) -> int:
    shape = jax.tree.leaves(target)[0].shape
    return int(np.prod(shape[:-1]))
