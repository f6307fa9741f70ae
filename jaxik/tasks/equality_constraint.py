"""Hold a model's equality constraints: closed loops, welds, coupled joints and tendons."""

import itertools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.equality import Equality
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics.linalg import static_gather
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task
from jaxik.tasks.frame_equalities import HELD_FRAMES, FrameEqualities, grouped_equalities
from jaxik.tasks.joint_equalities import JointEqualities


@pytree
class EqualityConstraintTask(Task):
    """Bring equality constraints of the model to zero.

    The residual (m,) has the rows of each constraint in the order given, as MuJoCo's `efc_pos` has them:

    - connect, 3 [m]: from the anchor in the second body to that in the first, or between two sites, in world axes;
    - weld, 6: the same [m], then the rotation vector [rad] from the second body, or site, to where the first has it, in
      axes of the second, times the constraint's torque scale. MuJoCo has the quaternion's imaginary part there, which
      is the same direction, near zero half as long, and decreases again beyond 180 degrees;
    - joint, 1 [rad or m], and tendon, 1 [m]: the first, counted from its reference, less the polynomial of the second;
    - closure, of `robot.with_closure`: from the second frame to the first, in axes of the second, what it holds of the
      shift [m] and the rotation [rad]. Three rotations are the rotation vector. Two are the tilt of the third axis,
      sin(angle) large; one is the cosine between two axes that are perpendicular where it is zero.

    What they hold is in the robot's `equality_data`, so that there is no `from_configuration`. The rows of a constraint
    that `robot.with_active` has switched off are zero.

    Args:
      equalities: constraints from `robot.equalities(...)`; static.
      cost: a number, or (*batch, n) for n constraints, one a constraint for all its rows; (B, 1) for a batch.
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      tolerance: (*batch,): met when the norm of all rows is below.
      priority: 0 is highest; static.

    Raises:
      JaxikError: if a constraint is given twice, or none, or costs do not fit.
    """

    equalities: tuple[Equality, ...] = static()
    cost: Any = leaf(1, default=1.0)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    tolerance: Any = leaf(0, default=1e-4)
    priority: int = static(default=0)
    unit = "rad or m"

    def __post_init__(self) -> None:
        equalities = (self.equalities,) if isinstance(self.equalities, Equality) else self.equalities
        if not isinstance(equalities, tuple | list) or not all(isinstance(e, Equality) for e in equalities):
            raise JaxikError(f"equalities come from robot.equalities(names or indices), not {equalities!r}")
        if not equalities:
            raise JaxikError("equalities is empty: robot.equalities() has all active constraints of the model")
        twice = [e.label for e, count in Counter(equalities).items() if count > 1]
        if twice:
            raise JaxikError(f"equality constraints given twice: {', '.join(twice)}")
        arguments.set_common(self)
        set_fields(self, equalities=tuple(equalities), cost=arguments.cost("cost", self.cost, len(equalities)))

    def check(self, robot: Robot) -> None:
        super().check(robot)
        robot.equalities(self.equalities)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return tuple(dict.fromkeys(frame for part in self._parts() for frame in part.frames))

    def reads_dofs(self, robot: Robot) -> tuple[int, ...]:
        """Those of coupled joints and of tendons along joints; the other constraints look at frames."""
        return tuple(dof for part in self._parts() for dof in part.reads_dofs(robot))

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return self._in_order(robot, [part.residual(robot, kin) for part in self._parts()])

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return self._in_order(robot, [part.jacobian(robot, kin) for part in self._parts()])

    def step_jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """The Jacobian in axes that turn with what carries both ends of a connect or weld.

        In world axes an arm turns what is still open of its gripper's loops. Of a planar loop that is all that the row
        across its plane depends on, so that this row would hold the arm, the more weakly the less the loop is open.
        """
        return self._in_order(robot, [part.step_jacobian(robot, kin) for part in self._parts()])

    def second_derivative(self, robot: Robot, kin: Kinematics, multipliers: jax.Array) -> jax.Array:
        rows = static_gather(self._held(robot, multipliers), self._order())
        total, start = jnp.zeros((kin.nv, kin.nv), kin.q.dtype), 0
        for part in self._parts():
            end = start + sum(e.num_rows for e in part.equalities)
            total, start = total + part.second_derivative(robot, kin, rows[start:end]), end
        return total

    def _parts(self) -> list[FrameEqualities | JointEqualities]:
        """The constraints, those of one kind together."""
        coupled = tuple(e for e in self.equalities if e.kind not in HELD_FRAMES)
        return [*grouped_equalities(self.equalities), *([JointEqualities(coupled)] if coupled else [])]

    def _order(self) -> list[int]:
        """Of each row of the parts, one after the other, the row of the residual that it is."""
        ends = list(itertools.accumulate((e.num_rows for e in self.equalities), initial=0))
        rows = {e: range(*span) for e, span in zip(self.equalities, itertools.pairwise(ends), strict=True)}
        return [row for part in self._parts() for e in part.equalities for row in rows[e]]

    def _in_order(self, robot: Robot, rows: list[jax.Array]) -> jax.Array:
        """The rows (m, ...) of the parts in the order of the constraints."""
        order = self._order()
        return self._held(robot, static_gather(jnp.concatenate(rows), [order.index(row) for row in range(len(order))]))

    def _held(self, robot: Robot, rows: jax.Array) -> jax.Array:
        """Rows (m, ...), zeros of constraints that are switched off."""
        if robot.equality_active is None:
            return rows
        active = static_gather(robot.equality_active, [e.index for e in self.equalities for _ in range(e.num_rows)])
        return jnp.where(active.reshape(-1, *(1,) * (rows.ndim - 1)) != 0, rows, 0)

    def weights(self) -> jax.Array:
        cost = jnp.broadcast_to(self.cost, (len(self.equalities),))
        return jnp.concatenate([jnp.broadcast_to(c, e.num_rows) for c, e in zip(cost, self.equalities, strict=True)])
