"""Derivatives of solutions and steps, and differences of doing it again: what tests of them share."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import own_tasks

import jaxik
from jaxik import DerivativeStatus, FrameTask, PostureTask, Problem, SearchOptions, SolveOptions
from jaxik.robot.robot import Robot

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
STEP = 1e-5
# Of the largest derivative; differences are good to their own rounding, 1e-11 rad of convergence by the step.
ACCURATE = 1e-6
# Differences need more than solutions do, which may be off by 1e-8 where the cost says nothing below.
PATIENT = SolveOptions(max_steps=400, step_tolerance=1e-13)


class Case(NamedTuple):
    """What is differentiated by, where solving starts, and how many elements at least a bound holds."""

    arguments: dict[str, Any]
    start: jax.Array
    at_bounds: int
    problem: Callable[[Any], Problem] = lambda arguments: arguments["problem"]


def near(robot: Robot, q: jax.Array, by: float = 0.2, seed: int = 3) -> jax.Array:
    return robot.clamp(robot.integrate(q, by * jax.random.normal(jax.random.key(seed), (*q.shape[:-1], robot.nv))))


def beyond(robot: Robot, q: jax.Array) -> jax.Array:
    """A posture that the limits of every second joint do not allow."""
    return q.at[:, ::2].set(robot.limit_upper[::2] + 1)


def off_limits(robot: Robot, count: int) -> jax.Array:
    """Configurations (count, nq) near home and not at a limit, where the way that a step may go has a kink."""
    return robot.integrate(robot.q_home, 0.02 * jax.random.normal(jax.random.key(1), (count, robot.nv)))


def linkage(count: int) -> jax.Array:
    """Configurations (count, 4) of the four-bar linkage, nearly closed."""
    return jnp.linspace(0.3, 0.9, count)[:, None] * jnp.asarray([1.0, -1.0, 0.3, 1.0])


def solved_along(problem_of: Callable[[Any], Problem], **options: Any) -> Any:
    """Solutions of problems made of what is given, and tangents of q, of what yields and of the cost along a motion."""

    def outcome(given: Any, q0: Any) -> Any:
        found = jaxik.solve(problem_of(given), q0, options=SolveOptions(**options))
        return (found.q, found.yielded, found.cost), found

    @jax.jit
    def run(given: Any, motion: Any, q0: Any) -> Any:
        _, tangent, found = jax.jvp(lambda given: outcome(given, q0), (given,), (motion,), has_aux=True)
        return tangent, found

    return run


def along_random_motion(run: Any, given: Any, q0: Any) -> tuple[Any, Any, Any]:
    """Tangents and solutions by `solved_along` of planar arms, and the motion of what is given."""
    rng = np.random.default_rng(1)
    motion = type(given)(*(rng.normal(size=x.shape) * np.minimum(1, x**2) for x in given))
    motion.target[:, 2] = 0  # the arm is planar
    tangent, found = run(given, motion, q0)
    return jax.tree.map(np.asarray, tangent), jax.tree.map(np.asarray, found), motion


def ahead_and_behind(run: Any, given: Any, motion: Any, q: Any, step: float) -> list[Any]:
    """Solutions by `solved_along`, from configurations (n, nq), a step along the motion, and one back."""
    there = [jax.tree.map(lambda x, m, by=by: x + by * m, given, motion) for by in (step, -step)]
    return [jax.tree.map(np.asarray, run(given, motion, q)[1]) for given in there]


def check_tangents(tangent: Any, solutions: list[Any], step: float, exact: np.ndarray) -> None:
    """Tangents by `solved_along` of the elements in a mask (n,) are central differences."""
    leaves = [jax.tree.leaves((found.q, found.yielded, found.cost)) for found in solutions]
    for one, far, near in zip(jax.tree.leaves(tangent), *leaves, strict=True):
        np.testing.assert_allclose(one[exact], (far - near)[exact] / (2 * step), atol=1e-5, rtol=1e-5)


# First and second derivatives of a number, by how they are taken.
MODES: dict[str, Callable[[Callable[[Any], jax.Array], Any], tuple[jax.Array, jax.Array]]] = {
    "forward over forward": lambda f, t: jax.jvp(lambda t: jax.jvp(f, (t,), (1.0,))[1], (t,), (1.0,)),
    "forward over reverse": lambda f, t: jax.jvp(jax.grad(f), (t,), (1.0,)),
    "reverse over reverse": lambda f, t: jax.value_and_grad(jax.grad(f))(t),
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
    values = [np.asarray(leaves[i]) for i in places]
    rng = np.random.default_rng(7)
    along = [np.where(np.isfinite(x), scale * rng.standard_normal(x.shape), 0).astype(x.dtype) for x in values]

    def of(values: list[jax.Array]) -> tuple[Any, Any]:
        new = list(leaves)
        for i, x in zip(places, values, strict=True):
            new[i] = x
        solution = solved(jax.tree.unflatten(treedef, new))
        return parts(solution), solution

    @functools.partial(jax.jit, compiler_options=QUICK)
    def everything(by: Any) -> Any:
        moved = [x + by * d for x, d in zip(values, along, strict=True)]
        out, push, solution = jax.linearize(of, moved, has_aux=True)
        forth = push(along)
        pulls = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), forth)
        (back,) = jax.linear_transpose(push, moved)(pulls)
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), (forth, back), (pulls, along))
        forward, reverse = (jnp.sum(jnp.stack(jax.tree.leaves(x))) for x in products)
        return out, (solution, forth, forward, reverse)

    _, (solution, forth, forward, reverse) = everything(0.0)
    # One after the other: side by side, each element would have a robot of its own, which compiles in twice the time.
    (ahead, _), (behind, _) = everything(STEP), everything(-STEP)
    differences = jax.tree.map(lambda a, b: (a - b) / (2 * STEP), ahead, behind)
    return Found(solution, forth, differences, forward, reverse)


def check_solve(case: Case) -> None:
    """Compare the derivatives of a case's solution with differences of solving it again."""
    found = differentiated(
        lambda arguments: jaxik.solve(case.problem(arguments), arguments.get("q0", case.start), options=PATIENT),
        lambda solution: (solution.q, solution.residuals, solution.cost),
        case.arguments,
        0.1,
    )
    robot = case.problem(case.arguments).robot
    held = [
        robot.check_limits(robot.integrate(found.solution.q, d * 1e-6 * np.eye(robot.nv)[i]))
        for i in range(robot.nv)
        for d in (-1, 1)
    ]
    assert np.sum(~np.all(held, axis=0)) >= case.at_bounds
    assert (found.solution.derivative_status == DerivativeStatus.EXACT).all(), found.solution.derivative_status
    paths = jax.tree_util.tree_leaves_with_path(found.forward)
    for (path, moved), wanted in zip(paths, jax.tree.leaves(found.differences), strict=True):
        largest = max(np.abs(wanted).max(), 0.1)
        np.testing.assert_allclose(moved, wanted, rtol=0, atol=ACCURATE * largest, err_msg=jax.tree_util.keystr(path))
    np.testing.assert_allclose(found.reverse_pulled, found.forward_pulled, rtol=1e-9)


def check_step(stepped: Callable[[Any], jaxik.StepResult], arguments: Any) -> jaxik.StepResult:
    """Compare the derivatives of a step with differences of stepping again."""
    found = differentiated(
        stepped, lambda s: (s.velocity, s.q, s.residuals, s.limit_margins, s.qp.x, s.qp.objective), arguments, 0.01
    )
    assert (found.solution.derivative_status == DerivativeStatus.EXACT).all(), found.solution.derivative_status
    for (path, moved), wanted in zip(
        jax.tree_util.tree_leaves_with_path(found.forward), jax.tree.leaves(found.differences), strict=True
    ):
        assert np.isfinite(moved).all(), jax.tree_util.keystr(path)
        finite = np.isfinite(wanted)
        # What hardly moves is compared to 1e-8: a step is good to 1e-14, and its differences to that by 1e-5.
        largest = max(np.abs(wanted[finite]).max(initial=0), 0.01)
        np.testing.assert_allclose(
            moved[finite], wanted[finite], rtol=0, atol=ACCURATE * largest, err_msg=jax.tree_util.keystr(path)
        )
    np.testing.assert_allclose(found.reverse_pulled, found.forward_pulled, rtol=1e-8)
    return found.solution


PLANAR = jaxik.load_robot(own_tasks.PLANAR)


def planar(aim: Any, rest: Any, cost: Any = 0.3) -> Problem:
    """A planar arm between an aim (*batch, 2) out of reach and a posture (*batch, 2); its first hinge is held."""
    target = jnp.concatenate([aim, jnp.zeros((*aim.shape[:-1], 1), aim.dtype)], axis=-1)
    tip = FrameTask(PLANAR.frame("tip"), target, orientation_cost=None, axes="world")
    return Problem(PLANAR, {"rest": PostureTask(rest, cost=cost), "tip": tip})


def places(dtype: Any = np.float64) -> tuple[jax.Array, jax.Array]:
    aim = jnp.asarray([[1.2, 0.3], [0.9, 0.9], [1.1, -0.6]], dtype)
    return aim, jnp.asarray([[0.1, 0.4], [0.6, 1.2], [-0.1, -0.9]], dtype)


def _search(problem: Problem) -> jaxik.Solution:
    return jaxik.search(problem, jax.random.key(0), options=SearchOptions(max_starts=8, num_candidates=1))


# What there are derivatives of: from a problem to a result.
VERBS: dict[str, Callable[[Problem], Any]] = {
    "solve": lambda problem: jaxik.solve(problem, jnp.zeros(2, problem.tasks["rest"].q.dtype)),
    "step": lambda problem: jaxik.step(problem, jnp.asarray([0.1, 0.6]), 0.1),
    "search": _search,
}


def configuration(aim: Any, rest: Any, cost: Any = 0.3, verb: str = "solve") -> jax.Array:
    return VERBS[verb](planar(aim, rest, cost)).q


def loss(aim: Any, rest: Any, cost: Any = 0.3, verb: str = "solve") -> jax.Array:
    q = configuration(aim, rest, cost, verb)
    return jnp.sum(jnp.sin(q) * jnp.arange(1, q.size + 1, dtype=q.dtype).reshape(q.shape))
