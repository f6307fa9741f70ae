"""The linear system of a motion's optimality (KKT) conditions: how a motion changes where they change.

H x + J' y + A' z = a,   J x - B y = b,   A x - C z = c

for the motion x, multipliers y of tasks and z of limits, and B and C diagonal: how little rows and limits give, nothing
where a row is of the path. It is symmetric and indefinite. The method of multipliers solves it (Nocedal and Wright,
"Numerical Optimization", 17.3), whose every step is of a banded system with stiff rows. That banded system alone left
3 % of error where rows nearly depend on each other: multipliers are large there, and so is by how much stiff rows are
missed.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxik.numerics.constants import unit_matrix
from jaxik.solvers.tracking.banded import (
    ORDERS,
    BlockFactor,
    adjoint,
    bands_of,
    blocks_of,
    factorized,
    solved_again,
)
from jaxik.solvers.tracking.horizon import Horizon, Rows, changes_of, differences
from jaxik.solvers.tracking.smoothing import RIDGE, TIGHT, system_of

# Steps of the method of multipliers. Each left a thirtieth of the error where the rows of two
# limits on jerk and of two waypoints depended on each other but for 1e-3.
STEPS = 8
# Limits are no stiffer in one step: more would leave no digits of what is not stiff, which is about 1.
FIRMEST = 1e10
# Where another step would change a solution by more, as a share of it, it is no solution.
UNSOLVED = 1e-6


class Unknowns(NamedTuple):
    """Of the system, or a right-hand side of it.

    Attributes:
      q (N, *batch, nv): the motion x, or the gradient a.
      pull (N, *batch, m): multipliers y of tasks, or their residuals b.
      press (kinds, N, *batch, nv): multipliers z of limits, the upper less the lower, or what is left to them c; by
        displacements and joints, and not by widths.
    """

    q: jax.Array
    pull: jax.Array
    press: jax.Array


class KKTSystem(NamedTuple):
    """With the factors of the banded system of a step.

    Attributes:
      horizon: None where it is not at hand.
      held: 1 / B, infinite for rows of the path.
      firm: 1 / C, 0 where there is no limit.
    """

    horizon: Any
    rows: Rows
    weight: jax.Array
    held: jax.Array
    firm: jax.Array
    factor: BlockFactor

    def of_path(self, x: jax.Array) -> jax.Array:
        return (self.rows.jacobian @ x[..., None])[..., 0]

    def of_limits(self, x: jax.Array) -> jax.Array:
        return jnp.where(self.firm > 0, changes_of(self.horizon, x), 0)

    def slope(self, pull: jax.Array, press: jax.Array) -> jax.Array:
        """What multipliers add to the gradient: the transpose of both."""
        press = jnp.where(self.firm > 0, press, 0)
        by_path = (jnp.swapaxes(self.rows.jacobian, -1, -2) @ pull[..., None])[..., 0]
        press = self.horizon.by_order(press)
        return by_path + sum(adjoint(k, press[k]) for k in range(ORDERS)) + press[ORDERS]

    def product(self, x: Unknowns) -> Unknowns:
        """The left-hand side."""
        stays, some = ~self.rows.moves, self.firm > 0
        moved = jnp.where(stays, 0, x.q)
        smooth = self.weight * changes_of(self.horizon, moved)[:ORDERS]
        own = ((self.rows.preferred_square + self.rows.curvature) @ moved[..., None])[..., 0]
        gradient = own + sum(adjoint(k, smooth[k]) for k in range(ORDERS)) + self.slope(x.pull, x.press)
        gives = jnp.where(some, 1 / jnp.where(some, self.firm, 1), 1)
        missed = self.of_path(moved) - x.pull / self.held
        return Unknowns(jnp.where(stays, x.q, gradient), missed, self.of_limits(moved) - gives * x.press)

    def step(self, right: Unknowns, x: Unknowns) -> Unknowns:
        """One of the method of multipliers."""
        stays = ~self.rows.moves
        tight, stiff = stiffness(self.held), jnp.minimum(self.firm, FIRMEST)
        left = jax.tree.map(jnp.subtract, right, self.product(x))
        pressed = left.q + self.slope(tight * left.pull, stiff * left.press)
        moved = solved_again(self.factor, jnp.where(stays, left.q, pressed))
        free = jnp.where(stays, 0, moved)
        more = Unknowns(moved, tight * (self.of_path(free) - left.pull), stiff * (self.of_limits(free) - left.press))
        return jax.tree.map(jnp.add, x, more)

    def solve(self, right: Unknowns) -> Unknowns:
        return lax.fori_loop(0, STEPS, lambda _, x: self.step(right, x), jax.tree.map(jnp.zeros_like, right))

    def solves(self) -> jax.Array:
        """Whether a motion of all joints is found again (*batch,), as a measure for any other."""
        every = self.rows.moves.astype(self.firm.dtype)
        right = Unknowns(jnp.zeros_like(every), self.of_path(every), self.of_limits(every))
        found = self.solve(right)
        most = lambda x: jnp.max(jnp.abs(x), axis=(0, -1))  # noqa: E731
        error = most(self.step(right, found).q - found.q)
        return error <= UNSOLVED * most(found.q)


def stiffness(held: jax.Array) -> jax.Array:
    """Of rows in one step."""
    return jnp.minimum(held, TIGHT)


def kkt_system(
    horizon: Horizon, q: jax.Array, rows: Rows, held: jax.Array, firm: jax.Array
) -> tuple[KKTSystem, jax.Array]:
    """The system at a motion, and whether that of a step is positive (*batch,); what is not has the identity instead.

    Args:
      held (N, *batch, m): how stiff rows are, infinite for those of the path.
      firm (kinds, N, *batch, nv): how stiff limits are, by displacements and not by widths.
    """
    shape = q.shape[1:-1]
    found = differences(horizon.problem.robot.topology, q)
    system = system_of(horizon, rows, found, True, jnp.ones(shape, bool), stiffness(held), rows.residual)
    stiff = horizon.by_order(jnp.minimum(firm, FIRMEST))
    bands = bands_of(system.weight + stiff[:ORDERS])
    bands[0] = bands[0] + stiff[ORDERS]
    factor = factorized(blocks_of(system.hessian, bands, ~rows.moves, jnp.asarray(RIDGE, q.dtype)))
    positive = jnp.all(jnp.isfinite(factor.ratio) & jnp.isfinite(factor.lower), axis=(-3, -2, -1))
    eye = unit_matrix(factor.lower.shape[-1], dtype=q.dtype)
    kept = (jnp.where(positive[:, None, None, None], x, y) for x, y in zip(factor, (eye, 0, 0), strict=True))
    return KKTSystem(horizon, rows, system.weight, held, firm, BlockFactor(*kept)), positive.reshape(shape)


def solution(system: KKTSystem, right: Unknowns) -> Unknowns:
    """The solution, which can be differentiated by the right-hand side."""
    # As one vector: the transpose takes no right-hand side of which parts do not depend on what is differentiated by.
    flat, unflat = ravel_pytree(right)

    def product(x: jax.Array) -> jax.Array:
        return ravel_pytree(system.product(unflat(x)))[0]

    def solve(_: Any, right: jax.Array) -> jax.Array:
        return ravel_pytree(system.solve(unflat(right)))[0]

    return unflat(lax.custom_linear_solve(product, flat, solve, symmetric=True))
