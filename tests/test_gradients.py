"""Derivatives of solutions against central differences of solving again, in float64, by everything a problem holds.

Forward mode is compared with differences of the whole solution along a random direction of all arguments at once, and
reverse mode with forward mode. Most cases have joints that their bounds hold.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import own_tasks
import pytest
from test_constraints import FOUR_BAR

import jaxik
from jaxik import Derivative, FrameTask, PostureTask, Problem, SolveOptions
from jaxik.robot.model import Robot

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
STEP = 1e-5
# Of the largest derivative; differences are good to their own rounding, 1e-11 rad of convergence by the step.
ACCURATE = 1e-6
COUNT = 4


class Case(NamedTuple):
    """What is solved, by which arguments it is differentiated, and how many elements at least a bound holds."""

    problem: Callable[[Any], Problem]
    arguments: dict[str, Any]
    start: jax.Array
    at_bounds: int


def near(robot: Robot, q: jax.Array, by: float = 0.2, seed: int = 3) -> jax.Array:
    return robot.clamp(robot.integrate(q, by * jax.random.normal(jax.random.key(seed), (*q.shape[:-1], robot.nv))))


def beyond(robot: Robot, q: jax.Array, joint: str, by: float = 0.5) -> jax.Array:
    """A posture that a limit does not allow."""
    place = robot.q_indices(joint)[0]
    limit = robot.limit_upper[robot.topology.joint_index(joint)]
    return q.at[:, place].set(limit + by)


def arm(name: str, tip: str, joint: str, **levels: Any) -> Case:
    robot = jaxik.load_robot(name)
    q = robot.sample(jax.random.key(1), (COUNT,))
    frame = robot.frame(tip)
    tasks = {
        "tip": FrameTask(frame, robot.frame_pose(near(robot, q, 0.5), frame), position_cost=2.0),
        "rest": PostureTask(beyond(robot, q, joint), cost=0.3, **levels),
    }
    return Case(lambda p: p["problem"], {"problem": Problem(robot, tasks)}, near(robot, q), COUNT // 2)


CASES = {
    "a posture beside a target": lambda: arm("panda", "tcp", "joint2"),
    "a posture below a target": lambda: arm("panda", "tcp", "joint2", priority=1),
}


class Found(NamedTuple):
    """Derivatives along one direction of all arguments, and what they are compared with."""

    solution: Any
    forward: Any
    differences: Any
    forward_pulled: jax.Array
    reverse_pulled: jax.Array


def differentiated(solved: Callable[[Any], Any], parts: Callable[[Any], Any], arguments: Any, scale: float) -> Found:
    """Differentiate `parts` of what `solved` returns by all floating arguments, in one program."""
    leaves, treedef = jax.tree.flatten(arguments)
    places = [i for i, x in enumerate(leaves) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
    keys = jax.random.split(jax.random.key(7), len(places))
    values = [jnp.asarray(leaves[i]) for i in places]
    along = [
        jnp.where(jnp.isfinite(x), scale * jax.random.normal(k, x.shape), 0) for k, x in zip(keys, values, strict=True)
    ]

    def of(values: list[jax.Array]) -> tuple[Any, Any]:
        new = list(leaves)
        for i, x in zip(places, values, strict=True):
            new[i] = x
        solution = solved(jax.tree.unflatten(treedef, new))
        return parts(solution), solution

    def everything(values: list[jax.Array]) -> Any:
        # As it is, and a step along the direction and back.
        steps = jnp.asarray([0, STEP, -STEP])
        three = [x + steps.reshape(3, *[1] * x.ndim) * d for x, d in zip(values, along, strict=True)]
        out, push, solution = jax.linearize(jax.vmap(of), three, has_aux=True)
        forth = push([jnp.broadcast_to(d, x.shape) for d, x in zip(along, three, strict=True)])
        pulls = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), forth)
        (back,) = jax.linear_transpose(push, three)(pulls)
        differences = jax.tree.map(lambda x: (x[1] - x[2]) / (2 * STEP), out)
        solution, first = jax.tree.map(lambda x: x[0], (solution, forth))
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), (forth, back), (pulls, [jnp.asarray(d) for d in along]))
        return Found(solution, first, differences, *(sum(jax.tree.leaves(x)) for x in products))

    return jax.jit(everything, compiler_options=QUICK)(values)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_a_solution_are_those_of_solving_again(name: str) -> None:
    case = CASES[name]()
    found = differentiated(
        lambda arguments: jaxik.solve(case.problem(arguments), case.start, options=SolveOptions(max_steps=400)),
        lambda solution: (solution.q, solution.residuals, solution.cost),
        case.arguments,
        0.1,
    )
    print(found.solution, found.solution.derivative)
    assert (found.solution.derivative == Derivative.EXACT).all(), found.solution.derivative
    paths = jax.tree_util.tree_leaves_with_path(found.forward)
    for (path, moved), wanted in zip(paths, jax.tree.leaves(found.differences), strict=True):
        largest = max(np.abs(wanted).max(), 0.1)
        print(jax.tree_util.keystr(path), largest, np.abs(moved - wanted).max() / largest)
        np.testing.assert_allclose(moved, wanted, rtol=0, atol=ACCURATE * largest, err_msg=jax.tree_util.keystr(path))
    np.testing.assert_allclose(found.reverse_pulled, found.forward_pulled, rtol=1e-9)
