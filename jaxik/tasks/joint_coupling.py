"""Hold a linear relation between joint coordinates: mimic joints, differentials, symmetric arms."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.topology import JointType
from jaxik.numerics.linalg import PAD, static_gather
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task


@pytree
class JointCouplingTask(Task):
    """Hold `sum_j ratio_j q_j = target` over hinges and slides; the residual (1,) is the sum minus the target.

    Args:
      joints: names of the joints; static.
      ratios: (*batch, n), one for each joint; both 1 and -1 make two joints equal.
      target: (*batch,), what the sum should be [rad or m].
      cost: (*batch,), the weight of the row.
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      tolerance: (*batch,) [rad or m].
      priority: 0 is highest; static.

    Raises:
      JaxikError: for a wrong type or shape or a negative cost; in `Problem`, for an unknown joint or one that is no
        hinge or slide.
    """

    joints: tuple[str, ...] = static()
    ratios: Any = leaf(1)
    target: Any = leaf(0, default=0.0)
    cost: Any = leaf(0, default=1.0)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    tolerance: Any = leaf(0, default=1e-3)
    priority: int = static(default=0)
    unit = "rad or m"
    target_field = ("target", "sum", "rad or m")

    def __post_init__(self) -> None:
        joints = self.joints
        if isinstance(joints, str) or not hasattr(joints, "__iter__") or not all(isinstance(j, str) for j in joints):
            raise JaxikError(f"joints is a tuple of joint names, not {joints!r}")
        joints = tuple(joints)
        if not joints or len(set(joints)) != len(joints):
            raise JaxikError(f"joints names at least one joint, and none twice: {joints!r}")
        arguments.set_common(self)
        set_fields(
            self,
            joints=joints,
            ratios=validation.vector("ratios", self.ratios, len(joints)),
            target=validation.array("target", self.target),
            cost=validation.number("cost", self.cost),
        )

    @classmethod
    def from_configuration(
        cls, robot: Robot, q: Any, joints: tuple[str, ...], ratios: Any, **options: Any
    ) -> "JointCouplingTask":
        """The task that keeps the sum as the configuration `q` (*batch, nq) has it; `options` as above."""
        task = cls(joints, ratios, **options)
        task.check(robot)
        q = jnp.asarray(q)
        coordinates = jnp.stack([q[..., robot.q_indices(name)[0]] for name in task.joints], axis=-1)
        return cls(joints, ratios, jnp.sum(task.ratios * coordinates, axis=-1), **options)

    def check(self, robot: Robot) -> None:
        super().check(robot)
        for name in self.joints:
            kind = robot.topology.joints[robot.topology.joint_index(name)].type
            if kind not in (JointType.HINGE, JointType.SLIDE):
                raise JaxikError(f"joint {name!r} is a {kind.name.lower()} joint: couplings are of hinges and slides")

    def reads_dofs(self, robot: Robot) -> tuple[int, ...]:
        return tuple(robot.v_indices(name)[0] for name in self.joints)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        coordinates = static_gather(kin.q, [robot.q_indices(name)[0] for name in self.joints])
        return (jnp.sum(self.ratios * coordinates) - self.target)[None]

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        place = {dof: i for i, dof in enumerate(self.reads_dofs(robot))}
        return static_gather(self.ratios, [place.get(dof, PAD) for dof in range(robot.nv)]).astype(kin.q.dtype)[None]

    def partials(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        return {"q": self.jacobian(robot, kin)}

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: jax.Array
    ) -> tuple[dict[str, jax.Array], None]:
        return {"q": multipliers @ self.jacobian(robot, kin)}, None
