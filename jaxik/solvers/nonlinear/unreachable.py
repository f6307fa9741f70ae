"""What a level out of reach adds to the Lagrangian of the last level.

It is not its residual that such a level keeps, but the gradient g of its own Lagrangian: g = J' r + the sum of A' a
over the levels above it, whose residuals have Jacobians A and pull by a. The last level pulls at g with a multiplier m,
so that what bends its own Lagrangian is a third derivative, along m. The pulls a are unknowns of that Lagrangian: that
it is stationary in them is A m = 0, and as the configuration moves by dx, g = 0 asks for A' da = -(dg + H dx). Where
both are put in, what is left of them is the two products in `unreachable_terms`, and those in `Stretch.answered`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.solvers.nonlinear.lagrangian import VISIBLE, Levels, Place, along, balance, bend, pressed


class UnreachableTerms(NamedTuple):
    """The highest level out of reach, of p above the last, and what it adds; zeros where there is none.

    Attributes:
      chosen (p,): which level it is: ones and zeros.
      multiplier (n,): by which the last level pulls at its gradient.
      hessian (n, n): of its Lagrangian.
      pulls (m,): of the levels above it, an entry each but for the last, here and below.
      answers (m, n): how they change with its gradient.
      turns (m, n): how the Jacobians of these levels change along the multiplier.
    """

    chosen: jax.Array
    multiplier: jax.Array
    hessian: jax.Array
    pulls: tuple[jax.Array, ...]
    answers: tuple[jax.Array, ...]
    turns: tuple[jax.Array, ...]

    def gradient(self, place: Place) -> jax.Array:
        """Of its Lagrangian (n,), for constant pulls."""
        pulls = _pulls(self.chosen, self.pulls, place)
        return sum((pull @ J for pull, J in zip(pulls, place.boxed, strict=False)), jnp.zeros_like(self.multiplier))

    def pulled(self, place: Place, gradients: Sequence[jax.Array]) -> tuple[list[jax.Array], tuple[jax.Array, ...]]:
        """The levels' gradients, where this one pulls with its gradient; and A m of the levels above it."""
        own, none = self.gradient(place), jnp.zeros_like(self.multiplier)
        above = [jnp.where(c == 1, own, gradient) for c, gradient in zip(self.chosen, gradients, strict=False)]
        pull = jax.lax.cond(
            jnp.any(self.chosen == 1), lambda: along(place, self.multiplier, self.gradient), lambda: none
        )
        return [*above, gradients[-1] + pull], tuple(J @ self.multiplier for J in place.boxed[: len(self.turns)])

    def answered(self, gradients: Sequence[jax.Array], asked: Sequence[jax.Array]) -> list[jax.Array]:
        """Changes of the levels' gradients, with what changes of the pulls do; from those of what `pulled` returns."""
        *above, last = gradients
        own = _of_chosen(self.chosen, above)
        for answer, turn, change in zip(self.answers, self.turns, asked, strict=True):
            last = last + (change @ answer) @ self.hessian + (answer @ own) @ turn
        return [*above, last]


def unreachable_terms(
    place: Place, above: Levels, inverses: Sequence[jax.Array], multipliers: Sequence[jax.Array]
) -> tuple[UnreachableTerms, jax.Array]:
    """The level out of reach, and what it bends (n, n); the multipliers (n,) are those that balance the last level."""
    lost = jnp.stack(above.lost)
    chosen = (lost & (jnp.cumsum(lost) == 1)).astype(place.kin.q.dtype)
    higher = range(len(lost) - 1)
    pulls = tuple(
        sum((chosen[j] * above.pulls[j][k] for j in range(k + 1, len(lost))), jnp.zeros_like(place.models[k].residual))
        for k in higher
    )
    hessian, multiplier = _of_chosen(chosen, above.hessians), _of_chosen(chosen, multipliers)
    answering = [jnp.any(chosen[k + 1 :] == 1) * inverses[k] for k in higher]
    by, _ = balance(jnp.eye(hessian.shape[0], dtype=hessian.dtype), above.hessians[:-1], answering)
    answers = tuple(J @ m for J, m in zip(place.boxed[: len(higher)], by, strict=True))

    def turning(at: Place) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        square = sum(c * (J.T @ J) for c, J in zip(chosen, at.boxed, strict=False))
        return square + bend(at, _pulls(chosen, pulls, at)), tuple(at.boxed[: len(higher)])

    nothing = jnp.zeros_like(hessian), tuple(jnp.zeros_like(J) for J in place.boxed[: len(higher)])
    third, turns = jax.lax.cond(jnp.any(lost), lambda: along(place, multiplier, turning), lambda: nothing)
    mixed = sum(
        (turn.T @ answer @ hessian for turn, answer in zip(turns, answers, strict=True)), jnp.zeros_like(hessian)
    )
    return UnreachableTerms(chosen, multiplier, hessian, pulls, answers, turns), third + mixed + mixed.T


def _of_chosen(chosen: jax.Array, entries: Sequence[jax.Array]) -> jax.Array:
    """The entry of the level out of reach, zeros where there is none."""
    return sum((c * x for c, x in zip(chosen, entries, strict=True)), jnp.zeros_like(entries[0]))


def _pulls(chosen: jax.Array, pulls: Sequence[jax.Array], place: Place) -> list[jax.Array]:
    """By what each residual of the levels above the last pulls, in the Lagrangian of the one out of reach."""
    own = [c * model.residual for c, model in zip(chosen, place.models, strict=False)]
    return [*(r + pull for r, pull in zip(own, pulls, strict=False)), own[-1]]


def left_out(place: Place, above: Levels, stretch: UnreachableTerms) -> jax.Array:
    """Whether something is out of reach whose derivatives are left out: a second level, or a ball at its limit."""
    prepared = place.prepared
    at_limit = pressed(place, _of_chosen(stretch.chosen, above.gradients), stretch.hessian, VISIBLE)
    balls = [prepared.moving.own.index(prepared.robot.topology.joints[j].v_index) for j in prepared.moving.balls]
    limited = jnp.any(jnp.asarray([at_limit[i] for i in balls], bool))
    lost = jnp.sum(jnp.stack(above.lost))
    return (lost > 1) | ((lost > 0) & limited)
