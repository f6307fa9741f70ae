"""Hold linear relations between all degrees of freedom."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.manifold import difference
from jaxik.kinematics.manifold_derivatives import bending, difference_jacobian, turns, with_blocks
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task


@pytree
class LinearHolonomicTask(Task):
    """Hold `A difference(q0, q) = b`; the residual (p,) is `A difference(q0, q) - b`, exact on ball and free joints.

    Args:
      matrix: A, (*batch, p, nv).
      target: b, (*batch, p).
      q0: the configuration (*batch, nq) that differences are taken from.
      cost: weight of the rows: a number, or (*batch, p), or (*batch, 1).
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      tolerance: (*batch,) on the norm of the rows with a cost; None: never met, since the rows have units of their own.
      priority: 0 is highest; static.

    Raises:
      JaxikError: for a wrong type or shape or a negative cost; in `Problem`, for a shape that is not the robot's.
    """

    matrix: Any = leaf(2)
    target: Any = leaf(1)
    q0: Any = leaf(1)
    cost: Any = leaf(1, default=1.0)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    tolerance: Any = leaf(0, default=None)
    priority: int = static(default=0)
    unit = "rad or m"
    target_field = ("target", "rows", "rad or m")

    def __post_init__(self) -> None:
        arguments.set_common(self)
        matrix, q0 = validation.array("matrix", self.matrix), validation.array("q0", self.q0)
        if matrix.ndim < 2:
            raise JaxikError(f"matrix has shape (*batch, p, nv), not {matrix.shape}")
        if not q0.ndim:
            raise JaxikError(f"q0 is a configuration (*batch, nq), not the number {self.q0!r}")
        rows = matrix.shape[-2]
        set_fields(
            self,
            matrix=matrix,
            q0=q0,
            target=validation.vector("target", self.target, rows),
            cost=arguments.cost("cost", self.cost, rows),
        )

    @classmethod
    def from_configuration(
        cls, robot: Robot, q: Any, matrix: Any, q0: Any = None, **options: Any
    ) -> "LinearHolonomicTask":
        """The task that keeps `A difference(q0, q)` as `q` (*batch, nq) has it; q0 is `q_home` where None."""
        q0 = robot.q_home if q0 is None else q0
        matrix = validation.array("matrix", matrix)
        moved = robot.difference(q0, q)
        task = cls(matrix, jnp.zeros(matrix.shape[-2:-1]), q0, **options)
        task.check(robot)
        return cls(matrix, (matrix @ moved[..., None])[..., 0], q0, **options)

    def check(self, robot: Robot) -> None:
        super().check(robot)
        if self.matrix.shape[-1] != robot.nv:
            raise JaxikError(f"matrix has shape (*batch, p, nv) with nv = {robot.nv}, not {self.matrix.shape}")
        if self.q0.shape[-1] != robot.nq:
            raise JaxikError(f"q0 has shape (*batch, nq) with nq = {robot.nq}, not {self.q0.shape}")

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return self.matrix @ difference(robot.topology, self.q0, kin.q) - self.target

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        turned = turns(robot.topology, self.q0, kin.q)
        matrix = self.matrix.astype(kin.q.dtype)
        return matrix @ difference_jacobian(robot.topology, turned) if turned.places else matrix

    def partials(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        return {"q": self.jacobian(robot, kin)}

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: jax.Array
    ) -> tuple[dict[str, jax.Array], jax.Array | None]:
        turned = turns(robot.topology, self.q0, kin.q)
        force = {"q": multipliers @ self.jacobian(robot, kin)}
        if not turned.places:
            return force, None
        flat = jnp.zeros((robot.nv, robot.nv), kin.q.dtype)
        return force, with_blocks(flat, turned.places, bending(turned, multipliers @ self.matrix.astype(kin.q.dtype)))
