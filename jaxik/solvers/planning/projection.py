"""Constraints on the way: the path is planned in all joints, and where the robot is on it is its projection.

A configuration is projected by Gauss-Newton steps of least norm. Along a way the projections are a curve that keeps the
constraints, as long as the way stays near them; the planner looks along that curve. So ways are cut short and corners
rounded as without constraints, and what was looked at is what the robot does.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.linalg import largest
from jaxik.problem.problem import Problem, constraints_of, with_dof_mask, with_tasks
from jaxik.solvers.nonlinear.formulation import Formulation, errors, evaluate, formulation, met, retract, rows
from jaxik.solvers.nonlinear.gauss_newton import boxed_rows, damped_least_squares
from jaxik.solvers.nonlinear.hard_constraint import HardConstraint
from jaxik.solvers.nonlinear.scaling import limits_at, not_held

# Steps of a projection: from half a radian away a Panda's hand is upright to 1e-6 rad after four.
STEPS = 6
# Of the largest sum of squares of a column. Rows that follow from others have no inverse without; with one near
# rounding how far a step goes is noise, and the curve jumps. The same in all precisions, so that the curve is the same.
DAMPING = 1e-5
# Norm of each part of a constraint's error that counts as kept [rad or m].
KEPT = 1e-4
# How far a way may be from its projection, as the root of the sum of squares over joints [rad or m].
NEAR = 1.0
# The longest stride, as NEAR. Its projection may go so many times as far, and half way be off the straight way by so
# much of that: what does more jumps, and a jump of more than 0.13 does more. Elsewhere it is off by less than so many
# times that.
LONGEST_STRIDE, FARTHEST, MOST_BENT, BEND = 0.5, 3.0, 0.1, 1.5


class Projected(NamedTuple):
    """A configuration (nq,) near another, and whether it keeps the constraints ()."""

    q: jax.Array
    kept: jax.Array


def manifold_of(problem: Problem, moves: jax.Array) -> Formulation | None:
    """The constraints that hold on the way, None where there are none; `moves` (nv,): what a motion changes."""
    constraints = constraints_of(problem, couplings=False)
    if not constraints:
        return None
    tolerance = jnp.asarray(KEPT, problem.robot.q_home.dtype)
    held = {name: HardConstraint(task, tolerance) for name, task in constraints.items()}
    return formulation(with_dof_mask(with_tasks(problem, held), moves))


def keeps(manifold: Formulation, q: jax.Array) -> jax.Array:
    """Whether a configuration (nq,) keeps the constraints ()."""
    return met(manifold, errors(manifold, evaluate(manifold, q)), tuple(manifold.problem.tasks))


def project(manifold: Formulation, q: jax.Array) -> Projected:
    """The projection of a configuration (nq,), within the joint limits."""
    level = tuple(manifold.problem.tasks)

    def nearer(q: jax.Array, _: Any) -> tuple[jax.Array, None]:
        limits, kin = limits_at(manifold, q), evaluate(manifold, q)
        found = boxed_rows(manifold, kin, rows(manifold, kin, level), level)
        free = not_held(limits, found.residual @ found.jacobian)
        damping = DAMPING * largest(jnp.sum(found.jacobian**2, axis=0))
        change, _ = damped_least_squares(found.jacobian, free.astype(q.dtype), found.residual, damping)
        return retract(manifold, q, limits, jnp.clip(change, limits.lower, limits.upper)), None

    there, _ = lax.scan(nearer, q, None, length=STEPS)
    return Projected(there, keeps(manifold, there))


class Stride(NamedTuple):
    """Part of a way as the robot goes it.

    Attributes:
      q (nq,): its end, projected.
      change (nq,): from its start, projected.
      aside (nq,): how far it may be from the straight way between both, joint by joint.
      kept, smooth (): whether its end keeps the constraints, near the way; whether nothing jumps on it.
    """

    q: jax.Array
    change: jax.Array
    aside: jax.Array
    kept: jax.Array
    smooth: jax.Array


def stride_on(
    manifold: Formulation, q: jax.Array, change: jax.Array, aside: jax.Array, before: jax.Array, unit: jax.Array
) -> Stride:
    """The projection of a stride to `q` (nq,) by `change` (nq,), from `before` (nq,), which was projected.

    Args:
      aside (nq,): how far the path that is meant may be from the straight way.
      unit (): of lengths of ways.
    """
    (half, here), (half_kept, kept) = jax.vmap(lambda q: project(manifold, q))(jnp.stack([q - change / 2, q]))
    moved, bend = here - before, jnp.abs(half - (before + here) / 2)
    length, gone, bent = _length(change), _length(moved), _length(bend)
    smooth = half_kept & (gone <= FARTHEST * length + KEPT) & (bent <= MOST_BENT * gone + KEPT)
    kept = kept & (_length(here - q) <= NEAR * unit)
    return Stride(here, moved, BEND * bend + FARTHEST * jnp.abs(aside), kept, smooth)


def _length(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(x * x))
