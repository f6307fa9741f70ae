"""How far the residual of a task is inside a bound."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics.linalg import norm
from jaxik.robot.robot import Robot
from jaxik.tasks.base import Task

# What is left of a bound that is infinite, wherever the robot is.
NO_BOUND = 1.0


class ReadsATask:
    """What a task, or a limit, reads that looks at a `task`: the same as that."""

    task: Task

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.task.frames

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        return self.task.frames_of(robot)

    @property
    def subtrees(self) -> tuple[int | str, ...]:
        return self.task.subtrees

    def check(self, robot: Robot) -> None:
        self.task.check(robot)


def part_of(residual: Any, part: str | None) -> jax.Array:
    """A part of a residual by its name, or, by None, the only one it has."""
    return jax.tree.leaves(residual)[0] if part is None else residual[part]


@pytree
class RowInside(ReadsATask, Task):
    """How far one row of a task's residual is below an upper bound, or above a lower one: the residual ().

    Args:
      task: the task.
      bound: of the row (*batch,); infinite for none.
      part, row: which row; static.
      upper: whether the bound is an upper one; static.
    """

    task: Task = leaf()
    bound: Any = leaf(0)
    part: str | None = static(default=None)
    row: int = static(default=0)
    upper: bool = static(default=True)

    def reads_dofs(self, robot: Robot) -> tuple[int, ...] | None:
        return self.task.reads_dofs(robot)

    @property
    def _sign(self) -> int:
        return -1 if self.upper else 1

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        bounded = jnp.isfinite(self.bound)
        row = jnp.ravel(part_of(self.task.residual(robot, kin), self.part))[self.row]
        return jnp.where(bounded, self._sign * (row - jnp.where(bounded, self.bound, 0)), NO_BOUND)

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        rows = part_of(self.task.jacobian(robot, kin), self.part).reshape(-1, kin.nv)
        return jnp.where(jnp.isfinite(self.bound), self._sign * rows[self.row], 0)

    def second_derivative(self, robot: Robot, kin: Kinematics, multipliers: jax.Array) -> jax.Array:
        return self.task.second_derivative(robot, kin, self._multipliers(robot, kin, multipliers))

    def exact_second_derivative(self, robot: Robot, kin: Kinematics, multipliers: jax.Array) -> jax.Array:
        return self.task.exact_second_derivative(robot, kin, self._multipliers(robot, kin, multipliers))

    def _multipliers(self, robot: Robot, kin: Kinematics, multiplier: jax.Array) -> Any:
        """The multiplier () of the row as those of the task's residual."""
        shapes = jax.eval_shape(lambda: self.task.residual(robot, kin))
        mine = jnp.where(jnp.isfinite(self.bound), self._sign * multiplier, 0)

        def of(shape: Any, here: bool) -> jax.Array:
            zeros = jnp.zeros(shape.size, mine.dtype)
            return (zeros.at[self.row].set(mine) if here else zeros).reshape(shape.shape)

        if self.part is None:
            return jax.tree.map(lambda shape: of(shape, True), shapes)
        return {name: of(shape, name == self.part) for name, shape in shapes.items()}


@pytree
class NormInside(ReadsATask, Task):
    """How far the norm of a part of a task's residual is below a bound: the residual ().

    Args:
      task: the task.
      largest: the bound (*batch,); infinite for none.
      part: which part; static.
    """

    task: Task = leaf()
    largest: Any = leaf(0)
    part: str | None = static(default=None)

    def reads_dofs(self, robot: Robot) -> tuple[int, ...] | None:
        return self.task.reads_dofs(robot)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        bounded = jnp.isfinite(self.largest)
        size = norm(jnp.ravel(part_of(self.task.residual(robot, kin), self.part)))
        return jnp.where(bounded, jnp.where(bounded, self.largest, 0) - size, NO_BOUND)
