"""Bring all joints to a posture: a regulariser at low priority or cost."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.manifold import difference
from jaxik.kinematics.manifold_derivatives import Turns, bending, free_rates, turns, with_blocks
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task
from jaxik.tasks.objective import Objective


@pytree
class PostureTask(Task):
    """Bring all joints to the posture `q`; the residual (nv,) is `difference(posture, q)` [rad, m].

    A ball joint's rows are the rotation vector from the posture to where it is, in the posture's axes. Rows of free
    joints are zero unless `free_joints`: a posture says how the robot holds itself, and not where it stands.

    Args:
      q: the posture (*batch, nq), such as `robot.q_home`.
      cost: weight of the rows: a number, or (*batch, nv), or (*batch, 1).
      gain: (*batch,), of differential IK; `solve` ignores it.
      free_joints: whether free joints belong to the posture; static.
      lm_damping: (*batch,), of differential IK; `solve` ignores it.
      tolerance: (*batch,) on the norm of all rows with a cost, [rad] and [m] together; None: a posture is preferred,
        and never met.
      priority: 0 is highest; static.

    Raises:
      JaxikError: for a wrong type or a negative cost; in `Problem`, for a shape that is not the robot's.
    """

    q: Any = leaf(1)
    cost: Any = leaf(1, default=1.0)
    gain: Any = leaf(0, default=1.0)
    free_joints: bool = static(default=False)
    lm_damping: Any = leaf(0, default=0.0)
    tolerance: Any = leaf(0, default=None)
    priority: int = static(default=0)
    unit = "rad or m"
    target_field = ("q", "q", "see q_unit")

    def __post_init__(self) -> None:
        if not isinstance(self.free_joints, bool):
            raise JaxikError(f"free_joints is True or False, not {self.free_joints!r}")
        arguments.set_common(self)
        q = validation.array("q", self.q)
        if not q.ndim:
            raise JaxikError(f"q is a posture (*batch, nq), such as robot.q_home, not the number {self.q!r}")
        set_fields(self, q=q, cost=validation.of_rows("cost", self.cost))

    @classmethod
    def from_configuration(cls, robot: Robot, q: Any, **options: Any) -> "PostureTask":
        """The task that holds the posture `q` (*batch, nq); `options` as above."""
        task = cls(q, **options)
        task.check(robot)
        return task

    def check(self, robot: Robot) -> None:
        super().check(robot)
        if self.q.shape[-1] != robot.nq:
            raise JaxikError(f"the posture has shape (*batch, nq) with nq = {robot.nq}, not {self.q.shape}")
        if self.cost.ndim and self.cost.shape[-1] not in (1, robot.nv):
            raise JaxikError(
                f"the posture's cost is a number, (*batch, nv) with nv = {robot.nv}, or (*batch, 1); "
                f"not {self.cost.shape}"
            )

    def reads_dofs(self, robot: Robot) -> tuple[int, ...]:
        return self._counted(robot)

    def _counted(self, robot: Robot) -> tuple[int, ...]:
        left_out = () if self.free_joints else free_rates(robot.topology)
        return tuple(dof for dof in range(robot.nv) if dof not in left_out)

    def _rows(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """1 for the rows that count (nv,), 0 for those of free joints that do not."""
        rows = np.zeros(robot.nv)
        rows[list(self._counted(robot))] = 1
        return jnp.asarray(rows, kin.q.dtype)

    def _turns(self, robot: Robot, kin: Kinematics) -> Turns:
        return turns(robot.topology, self.q, kin.q, free_joints=self.free_joints)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return self._rows(robot, kin) * difference(robot.topology, self.q, kin.q)

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        turned = self._turns(robot, kin)
        return with_blocks(jnp.diag(_scalar(self._rows(robot, kin), turned)), turned.places, turned.jacobians)

    def partials(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        return {"q": self.jacobian(robot, kin)}

    def objective(self, robot: Robot, kin: Kinematics) -> Objective:
        """As of every task; without balls on the diagonal alone: products of all rows would be most of a step."""
        if self._turns(robot, kin).places:
            return super().objective(robot, kin)
        task = cast(self, kin.q.dtype)
        weights = task.weights() * task._rows(robot, kin)
        wanted = -task.gain * weights * task.residual(robot, kin)
        damping = task.lm_damping * (wanted @ wanted)
        return Objective(jnp.diag(weights * weights + damping), -weights * wanted)

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: jax.Array
    ) -> tuple[dict[str, jax.Array], jax.Array | None]:
        turned = self._turns(robot, kin)
        multipliers = self._rows(robot, kin) * multipliers
        if not turned.places:
            return {"q": multipliers}, None
        flat = jnp.zeros((robot.nv, robot.nv), kin.q.dtype)
        bent = with_blocks(flat, turned.places, bending(turned, multipliers))
        return {"q": multipliers @ self.jacobian(robot, kin)}, bent


def _scalar(rows: jax.Array, turned: Turns) -> jax.Array:
    """`rows` without those that are rotations."""
    plain = np.ones(rows.shape[0])
    for place in turned.places:
        plain[place : place + 3] = 0
    return rows * jnp.asarray(plain, rows.dtype)
