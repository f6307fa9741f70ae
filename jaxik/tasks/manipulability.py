"""Keep a frame able to move in all directions: away from singularities."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.schedule import plan
from jaxik.kinematics.topology import WORLD
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.custom_rules import pure_rule
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task

AXES = ("frame", "world")


@pytree
class ManipulabilityTask(Task):
    """Bring the manipulability `sqrt(det J J')` of `frame` (Yoshikawa 1985) to `target`, the residual (1,) to zero.

    J are the rows of the frame's Jacobian that `mask` leaves, over all degrees of freedom that move it: hinges, slides,
    balls and free joints alike, rates in rad/s and m/s. As a product of such rows it is given as a plain number. A
    target above what the robot reaches maximises it. Its derivative is bounded, and taken as zero at singularities,
    where it has a kink.

    Args:
      frame: the frame, from `robot.frame(name)`.
      target: (*batch,), the manipulability asked for.
      mask: (*batch, 6) of bool, linear rows first; None: all rows.
      cost: (*batch,), the weight of the row.
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      tolerance: (*batch,), of manipulability; None: never met.
      priority: 0 is highest; static.
      axes: "frame" or "world": the axes of the rows that the mask takes; static.

    Raises:
      JaxikError: for a wrong type or shape, a mask that is not bool or leaves nothing, a negative target or cost; in
        `Problem`, for more rows than degrees of freedom move the frame, whose manipulability is always zero.
    """

    frame: Frame = static()
    target: Any = leaf(0)
    mask: Any = leaf(1, default=None)
    cost: Any = leaf(0, default=1.0)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    tolerance: Any = leaf(0, default=None)
    priority: int = static(default=0)
    axes: str = static(default="frame")
    unit = "1"
    target_field = ("target", "manipulability", "1")

    def __post_init__(self) -> None:
        arguments.frame("frame", self.frame)
        validation.one_of("axes", self.axes, AXES)
        arguments.set_common(self)
        set_fields(
            self,
            target=validation.number("target", self.target),
            mask=_mask(self.mask),
            cost=validation.number("cost", self.cost),
        )

    @classmethod
    def from_configuration(
        cls, robot: Robot, q: Any, frame: Frame | str, mask: Any = None, axes: str = "frame", **options: Any
    ) -> "ManipulabilityTask":
        """The task that keeps the manipulability that the configuration `q` (*batch, nq) has; `options` as above."""
        task = cls(robot.frame(frame), 0.0, mask, axes=axes, **options)
        task.check(robot)
        reference = {"frame": "body", "world": "world_aligned"}[axes]
        jacobian = robot.frame_jacobian(q, frame, reference)
        rows = jnp.ones(6, bool) if task.mask is None else task.mask
        target = jnp.vectorize(volume, signature="(r,n),(r)->()")(jacobian, rows)
        return cls(task.frame, target, mask, axes=axes, **options)

    def check(self, robot: Robot) -> None:
        super().check(robot)
        evaluation = plan(robot.topology, (self.frame,))
        (carrier,) = evaluation.frame_segments
        joints = [] if carrier == WORLD else [evaluation.joints[s] for s in evaluation.ancestors[carrier]]
        movers = sum(robot.topology.joints[j].type.nv for j in joints)
        if isinstance(self.mask, Tracer):
            return
        rows = 6 if self.mask is None else int(np.asarray(self.mask).sum(-1).max())
        if rows > movers:
            raise JaxikError(
                f"{self.frame.name or self.frame!r} has {movers} degrees of freedom, fewer than the {rows} rows, "
                f"whose manipulability is therefore always zero: choose at most {movers} rows with mask"
            )

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame,)

    def _rows(self) -> jax.Array:
        return jnp.ones(6, bool) if self.mask is None else self.mask

    def _jacobian_of_frame(self, kin: Kinematics) -> jax.Array:
        world = jnp.concatenate(kin.jacobian_world_aligned(self.frame))
        return world if self.axes == "world" else kin.jacobian(self.frame)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return (volume(self._jacobian_of_frame(kin), self._rows()) - self.target)[None]

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """The derivative of m by J, times that of J along `integrate`."""
        return self._gradient(kin, self._jacobian_of_frame(kin))[None]

    def second_derivative(self, robot: Robot, kin: Kinematics, multipliers: jax.Array) -> jax.Array:
        """That of the gradient, a function of J alone, along the derivatives of J: never through the kinematics."""
        jacobian = self._jacobian_of_frame(kin)

        def along(tangent: jax.Array) -> jax.Array:
            return jax.jvp(lambda jacobian: self._gradient(kin, jacobian), (jacobian,), (tangent,))[1]

        hessian = jax.vmap(along, in_axes=1)(self._turned(kin, jacobian))
        return multipliers[0] * (hessian + hessian.T) / 2

    def _gradient(self, kin: Kinematics, jacobian: jax.Array) -> jax.Array:
        """The sum (nv,) of m's derivatives by the entries of J times `_turned`, column by column."""
        found = _inverse(jacobian, self._rows())
        (v, w), (by_v, by_w) = jnp.split(jacobian, 2), jnp.split(found.volume * found.pseudoinverse, 2)
        before = jnp.asarray(_nearer(kin), jacobian.dtype)
        turns = lie.cross(by_v, v) + lie.cross(by_w, w)
        pushed, twisted = lie.cross(by_v, w) @ before, turns @ before
        if self.axes == "world":
            twisted = twisted - jnp.sum(turns, axis=1, keepdims=True)
        return jnp.sum(v * pushed + w * twisted, axis=0)

    def _turned(self, kin: Kinematics, jacobian: jax.Array) -> jax.Array:
        """The derivative (6, nv, nv) of a Jacobian (6, nv), in its axes, by each degree of freedom, in the middle.

        One that is farther from the base changes the column of one that is nearer by the Lie bracket of both in the
        frame's axes (Murray, Li, Sastry 1994, section 2.4); axes of the world are as if those turned back. Columns of a
        free joint's position turn among themselves in the frame's axes as well, which leaves J J' and so m as it is.
        """
        v, w = jacobian[:3, None, :], jacobian[3:, None, :]
        by_v, by_w = jacobian[:3, :, None], jacobian[3:, :, None]
        turns = jnp.concatenate([lie.cross(by_w, v), lie.cross(by_w, w)])
        moves = jnp.concatenate([lie.cross(w, by_v), jnp.zeros_like(turns[3:])])
        turned = jnp.where(_nearer(kin).T, moves - turns, 0)
        return turned + turns if self.axes == "world" else turned


def _nearer(kin: Kinematics) -> np.ndarray:
    """For each pair of degrees of freedom (nv, nv) whether the first one's joint is nearer to the base."""
    return kin.joint_order()[0]


class _Inverse(NamedTuple):
    """Of the chosen rows of a Jacobian J (6, nv), with zeros in the place of the others.

    Attributes:
      volume (): `sqrt(det J J')`, zero where the rows are dependent.
      pseudoinverse (6, nv): its transpose, `(J J')^-1 J`.
      gram (6, 6): `(J J')^-1`.
    """

    volume: jax.Array
    pseudoinverse: jax.Array
    gram: jax.Array


def volume(jacobian: jax.Array, rows: jax.Array) -> jax.Array:
    """`sqrt(det J J')` of the chosen rows of a Jacobian (6, nv)."""
    return _inverse(jacobian, rows).volume


@jax.custom_jvp
def _inverse(jacobian: jax.Array, rows: jax.Array) -> _Inverse:
    """By Gram-Schmidt: the volume is the product of the lengths that it leaves.

    The determinant loses half of the digits next to a singularity, and its root has an infinite derivative there.
    """
    (count, width), dtype = jacobian.shape, jacobian.dtype
    total, units = jnp.ones((), dtype), []
    # What is done to J is done to the unit matrix beside it.
    rest = jnp.concatenate([jacobian, unit_matrix(count, dtype=dtype)], axis=1)
    rounding = (16 * jnp.finfo(dtype).eps) ** 2
    for i, row in enumerate(jacobian):
        square = jnp.sum(rest[i, :width] * rest[i, :width])
        dependent = square <= rounding * jnp.sum(row * row)
        length = jnp.sqrt(jnp.where(dependent, 1.0, square))
        total = total * jnp.where(rows[i], jnp.where(dependent, 0.0, length), 1.0)
        units.append(jnp.where(rows[i] & ~dependent, rest[i] / length, 0.0))
        rest = rest - (rest[:, :width] @ units[i][:width])[:, None] * units[i]
    orthonormal, made = jnp.split(jnp.stack(units), [width], axis=1)
    return _Inverse(total, made.T @ orthonormal, made.T @ made)


@_inverse.defjvp
@pure_rule
def _derivative(primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, Any]) -> tuple[_Inverse, _Inverse]:
    """Golub, Pereyra 1973; where rows are dependent, the volume has none."""
    found, change = _inverse(*primals), tangents[0]
    inverse, gram = found.pseudoinverse, found.gram
    with lie.exactly():
        by_rows, by_columns = gram @ change, change @ inverse.T
        along = found.volume * jnp.sum(inverse * change)
        moved = by_rows - (by_rows @ primals[0].T) @ inverse - by_columns.T @ inverse
        grown = gram @ by_columns
        return found, _Inverse(along, moved, -(grown + grown.T))


def _mask(mask: Any) -> Any:
    if mask is None:
        return None
    mask = arguments.mask(mask)
    if not isinstance(mask, Tracer):
        given = np.asarray(mask)
        if not np.isin(given, (0, 1)).all():
            raise JaxikError(f"mask takes rows or leaves them, True or False, not {given!r}")
        if not given.any(-1).all():
            raise JaxikError("mask leaves no rows: a manipulability needs at least one")
    return mask != 0
