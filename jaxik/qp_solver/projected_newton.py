"""Bounds alone: projected Newton steps (Bertsekas 1982).

Variables that the slope presses against a bound stay there, the others go to their minimum, as far as the bounds let
each of them; where that does not lead down, all go as far as the first bound, and who is stopped there is held as well.
It ends where all went all the way. From the clipped free minimum that takes two to four eliminations, at 30 variables
seldom twenty. Block principal pivoting took four to five, and up to 29, on the steps of a Panda whose velocities
saturate; as many elements wait for the slowest among them, the worst counts.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.core.status import DerivativeStatus, Status
from jaxik.numerics.linalg import solve_positive
from jaxik.qp_solver.certificate import blank
from jaxik.qp_solver.finalize import all_finite
from jaxik.qp_solver.optimality import kkt_residual, objective
from jaxik.qp_solver.program import ActiveSet, Program, QPSolution

# A slope below so many roundings of its terms presses nowhere.
NOISE = 16
# The share of the decrease that the slope promises which a step in which each variable stops by itself has to bring.
SUFFICIENT = 1e-4
# A refinement that leaves more than this of the slope is the last.
STAGNANT = 0.5
# Curvature is added in such steps, up to about this share of the largest there is.
ADDED_MORE, FLAT = 16.0, 0.01


class _State(NamedTuple):
    """Between two eliminations.

    Attributes:
      x, slope (n,): a point within the bounds, and the gradient there.
      held (n,): variables that stay at their bound in the next step.
      added (): curvature added to H, where it was found flat: steps of the proximal-point method then.
      left (): the largest slope of a variable that was not held in the last step.
      iterations (): eliminations so far.
      done (): `x` is the minimum with these held, and they are pressed against their bounds.
    """

    x: jax.Array
    slope: jax.Array
    held: jax.Array
    added: jax.Array
    left: jax.Array
    iterations: jax.Array
    done: jax.Array


def projected(
    program: Program, warm_start: ActiveSet | None, limit: jax.Array | int, tolerance: jax.Array | float
) -> QPSolution:
    """The minimum of a program that has one; TIMEOUT where that is not found."""
    dtype = program.c.dtype
    given = program.lower == program.upper
    x, held = jnp.zeros_like(program.c), given
    if warm_start is not None:
        bound = jnp.where(warm_start.bounds > 0, program.upper, program.lower)
        held = given | ((warm_start.bounds != 0) & jnp.isfinite(bound))
        x = jnp.where(held, bound, x)
    x = jnp.clip(x, program.lower, program.upper)
    none = jnp.zeros((), jnp.int32)
    state = _State(
        x=x,
        slope=program.H @ x + program.c,
        held=held,
        added=jnp.zeros((), dtype),
        left=jnp.full((), jnp.inf, dtype),
        iterations=none,
        done=jnp.zeros((), bool),
    )
    going = lambda s: ~s.done & (s.iterations < limit)  # noqa: E731
    found = lax.while_loop(going, lambda s: _stepped(program, given, s), state)
    side = jnp.where(found.held, jnp.where(found.slope > 0, -1, 1), 0)
    side = jnp.where(given | (found.x == jnp.where(side > 0, program.upper, program.lower)), side, -side)
    multipliers = jnp.where(given, -found.slope, side * jnp.maximum(-side * found.slope, 0))
    nothing = jnp.zeros(0, dtype)
    residual = kkt_residual(program, found.x, multipliers, nothing, nothing)
    status = jnp.where((residual <= tolerance) & jnp.isfinite(found.added), Status.CONVERGED, Status.TIMEOUT)
    status = jnp.where(all_finite(program), status, Status.NONFINITE)
    x = jnp.where(jnp.isfinite(found.x), found.x, 0)
    return QPSolution(
        x=x,
        status=status.astype(jnp.int32),
        objective=objective(program, x),
        bound_multipliers=multipliers,
        row_multipliers=nothing,
        equality_multipliers=nothing,
        active=ActiveSet(side.astype(jnp.int32), jnp.zeros(0, bool)),
        kkt_residual=residual,
        iterations=found.iterations,
        certificate=blank(program),
        derivative_status=jnp.full((), DerivativeStatus.NOT_COMPUTED, jnp.int32),
    )


def _stepped(program: Program, given: jax.Array, state: _State) -> _State:
    """Go to the minimum over the variables that are not held, as far as bounds let each of them, or all of them."""
    x, free, lower, upper = state.x, ~state.held, program.lower, program.upper
    eye = jnp.eye(x.shape[0], dtype=x.dtype)
    top, eps = jnp.max(jnp.abs(program.H)), jnp.finfo(x.dtype).eps
    unit = jnp.where(top > 0, top, 1)
    # Held variables have a pivot, too, which must not look flat beside the others.
    matrix = jnp.where(free[:, None] & free[None, :], program.H + state.added * eye, unit * eye)
    step, pivot = solve_positive(matrix, jnp.where(free, -state.slope, 0))
    flat = ~(pivot > x.shape[0] * eps * top)
    step = jnp.where(flat, 0, step)
    # Curvature far above rounding makes every semidefinite H definite; where a hundredth of it does not, H is not one.
    more = jnp.where(state.added < FLAT * unit, ADDED_MORE * state.added, jnp.inf)
    more = jnp.where(state.added > 0, more, eps**0.5 * unit)
    added = jnp.where(flat, more, state.added)
    wanted = x + step
    each = jnp.clip(wanted, lower, upper)
    slope = program.H @ each + program.c
    noise = NOISE * eps * (jnp.abs(program.c) + jnp.abs(program.H) @ jnp.abs(each))
    # Of a quadratic the mean slope gives the difference exactly.
    moved = each - x
    promised, blur = jnp.sum(state.slope * moved), jnp.sum(noise * jnp.abs(moved))
    fine = 0.5 * jnp.sum((state.slope + slope) * moved) <= SUFFICIENT * promised + blur
    fine = fine | (state.iterations == 0)
    # The whole way to the first bound always goes down.
    room = jnp.where(step > 0, upper - x, x - lower) / jnp.where(step != 0, jnp.abs(step), 1)
    room = jnp.where(step != 0, room, jnp.inf)
    share = jnp.minimum(jnp.min(room), 1)
    stopped = free & (room <= share)
    together = jnp.where(stopped, jnp.where(step > 0, upper, lower), jnp.clip(x + share * step, lower, upper))
    x = jnp.where(fine, each, together)
    slope = lax.cond(fine, lambda: slope, lambda: program.H @ together + program.c)
    pressed = ((x <= lower) & (slope > noise)) | ((x >= upper) & (slope < -noise))
    pulled = ((x <= lower) & (slope < -noise)) | ((x >= upper) & (slope > noise))
    # What an ill-conditioned elimination leaves is removed by the next one, as long as that is better.
    left = jnp.max(jnp.where(free, jnp.abs(slope), 0))
    refined = jnp.all(~free | (jnp.abs(slope) <= noise)) | (left > STAGNANT * state.left)
    whole = fine & (added == 0) & jnp.all(wanted == each) & refined
    return _State(
        x=x,
        slope=slope,
        held=given | jnp.where(fine, pressed, state.held | stopped),
        added=added,
        left=left,
        iterations=state.iterations + 1,
        done=(whole & jnp.all(free | given | ~pulled))
        | jnp.all(pressed | given | (jnp.abs(slope) <= noise))
        | jnp.isinf(added)
        | ~jnp.isfinite(jnp.sum(slope)),
    )
