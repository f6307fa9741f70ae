"""`search`: the best solution from anywhere in the joint space, for any number of elements."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.batching.any_size import at_any_size
from jaxik.batching.broadcast import batch_shape
from jaxik.batching.implicit_diff import run_differentiable
from jaxik.batching.method import lanes_that_fit
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, core_ranks
from jaxik.kinematics.sampling import dimensions
from jaxik.numerics.kronecker import offsets
from jaxik.problem.arguments import cast_problem, check_problem, configuration, keys_of_places, random_key
from jaxik.problem.problem import Problem, check_solvable, levels, without_velocity_tasks
from jaxik.results.solution import Solution
from jaxik.robot import batched
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.derivatives import SOLUTION
from jaxik.solvers.nonlinear.finalize import FEASIBLE
from jaxik.solvers.nonlinear.formulation import hard_constraints, has_tolerances
from jaxik.solvers.nonlinear.hard_constraint import clearances, may_yield, with_clearance, with_hard_constraints
from jaxik.solvers.nonlinear.side_by_side import Piece, solved_apart, with_axis
from jaxik.solvers.options import SearchOptions
from jaxik.solvers.search.method import search_method
from jaxik.solvers.search.selection import chosen
from jaxik.solvers.search.starts import StartSampler

# Candidates for each solution that is asked for, where the first that comes is not good enough.
CANDIDATES = 8


def search(problem: Problem, key: jax.Array, *, starts: Any = None, options: SearchOptions | None = None) -> Solution:
    """Solve inverse kinematics globally: bounded Levenberg-Marquardt from start after start until one gets there.

    The user's own starts come first. Without any it is `q_home`, or the middle of the joint ranges where `q_home` is no
    keyframe but qpos0 moved inside the limits; then a quasi-random sequence fills the joint space evenly. Where limits
    keep shapes apart, its first four are from the middle half of the joint ranges. Where joint limits are `Elastic`,
    attempts stay inside these until half of the starts have failed. Where there are constraints and no task of the
    highest priority has a tolerance, what meets the constraints has got there. Attempts that crawl are given up
    early, and elements that are solved leave at once, so that work goes to what is unsolved. What got there is finished
    as `solve` does: polished, lower levels solved in what the higher ones leave free. Where nothing gets there, the
    best of all attempts is brought to stationarity: STALLED, with the closest pose found, or TIMEOUT where that takes
    more than `SolveOptions.max_steps`.

    Args:
      problem: as of `solve`.
      key: a key of `jax.random`, from which each element draws by its place in the flattened batch; or a batch of keys
        (*batch,), one for each element. The same key gives the same answer, whatever else is in the batch.
      starts: configurations (*batch, k, nq) to start from before all others, best guess first; or (nq,), one for all.
        Their dtype decides in which precision everything is computed; by default it is that of the robot's `q_home`.
        Joints that no task depends on, or that `dof_mask` holds, stay where the first start has them, or `q_home`.
      options: `SearchOptions`.

    Returns:
      A `Solution`; `iterations` and `num_starts` say what each element took, or the chain of it that took most, where
      chains start again each for itself (`solution.chains`). Where several solutions are asked for, there
      is an axis for them behind the batch, best first; where fewer are found, the rest are not CONVERGED.

    Raises:
      JaxikError: for wrong shapes, keys and for what `solve` cannot hold; on the host, before tracing.
    """
    check_problem(problem)
    check_solvable(problem)
    problem = without_velocity_tasks(problem)
    if options is not None and not isinstance(options, SearchOptions):
        raise JaxikError(f"options is a jaxik.SearchOptions, not {type(options).__name__}")
    options = SearchOptions() if options is None else options
    base, starts = _starts(problem.robot, starts)
    reference = base if options.reference is None else options.reference
    reference = configuration("reference", reference, problem.robot)
    key, options = random_key(key), dataclasses.replace(options, reference=reference)
    shape = batch_shape(*_named(problem, key, starts, options))  # out here: `jit` adds lines of its own to errors
    place = None if key.ndim else jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)
    arguments = {"problem": problem, "key": key, "place": place, "base": base, "starts": starts, "options": options}
    ranks = {"problem": core_ranks(problem), "key": 0, "place": core_ranks(place), "base": 1, "starts": 2}
    return at_any_size(_search, arguments, ranks | {"options": core_ranks(options)})


def _starts(robot: Robot, given: Any) -> tuple[jax.Array, jax.Array]:
    """Where joints stand that no task moves (*batch, nq), and the starts (*batch, k, nq) that come first."""
    if given is None:
        home = configuration("q_home", robot.q_home, robot)
        return home, (home if robot.topology.has_home else batched.first_start(robot))[..., None, :]
    starts = configuration("starts", given, robot)
    starts = starts[None] if starts.ndim == 1 else starts
    if starts.shape[-2] == 0:
        raise JaxikError("starts has shape (*batch, k, nq) with k >= 1; leave it out to start from q_home")
    return starts[..., 0, :], starts


def _named(problem: Problem, key: jax.Array, starts: jax.Array, options: SearchOptions) -> tuple[Any, Any]:
    """Arguments by the names that errors give them, and their core ranks."""
    arguments = {"problem": problem, "key": key, "starts": starts, "options": options}
    return arguments, {"problem": core_ranks(problem), "key": 0, "starts": 2, "options": core_ranks(options)}


@jax.jit
def _search(
    problem: Problem,
    key: jax.Array,
    place: jax.Array | None,
    base: jax.Array,
    starts: jax.Array,
    options: SearchOptions,
    present: jax.Array | None = None,
) -> Solution:
    shape = batch_shape(*_named(problem, key, starts, options))
    problem, options = cast_problem(problem, starts.dtype), cast(options, starts.dtype)
    problem = with_hard_constraints(
        with_clearance(problem), jnp.asarray(FEASIBLE[starts.dtype == jnp.float64], starts.dtype)
    )
    keys = key if place is None else keys_of_places(key, place)
    # Each piece has all batch axes, also those that only targets of others have.
    keys, wide = jnp.broadcast_to(keys, shape), jnp.broadcast_to(base, (*shape, base.shape[-1]))

    def of_piece(piece: Piece) -> Solution:
        own = piece.beside(dataclasses.replace(options, reference=None))
        own = dataclasses.replace(own, reference=piece.of(options.reference, 1))
        here = piece.beside(present)
        return _best(piece.problem, piece.beside(keys), piece.of(wide, 1), piece.of(starts, 2), own, here)

    apart = None
    if options.solutions == 1:
        apart = solved_apart(problem, wide, of_piece)
    return _best(problem, keys, base, starts, options, present) if apart is None else apart


def _best(
    problem: Problem,
    keys: jax.Array,
    base: jax.Array,
    starts: jax.Array,
    options: SearchOptions,
    present: jax.Array | None,
) -> Solution:
    """The search of a problem with its constraints as tasks, each element by its key (*batch,)."""
    topology, num_candidates = problem.robot.topology, _candidates(problem, options)
    place = jnp.arange(num_candidates, dtype=jnp.int32)
    spread = StartSampler(
        own=starts,
        reference=options.reference,
        shift=offsets(keys.reshape(-1), dimensions(topology)).reshape(*keys.shape, dimensions(topology)),
        first=jnp.zeros((), jnp.int32),
        stride=jnp.asarray(num_candidates, jnp.int32),
        count=options.max_starts,
        unlimited_range=options.unlimited_range,
        steps=options.max_steps_per_start,
    )
    arguments = problem, base, options.solve_options, spread
    ranks = core_ranks(problem), 1, core_ranks(options.solve_options), core_ranks(spread)
    apart = bool(clearances(problem))
    held, yields, width = bool(hard_constraints(problem)), may_yield(problem), lanes_that_fit(problem.robot.nv**2)
    method = search_method(len(levels(problem)), width, held, apart, options.rank_by, yields)
    if num_candidates == 1:
        return run_differentiable(method, arguments, ranks, SOLUTION, present).solution
    *rest, spread = with_axis(arguments, ranks)
    present = with_axis(present, core_ranks(present))
    shared = jnp.maximum(-(-(spread.count - place) // num_candidates), 1)
    spread = dataclasses.replace(spread, first=place, count=shared)
    return chosen(run_differentiable(method, (*rest, spread), ranks, SOLUTION, present), options)


def _candidates(problem: Problem, options: SearchOptions) -> int:
    if options.num_candidates is not None:
        return options.num_candidates
    first_will_do = options.solutions == 1 and options.rank_by == "cost"
    if first_will_do and has_tolerances(problem, levels(problem)[0]):
        return 1
    return CANDIDATES * options.solutions
