"""Keep a frame able to move in all directions: away from singularities."""

from typing import Any

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
        """The derivative of m by J, times that of J along `integrate`.

        In world axes, a degree of freedom j turns the columns of those behind it, d(v_k, w_k)/dq_j = w_j x (v_k, w_k),
        and moves the frame under those before it, dv_k/dq_j = w_k x v_j. In the frame's axes every column turns back
        with the frame.
        """
        by_entry = jax.grad(volume)(self._jacobian_of_frame(kin), self._rows())
        linear, angular = kin.jacobian_world_aligned(self.frame)
        to_world = kin.transform(self.frame).rotation if self.axes == "frame" else unit_matrix(3, dtype=linear.dtype)
        multipliers, twist = to_world @ by_entry[:3], to_world @ by_entry[3:]
        # Entry (j, k): w_j . (v_k x pull_k + w_k x twist_k), and v_j . (pull_k x w_k).
        turning = angular.T @ (lie.cross(linear, multipliers) + lie.cross(angular, twist))
        moving = linear.T @ lie.cross(multipliers, angular)
        nearer, same = kin.joint_order()
        turned = (nearer | same).astype(float) - (self.axes == "frame")
        row = jnp.sum(turning * jnp.asarray(turned, linear.dtype), 1) + jnp.sum(jnp.where(nearer.T, moving, 0), 1)
        return row[None]


def volume(jacobian: jax.Array, rows: jax.Array) -> jax.Array:
    """`sqrt(det J J')` of the chosen rows of a Jacobian (6, nv): the product of the lengths that Gram-Schmidt leaves.

    The determinant loses half of the digits next to a singularity, and its root has an infinite derivative there.
    """
    total, rest = jnp.ones((), jacobian.dtype), jacobian
    rounding = (16 * jnp.finfo(jacobian.dtype).eps) ** 2
    for i, row in enumerate(jacobian):
        square = jnp.sum(rest[i] * rest[i])
        dependent = square <= rounding * jnp.sum(row * row)
        length = jnp.sqrt(jnp.where(dependent, 1.0, square))
        total = total * jnp.where(rows[i], jnp.where(dependent, 0.0, length), 1.0)
        unit = jnp.where(rows[i] & ~dependent, rest[i] / length, 0.0)
        rest = rest - (rest @ unit)[:, None] * unit
    return total


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
