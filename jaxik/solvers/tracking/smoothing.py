"""Make a motion along a path smooth, within limits: Gauss-Newton steps over the whole horizon, linear in its length.

Minimises the squared displacements of the steps, and their first and second differences, while every waypoint keeps its
tasks. Limits on speed, acceleration and jerk are met by an augmented Lagrangian (Nocedal and Wright, "Numerical
Optimization", 17.3), which needs no motion within them to start from; joint limits likewise, and exactly in the end.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.broadcast import over_batch
from jaxik.core.pytree import core_ranks
from jaxik.kinematics import manifold
from jaxik.kinematics.forward import forward
from jaxik.numerics.block_tridiagonal import solve_block_tridiagonal
from jaxik.problem.problem import Problem, constants_of, effective_joint_limits
from jaxik.tasks.grouping import map_tasks
from jaxik.tasks.weights import weighted_rows

ORDERS = 3  # displacements, and their first and second differences: speed, acceleration, jerk
STENCILS = ((1.0, -1.0, 0.0, 0.0), (1.0, -2.0, 1.0, 0.0), (1.0, -3.0, 3.0, -1.0))
# Steps over which motion is smoothed: squared differences of order k weigh HORIZON^(2k) as much as displacements.
HORIZON = 8.0
# Squared residuals of the path weigh as much more than all of that.
TIGHT = {False: 30.0, True: 1e5}  # by whether the precision is double
# Added to the diagonal, as a share of its largest entry: while the motion is made smooth, and on its return.
RIDGE = {False: (3e-7, 3e-7), True: (1e-17, 1e-9)}
# Penalties of the limits relative to the weights of the differences that they limit.
PENALTY = 10.0
# That of the joint limits [1/rad^2, 1/m^2].
JOINT_PENALTY = 100.0
# Steps between two changes of the multipliers.
EVERY = 3
# The longest change of a joint in one Gauss-Newton step [rad or m], as tasks are not linear.
REACH = 0.2
# Steps that are smooth enough change no joint by more [rad or m].
SETTLED = 1e-5
# Steps that only put waypoints back on the path, at the end.
RETURNS = 4


class Horizon(NamedTuple):
    """A motion over N stages, three of them before the first waypoint and some after the last.

    Attributes:
      problem: leaves of tasks over time (N, *batch, ...); its tasks are those of the path and preferences.
      path: names of the tasks of the path; static.
      stage (N,): whether a stage is a waypoint.
      bounds: by order, lower and upper (2, *batch, nv) of displacement, and of its first and second difference.
    """

    problem: Problem
    path: tuple[str, ...]
    stage: jax.Array
    bounds: tuple[jax.Array, ...]


class _State(NamedTuple):
    q: jax.Array  # (N, *batch, nq)
    multipliers: tuple[jax.Array, ...]  # by order (N, *batch, nv)
    pressed: jax.Array  # (N, *batch, nv) multipliers of the joint limits
    linked: jax.Array  # (N, *batch) whether the step to a stage is none that leaves the path
    limited: jax.Array  # () 1, or 0 where limits but those of displacements are left for later
    change: jax.Array  # (*batch,) largest change of a joint in the last step
    best: jax.Array  # (N, *batch, nq) of all motions so far the last that passes its limits least
    passed: jax.Array  # (*batch,) the largest share of a limit there, at least 1
    taken: jax.Array  # () steps so far


def smoothed(horizon: Horizon, q: jax.Array, linked: jax.Array, limited: jax.Array, steps: jax.Array) -> jax.Array:
    """Smooth a motion (N, *batch, nq) in at most so many steps, and put each waypoint back on its path.

    Args:
      linked (N, *batch): whether the step to a stage is to be smooth; one that is none leaves the path.
      limited (): 1, or 0 for the limits of displacements alone, to begin with: most motions that are smooth keep the
        others, and multipliers of limits that a rough one does not keep only delay it.
    """
    none = jnp.zeros((*q.shape[:-1], horizon.problem.robot.nv), q.dtype)
    far = jnp.full(q.shape[1:-1], jnp.inf, q.dtype)
    start = _State(q, (none,) * ORDERS, none, linked, limited, far, q, far, jnp.zeros((), jnp.int32))

    def smooth(state: _State) -> _State:
        # Each element of a batch on its own: it stops where it is settled.
        stepped, going = _step(horizon, state, jnp.ones((), q.dtype)), state.change > SETTLED
        return stepped._replace(
            q=jnp.where(going[..., None], stepped.q, state.q),
            best=jnp.where(going[..., None], stepped.best, state.best),
            passed=jnp.where(going, stepped.passed, state.passed),
            change=jnp.where(going, stepped.change, state.change),
        )

    def return_to_path(_: Any, state: _State) -> _State:
        return _step(horizon, state, jnp.zeros((), q.dtype))

    state = lax.while_loop(lambda s: (s.taken < steps) & jnp.any(s.change > SETTLED), smooth, start)
    better = _passed(horizon, state) <= state.passed
    state = state._replace(q=jnp.where(better[..., None], state.q, state.best))
    return lax.fori_loop(0, RETURNS, return_to_path, state).q


def _step(horizon: Horizon, state: _State, smooth: jax.Array) -> _State:
    """One Gauss-Newton step; `smooth` is 1, or 0 to move towards the path alone."""
    topology, q = horizon.problem.robot.topology, state.q
    rows = _evaluated(horizon, q)
    tight = TIGHT[q.dtype == jnp.float64] * HORIZON ** (2 * ORDERS - 2)
    hessian = tight * rows.square + smooth * rows.preferred_square
    gradient = tight * rows.gradient + smooth * rows.preferred_gradient
    found = differences(topology, q)
    links = _links(state.linked)
    now = (state.taken % EVERY == 0) & (state.taken > 0)
    bands = [jnp.zeros_like(found[0]) for _ in range(ORDERS + 1)]
    multipliers = []
    for order, (difference, link, stencil) in enumerate(zip(found, links, STENCILS, strict=True)):
        weight = HORIZON ** (2 * order) * smooth * link[..., None]
        lower, upper = horizon.bounds[order]
        penalty = PENALTY * weight * (state.limited if order else 1)
        # Multipliers move on where the steps since the last time have led.
        moved_on, _ = _penalty(difference, lower, upper, state.multipliers[order], penalty)
        multipliers.append(jnp.where(now, moved_on, state.multipliers[order]))
        slope, stiffness = _penalty(difference, lower, upper, multipliers[-1], penalty)
        slope, stiffness = weight * difference + smooth * slope, weight + stiffness
        gradient = gradient + _adjoint(stencil, slope)
        for k in range(order + 2):
            for j in range(order + 2 - k):
                # Stage t - j and stage t - j - k, of the difference at t.
                bands[k] = bands[k] + stencil[j] * stencil[j + k] * _earlier(stiffness, j)
    lower, upper, nowhere = rows.room_below, rows.room_above, jnp.zeros_like(gradient)
    moved_on, _ = _penalty(nowhere, lower, upper, state.pressed, smooth * JOINT_PENALTY)
    pressed = jnp.where(now, moved_on, state.pressed)
    slope, stiffness = _penalty(nowhere, lower, upper, pressed, smooth * JOINT_PENALTY)
    gradient, bands[0] = gradient + smooth * slope, bands[0] + stiffness
    held = (lower >= 0) & (gradient > 0) | (upper <= 0) & (gradient < 0)
    change = -_solved(hessian, bands, gradient, ~rows.moves | held & (smooth == 0), smooth)
    change = jnp.where(jnp.isfinite(change), change, 0)
    reach = jnp.max(jnp.abs(change), axis=(0, -1))
    change = change * jnp.minimum(1, REACH / jnp.maximum(reach, REACH / 100))[..., None]
    change = jnp.where(smooth > 0, change, jnp.clip(change, lower, upper))
    q = _moved(horizon.problem, q, change, smooth)
    passed = _passed(horizon, state)
    better = passed <= state.passed
    best = jnp.where(better[..., None], state.q, state.best)
    furthest = jnp.max(jnp.abs(change), axis=(0, -1))
    passed = jnp.minimum(passed, state.passed)
    return _State(q, tuple(multipliers), pressed, state.linked, state.limited, furthest, best, passed, state.taken + 1)


def _passed(horizon: Horizon, state: _State) -> jax.Array:
    """The largest share that a motion has of its limits (*batch,), at least 1."""
    worst = jnp.ones(state.q.shape[1:-1], state.q.dtype)
    found = differences(horizon.problem.robot.topology, state.q)
    for order, (difference, link) in enumerate(zip(found, _links(state.linked), strict=True)):
        each = difference / jnp.where(difference < 0, *horizon.bounds[order])
        # Of a bound of zero that is kept: not 0 / 0.
        share = jnp.max(jnp.where(difference == 0, 0, each), axis=-1)
        counts = link & (state.limited > 0) if order else link
        worst = jnp.maximum(worst, jnp.max(jnp.where(counts, share, 1), axis=0))
    return worst


def differences(topology: Any, q: jax.Array) -> tuple[jax.Array, ...]:
    """Displacements to each stage (N, *batch, nv), and their first and second differences; zero where there is none."""
    way = jnp.vectorize(lambda a, b: manifold.difference(topology, a, b), signature="(q),(q)->(v)")(q[:-1], q[1:])
    found = [jnp.concatenate([jnp.zeros_like(way[:1]), way])]
    for _ in range(ORDERS - 1):
        found.append(found[-1] - _later(found[-1], 1))
    return tuple(found)


def _links(linked: jax.Array) -> tuple[jax.Array, ...]:
    """By order (N, *batch), whether all steps of a difference are linked."""
    links = [linked]
    for k in range(1, ORDERS):
        links.append(links[-1] & _later(linked, k))
    return tuple(links)


def _later(x: jax.Array, k: int) -> jax.Array:
    """x[t - k] at t, zero before the first."""
    return jnp.concatenate([jnp.zeros_like(x[:k]), x[: x.shape[0] - k]]) if k else x


def _earlier(x: jax.Array, k: int) -> jax.Array:
    """x[t + k] at t, zero behind the last."""
    return jnp.concatenate([x[k:], jnp.zeros_like(x[:k])]) if k else x


def _adjoint(stencil: tuple[float, ...], x: jax.Array) -> jax.Array:
    return sum((c * _earlier(x, k) for k, c in enumerate(stencil) if c), start=jnp.zeros_like(x))


def _penalty(
    value: jax.Array, lower: jax.Array, upper: jax.Array, multiplier: jax.Array, stiffness: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Slope and stiffness of the augmented Lagrangian of lower <= value <= upper."""
    at = multiplier + stiffness * value
    above = at - stiffness * jnp.where(jnp.isfinite(upper), upper, 0)
    below = at - stiffness * jnp.where(jnp.isfinite(lower), lower, 0)
    slope = jnp.where(jnp.isfinite(upper), jnp.maximum(above, 0), 0)
    slope = slope + jnp.where(jnp.isfinite(lower), jnp.minimum(below, 0), 0)
    return slope, jnp.where(slope != 0, stiffness, 0)


class _Rows(NamedTuple):
    """At each stage: of the path and of preferences J'J (nv, nv) and J'r (nv,), and how far joints may go."""

    square: jax.Array
    gradient: jax.Array
    preferred_square: jax.Array
    preferred_gradient: jax.Array
    room_below: jax.Array
    room_above: jax.Array
    moves: jax.Array


def _evaluated(horizon: Horizon, q: jax.Array) -> _Rows:
    problem, path = horizon.problem, horizon.path

    def of_stage(problem: Problem, q: jax.Array, stage: jax.Array) -> _Rows:
        robot, tasks = problem.robot, problem.tasks
        kin = forward(constants_of(robot, tasks.values()), q)
        rows = map_tasks(lambda t, kin: weighted_rows(t, t.residual(robot, kin), t.jacobian(robot, kin)), tasks, kin)
        parts: list[jax.Array] = []
        for names in (path, tuple(name for name in tasks if name not in path)):
            square, gradient = jnp.zeros((robot.nv, robot.nv), q.dtype), jnp.zeros(robot.nv, q.dtype)
            for residual, jacobian in (rows[name] for name in names):
                # A waypoint that is not finite has no rows, and the motion goes on through it.
                fine = stage & jnp.all(jnp.isfinite(residual)) & jnp.all(jnp.isfinite(jacobian))
                residual, jacobian = jnp.where(fine, residual, 0), jnp.where(fine, jacobian, 0)
                square, gradient = square + jacobian.T @ jacobian, gradient + residual @ jacobian
            parts += [square, gradient]
        lower, upper = manifold.tangent_bounds(effective_joint_limits(problem))
        at = manifold.scalar_coordinates(robot.topology, q)
        moves = jnp.broadcast_to(stage, (robot.nv,))
        if problem.dof_mask is not None:
            moves = moves & problem.dof_mask
        square, gradient, preferred_square, preferred_gradient = parts
        return _Rows(square, gradient, preferred_square, preferred_gradient, lower - at, upper - at, moves)

    stage = horizon.stage.reshape(-1, *(1,) * (q.ndim - 2))
    ranks = {"problem": core_ranks(problem), "q": 1, "stage": 0}
    return over_batch(of_stage, {"problem": problem, "q": q, "stage": stage}, ranks)


def _moved(problem: Problem, q: jax.Array, change: jax.Array, smooth: jax.Array) -> jax.Array:
    """Within the joint limits, but while the motion is made smooth."""

    def of_stage(problem: Problem, q: jax.Array, change: jax.Array, smooth: jax.Array) -> jax.Array:
        robot = effective_joint_limits(problem)
        there = manifold.integrate(robot.topology, q, change)
        return jnp.where(smooth > 0, there, manifold.snap_to_limits(robot, q, there))

    ranks = {"problem": core_ranks(problem), "q": 1, "change": 1, "smooth": 0}
    return over_batch(of_stage, {"problem": problem, "q": q, "change": change, "smooth": smooth}, ranks)


def _solved(
    hessian: jax.Array, bands: list[jax.Array], gradient: jax.Array, held: jax.Array, smooth: jax.Array
) -> jax.Array:
    """Solve the banded system of all stages (N, *batch, nv), where `held` stay: three stages make one block."""
    stages, nv = gradient.shape[0], gradient.shape[-1]
    free = ~held
    own = hessian * (free[..., :, None] & free[..., None, :])
    largest = jnp.max(jnp.diagonal(own, axis1=-2, axis2=-1), axis=(0, -1))[..., None]
    while_smooth, to_return = RIDGE[hessian.dtype == jnp.float64]
    ridge = jnp.where(smooth > 0, while_smooth, to_return) * largest
    diagonal = jnp.where(held, 1, bands[0] + ridge)
    own = own + diagonal[..., None] * jnp.eye(nv, dtype=own.dtype)
    # The band k between stage t and t - k.
    across = [bands[k] * free * _later(free, k) for k in range(1, ORDERS + 1)]
    batch = gradient.shape[1:-1]

    def blocks(x: jax.Array) -> jax.Array:
        """(N, *batch, ...) as (*batch in one axis, N / 3, 3, ...)."""
        x = x.reshape(stages // ORDERS, ORDERS, -1, *x.shape[1 + len(batch) :])
        return jnp.moveaxis(x, 2, 0)

    eye = jnp.eye(nv, dtype=own.dtype)
    near, own, right = [blocks(x) for x in across], blocks(own), blocks(gradient * free)
    shape = (*own.shape[:3], nv, ORDERS, nv)
    diagonal, upper = jnp.zeros(shape, own.dtype), jnp.zeros(shape, own.dtype)
    for a in range(ORDERS):
        diagonal = diagonal.at[:, :, a, :, a].set(own[:, :, a])
        for b in range(a):
            link = near[a - b - 1][:, :, a, :, None] * eye
            diagonal = diagonal.at[:, :, a, :, b].set(link).at[:, :, b, :, a].set(link)
        for b in range(a + 1):
            # Stage a of a block and stage b of the next, three stages on less a - b.
            link = near[ORDERS - (a - b) - 1][:, 1:, b, :, None] * eye
            upper = upper.at[:, :-1, a, :, b].set(link)
    size = ORDERS * nv
    flat = lambda x: x.reshape(*x.shape[:2], size, size)  # noqa: E731
    solved = jax.vmap(solve_block_tridiagonal)(flat(diagonal), flat(upper), right.reshape(*right.shape[:2], size))
    solved = jnp.moveaxis(solved.reshape(-1, stages // ORDERS, ORDERS, nv), 0, 2)
    return solved.reshape(stages, *batch, nv)
