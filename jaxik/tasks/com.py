"""Bring a centre of mass to a point."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics.constants import unit_matrix
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task


@pytree
class ComTask(Task):
    """Bring the centre of mass of the robot, or of a part of it, to `target`; the residual is `com - target` [m].

    Args:
      target: point in the world (*batch, 3) [m].
      cost: weight of the rows, (*batch, 3) or a number; (*batch, 1) for a batch of isotropic costs.
      subtree: the body where the part starts: its name, index or `Frame`; None: the whole model; static.
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      tolerance: (*batch,) [m] on the distance, over rows with a cost.
      priority: 0 is highest; static.

    Raises:
      JaxikError: for a wrong type or shape or a negative cost; in `Problem`, for an unknown body or one without mass.
    """

    target: Any = leaf(1)
    cost: Any = leaf(1, default=1.0)
    subtree: str | int | Frame | None = static(default=None)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    tolerance: Any = leaf(0, default=1e-4)
    priority: int = static(default=0)
    unit = "m"
    target_field = ("target", "position", "m")

    def __post_init__(self) -> None:
        subtree = self.subtree
        if isinstance(subtree, Frame) and subtree.kind == "body":
            subtree = subtree.index
        if not isinstance(subtree, str | int | None) or isinstance(subtree, bool):
            raise JaxikError(f"subtree is a body's name or index, or None for the whole model, not {subtree!r}")
        arguments.set_common(self)
        set_fields(
            self,
            subtree=subtree,
            target=validation.vector("target", self.target, 3),
            cost=arguments.cost("cost", self.cost, 3),
        )

    @classmethod
    def from_configuration(
        cls, robot: Robot, q: Any, subtree: str | int | Frame | None = None, **options: Any
    ) -> "ComTask":
        """The task that holds the centre of mass where `q` (*batch, nq) has it; `options` as above."""
        task = cls(jnp.zeros(3), subtree=subtree, **options)
        body = robot.topology.body_names[task._root(robot)]
        return cls(robot.center_of_mass(q, body), subtree=subtree, **options)

    @property
    def subtrees(self) -> tuple[int | str, ...]:
        return (0 if self.subtree is None else self.subtree,)  # type: ignore[return-value]

    def _root(self, robot: Robot) -> int:
        (root,) = self.subtrees
        return robot.topology.body_index(root) if isinstance(root, str) else root

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return kin.center_of_mass(self._root(robot)) - self.target

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return kin.center_of_mass_jacobian(self._root(robot))

    def partials(self, robot: Robot, kin: Kinematics) -> dict[int, jax.Array]:
        return {self._root(robot): unit_matrix(3, dtype=kin.q.dtype)}

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: jax.Array
    ) -> tuple[dict[int, jax.Array], None]:
        return {self._root(robot): multipliers}, None
